"""Panels of embedding updates in two dimensions, and their effect on the mean embedding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lvp.analysis.figure_style import INK, Drawn
from lvp.analysis.power_laws import COLOURS
from lvp.theory import head_updates

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Arrows:
    """Embeddings in two dimensions, with their updates as arrows."""

    title: str  # after "toy, "
    embeddings: np.ndarray  # [m, 2]
    updates: np.ndarray  # [m, 2], parallel to hidden
    hidden: np.ndarray  # [2], the hidden state

    def draw(self, axes: "Axes", panels: "Sequence[Drawn]") -> None:
        """Draws the panel, for `lvp.analysis.figure_style.sheet`."""
        _arrows(axes, self)


def toys() -> list[Arrows]:
    """Updates of three embeddings by one token: under SGD they sum to zero, under Adam they do not."""
    hidden, probabilities = np.array([1.0, 0.45]), np.array([0.2, 0.5, 0.3])
    embeddings, second_moment = np.array([[0.9, 0.9], [-1.1, 0.3], [0.3, -1.0]]), np.array([0.6, 0.3, 0.1])
    return [
        Arrows(title, embeddings, head_updates(hidden, probabilities, 0, second_moment=moment), hidden)
        for title, moment in (
            ("SGD: the updates sum to zero", None),
            ("Adam: the updates do not sum to zero", second_moment),
        )
    ]


def _arrows(axes, toy: Arrows) -> None:
    style = dict(angles="xy", scale_units="xy", scale=1, width=0.009, zorder=4)
    axes.quiver(0, 0, *toy.hidden, color=INK, **style)
    axes.annotate(" h", toy.hidden, color=INK, fontsize=11)
    for i, (at, move) in enumerate(zip(toy.embeddings, toy.updates, strict=True)):
        axes.plot(*at, "o", color=COLOURS[i], markersize=6, zorder=5)
        below = dict(xytext=(0, -8), textcoords="offset points", ha="center", va="top")  # clear of the arrows
        axes.annotate(f"e{i + 1}", at, color=COLOURS[i], fontsize=10, **below)
        axes.quiver(*at, *move, color=COLOURS[i], **style)
    total, centre = toy.updates.sum(axis=0), toy.embeddings.mean(axis=0)
    axes.plot(*centre, "s", color="#777777", markersize=5, zorder=5)
    axes.annotate("mean", centre, color="#555555", fontsize=9, **below)
    if np.hypot(*total) > 1e-9:
        axes.quiver(*centre, *total, color="#999999", **style)
    axes.set(aspect="equal", xlim=(-2.4, 2.8), ylim=(-2.0, 2.2), xlabel="first coordinate", ylabel="second coordinate")
    axes.axhline(0, color="#dddddd", linewidth=0.6, zorder=0)
    axes.axvline(0, color="#dddddd", linewidth=0.6, zorder=0)
    axes.set_title(f"toy, {toy.title}", fontsize=10)
