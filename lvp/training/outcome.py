"""A lane's outcome, from the last state of its training."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

CURVE_POINTS = 50
# The entries of a state that an outcome reads.
READ = ("losses", "diverged", "valid_loss", "accuracy", "scored_nats", "measures")


@dataclass(frozen=True)
class Outcome:
    """A lane's outcome. Losses are in nats per token, or per image.

    train_loss, valid_loss, accuracy and scored_nats are None for a diverged lane.
    """

    status: str  # "finished" or "diverged"
    steps: int  # of the cell
    diverged_step: (
        int | None
    )  # first step, from 0, with a non-finite training loss; `steps` if only the validation loss is not finite
    train_loss: float | None  # mean over the last steps
    valid_loss: float | None  # at the last step
    curve_steps: list[int]  # number of steps at the end of each of at most 50 equal parts
    curve_losses: list[float | None]  # mean training loss of each part
    measures: dict[str, Any] | None = None  # nested as in `lvp.measures`; lists over measured steps, None if not finite
    accuracy: float | None = None  # of a classifier
    scored_nats: float | None = None  # −log likelihood of the whole scored text


def outcome(final_steps: int, state: Any) -> Outcome:
    """The outcome of one lane from its last state (see `lvp.training.Program`; host or device arrays).

    The final training loss is the mean over the last `final_steps`.
    """
    losses = np.asarray(state["losses"], np.float64)
    diverged = int(state["diverged"])
    steps = losses.size
    finished = diverged < 0 and bool(np.isfinite(state["valid_loss"]))
    return Outcome(
        status="finished" if finished else "diverged",
        steps=steps,
        # The last update can break the parameters after the last finite training loss; the validation loss shows it.
        diverged_step=None if finished else (diverged if diverged >= 0 else steps),
        train_loss=float(losses[-final_steps:].mean()) if finished else None,
        valid_loss=float(state["valid_loss"]) if finished else None,
        **curve(losses),
        accuracy=float(state["accuracy"]) if finished and "accuracy" in state else None,
        scored_nats=float(state["scored_nats"]) if finished and "scored_nats" in state else None,
        measures=jax.tree.map(_listed, state["measures"]) if "measures" in state else None,
    )


def curve(losses: np.ndarray) -> dict[str, Any]:
    """`curve_steps` and `curve_losses` of at most 50 equal parts of the steps, from the losses of all steps."""
    edges = np.unique(np.linspace(0, len(losses), min(CURVE_POINTS, len(losses)) + 1).astype(int))
    means = [float(losses[a:b].mean()) for a, b in zip(edges, edges[1:], strict=False)]
    return {
        "curve_steps": [int(b) for b in edges[1:]],
        "curve_losses": [m if np.isfinite(m) else None for m in means],
    }


def _listed(values) -> list | float | None:
    """An array as nested lists with 6 digits; None for non-finite numbers."""
    if np.ndim(values):
        return [_listed(x) for x in np.asarray(values)]
    return float(f"{values:.6g}") if np.isfinite(values) else None
