"""Heat maps and dots: the drawn numbers equal the given numbers, and missing or infinite values are drawn."""

import numpy as np
import pytest
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from lvp.analysis import optimum_figure
from lvp.analysis.figure_style import sheet
from lvp.analysis.heat_maps import Dots, Heat
from lvp.errors import InputError

VALUES = np.array([[0.01, 0.02, 0.04], [0.005, 0.01, 0.08]])


def heat(values=VALUES, scale="rate", **more):
    rows, columns = [f"d{i}" for i in range(len(values))], [f"m{j}" for j in range(len(values[0]))]
    return Heat("best rate", rows, columns, values, ylabel="width", xlabel="vocabulary", scale=scale, **more)


def dots(values=(1.0, 4.0), intervals=((0.5, 2.0), None), points=((0.9, 1.1), (4.0,))):
    return Dots("gaps", ["A", "B"], [("mean over cells", values, intervals)], "gap (%)", points, "a cell")


def texts(axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def drawn(*panels, **more):
    """Returns the figure after one layout pass."""
    figure = sheet(panels, title="Title", **more)
    figure.draw_without_rendering()
    return figure


def test_every_cell_shows_its_value():
    (axes,) = [a for a in drawn(heat(), columns=1).axes if a.axison]
    at = {text.get_position(): text.get_text() for text in axes.texts}
    assert at == {(j + 0.5, i + 0.5): f"{VALUES[i, j]:.3g}" for i in range(2) for j in range(3)}
    assert np.array_equal(axes.collections[0].get_array(), VALUES)
    assert [t.get_text() for t in axes.get_yticklabels()] == ["d0", "d1"] and list(axes.get_yticks()) == [0.5, 1.5]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["m0", "m1", "m2"]
    assert (axes.get_title(), axes.get_xlabel(), axes.get_ylabel()) == ("best rate", "vocabulary", "width")


def test_texts_replace_values():
    words = [["a", "b", "c"], ["d", "e", "f"]]
    assert texts(drawn(heat(texts=words), columns=1).axes[0]) == list("abcdef")


def test_heat_maps_of_one_scale_share_their_colours():
    figure = drawn(heat(), heat(10 * VALUES), heat(100 * VALUES, scale="other"))
    first, second, other = (axes.collections[0].norm for axes in figure.axes)
    assert all(isinstance(norm, LogNorm) for norm in (first, second, other))
    assert (first.vmin, first.vmax) == (second.vmin, second.vmax) == pytest.approx((0.005 / 1.05, 0.8 * 1.05))
    assert (other.vmin, other.vmax) == pytest.approx((0.5 / 1.05, 8 * 1.05))


def test_only_doubtful_cells_are_hatched():
    doubtful = np.zeros((2, 3), bool)
    doubtful[1, 0] = doubtful[0, 2] = True
    marked, plain = drawn(heat(doubtful=doubtful), heat(), columns=2).axes
    hatched = [p.get_xy() for p in marked.patches if isinstance(p, Rectangle) and p.get_hatch()]
    assert sorted(hatched) == [(0, 1), (2, 0)] and not plain.patches


@pytest.mark.parametrize(
    "values",
    [np.full((2, 3), np.nan), np.full((2, 3), 0.01), np.where(VALUES > 0.03, np.nan, VALUES), VALUES[:1, :1]],
    ids=["nothing yet", "all the same", "half of it", "one cell"],
)
def test_any_state_of_a_sweep_is_drawn(values):
    axes = drawn(heat(values), columns=1).axes[0]
    assert texts(axes) == [f"{value:.3g}" for value in values.ravel()]


def test_dots_have_intervals_and_points_behind_them():
    (axes,) = drawn(dots(), columns=1).axes
    behind = [line for line in axes.get_lines() if line.get_color() == "#BBBBBB"]
    assert [list(line.get_ydata()) for line in behind] == [[0.9, 1.1], [4.0]]
    assert np.allclose([line.get_xdata().mean() for line in behind], [0, 1])
    (container,) = axes.containers
    marks, _, (bars,) = container.lines
    assert list(marks.get_ydata()) == [1.0, 4.0]
    ends = [sorted(segment[:, 1]) for segment in bars.get_segments()]
    assert np.allclose(ends, [[0.5, 2.0], [4.0, 4.0]])
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a cell", "mean over cells"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["A", "B"] and not texts(axes)


@pytest.mark.parametrize("values", [(np.inf, 4.0), (np.inf, np.inf), (np.nan, 4.0), (np.nan, np.nan)])
def test_an_infinite_value_is_marked_and_a_missing_one_is_not(values):
    (axes,) = drawn(dots(values, (None, None), ((np.inf, 1.0), ())), columns=1).axes
    assert texts(axes) == ["∞"] * int(np.isinf(values).sum())
    marks = axes.containers[0].lines[0]
    for text in axes.texts:  # above the position of its dot
        x, y = text.get_position()
        assert np.isinf(values[list(marks.get_xdata()).index(x)]) and 0.9 < y < 1
    assert np.isfinite(axes.get_ylim()).all()


def test_panels_fill_rows_and_unused_positions_are_blank():
    figure = drawn(heat(), heat(), heat(), dots(), columns=3)
    assert [axes.axison for axes in figure.axes] == [True] * 4 + [False] * 2


def test_a_sheet_states_its_source_and_missing_runs(tmp_path):
    figure = sheet([heat(), dots()], title="Title", preset="laptop", corpus="zipf", partial=(3, 9), words=["hatched"])
    text = "\n".join(text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text")))
    for words in ("Title\npreset laptop, corpus zipf", "PARTIAL: 3 of 9 runs", "hatched"):
        assert words in text
    assert all(path.stat().st_size > 1000 for path in optimum_figure.save(figure, tmp_path / "figure"))
    whole = sheet([heat()], title="Title")
    assert not any("PARTIAL" in text.get_text() for text in whole.texts)
    with pytest.raises(InputError, match="runs done, runs planned"):
        sheet([heat()], title="Title", partial=(3,))
