"""A run's outcome, from the last state of its training."""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

POINTS = 50, 1000  # least and most points of a curve
STEPS_PER_POINT = 100  # between these limits
# The entries of a state that an outcome reads.
READ = ("losses", "gradient_norms", "diverged", "valid_loss", "accuracy", "scored_nats", "measures")


@dataclass(frozen=True)
class Outcome:
    """A run's outcome. Losses are in nats per token, or per image.

    train_loss, valid_loss, accuracy and scored_nats are None for a diverged run.
    """

    status: str  # "finished" or "diverged"
    steps: int  # of the setting
    diverged_step: (
        int | None
    )  # first step, from 0, with a non-finite training loss; `steps` if only the validation loss is not finite
    train_loss: float | None  # mean over the last steps
    valid_loss: float | None  # at the last step
    curve_steps: list[int]  # number of steps at the end of each of 50 to 1,000 equal parts of about 100 steps
    curve_losses: list[float | None]  # mean training loss of each part
    # Means of each part, with 6 digits: the norm of the gradient of all parameters before clipping, and the learning
    # rate of the hidden matrices. Older records lack them.
    curve_gradient_norms: list[float | None]
    curve_rates: list[float | None]
    measures: dict[str, Any] | None = None  # nested as in `lvp.measures`; lists over measured steps, None if not finite
    accuracy: float | None = None  # of a classifier
    scored_nats: float | None = None  # −log likelihood of the whole scored text


def outcome(final_steps: int, state: Any, rates: np.ndarray) -> Outcome:
    """The outcome of one run from its last state (see `lvp.training.Program`; host or device arrays).

    Args:
      final_steps: the final training loss is the mean over these last steps.
      rates: [steps], learning rates of the hidden matrices.
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
        **curve(losses, np.asarray(state["gradient_norms"], np.float64), rates.astype(np.float64)),
        accuracy=float(state["accuracy"]) if finished and "accuracy" in state else None,
        scored_nats=float(state["scored_nats"]) if finished and "scored_nats" in state else None,
        measures=jax.tree.map(_listed, state["measures"]) if "measures" in state else None,
    )


def curve(losses: np.ndarray, gradient_norms: np.ndarray, rates: np.ndarray) -> dict[str, Any]:
    """The fields `curve_…` of an outcome: means over equal parts of the steps, from the values at all steps."""
    least, most = POINTS
    count = min(len(losses), most, max(least, len(losses) // STEPS_PER_POINT))
    edges = np.unique(np.linspace(0, len(losses), count + 1).astype(int))

    def means(values: np.ndarray) -> np.ndarray:
        return np.array([values[a:b].mean() for a, b in zip(edges, edges[1:], strict=False)])

    return {
        "curve_steps": [int(b) for b in edges[1:]],
        "curve_losses": [float(m) if np.isfinite(m) else None for m in means(losses)],
        "curve_gradient_norms": _listed(means(gradient_norms)),
        "curve_rates": _listed(means(rates)),
    }


def _listed(values) -> list | float | None:
    """An array as nested lists with 6 digits; None for non-finite numbers."""
    if np.ndim(values):
        return [_listed(x) for x in np.asarray(values)]
    return float(f"{values:.6g}") if np.isfinite(values) else None
