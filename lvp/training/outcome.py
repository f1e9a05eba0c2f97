"""What a lane came to, read off the last state of its training."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

CURVE_POINTS = 50
# The parts of a state that an outcome is made of.
READ = ("losses", "diverged", "valid_loss", "accuracy", "scored_nats", "measures")


@dataclass(frozen=True)
class Outcome:
    """What a lane came to. Losses in nats per token; `status` is "finished" or "diverged" (then `diverged_step` is the
    first step whose loss was not finite, and the losses are None). `curve_*`: mean train loss over each of at most 50
    equal parts of the steps, at its last step. `measures`: what the measured steps came to, as `lvp.measures`
    nests them, every number a list over the cell's measured steps (None where it is not finite). `accuracy`: of a
    classifier. `scored_nats`: −log likelihood of all of the text that the cell is scored on."""

    status: str
    steps: int
    diverged_step: int | None
    train_loss: float | None
    valid_loss: float | None
    curve_steps: list[int]
    curve_losses: list[float | None]
    measures: dict[str, Any] | None = None
    accuracy: float | None = None
    scored_nats: float | None = None


def outcome(final_steps: int, state: Any) -> Outcome:
    """Reads the outcome of one finished lane off its state (see `lvp.training.Program`; host or device arrays). The
    final train loss is the mean over the last `final_steps`."""
    losses = np.asarray(state["losses"], np.float64)
    diverged = int(state["diverged"])
    steps = losses.size
    edges = np.unique(np.linspace(0, steps, min(CURVE_POINTS, steps) + 1).astype(int))
    means = [float(losses[a:b].mean()) for a, b in zip(edges, edges[1:], strict=False)]
    finished = diverged < 0 and bool(np.isfinite(state["valid_loss"]))
    return Outcome(
        status="finished" if finished else "diverged",
        steps=steps,
        # A last update can break the parameters after the last finite train loss: the evaluation sees it.
        diverged_step=None if finished else (diverged if diverged >= 0 else steps),
        train_loss=float(losses[-final_steps:].mean()) if finished else None,
        valid_loss=float(state["valid_loss"]) if finished else None,
        curve_steps=[int(b) for b in edges[1:]],
        curve_losses=[m if np.isfinite(m) else None for m in means],
        accuracy=float(state["accuracy"]) if finished and "accuracy" in state else None,
        scored_nats=float(state["scored_nats"]) if finished and "scored_nats" in state else None,
        measures=jax.tree.map(_listed, state["measures"]) if "measures" in state else None,
    )


def _listed(values) -> list | float | None:
    """An array as nested lists to 6 digits, None for what is not finite."""
    if np.ndim(values):
        return [_listed(x) for x in np.asarray(values)]
    return float(f"{values:.6g}") if np.isfinite(values) else None
