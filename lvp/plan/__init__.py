"""The plan of a run: memory and time of a cell's training on a topology, compiled without the hardware."""

from lvp.plan.compilation import PAPER_TOKENS, Plan, TooLarge, devices_of, plan, remedies, table

__all__ = ["PAPER_TOKENS", "Plan", "TooLarge", "devices_of", "plan", "remedies", "table"]
