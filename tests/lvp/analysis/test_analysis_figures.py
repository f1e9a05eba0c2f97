"""The optimum figure: its contents for each state of a sweep, and reproducible files."""

import subprocess
import sys

import numpy as np
import pytest

from lvp.analysis import optima, optimum_figure, slope
from lvp.errors import InputError

WIDTHS = np.array([32, 48, 64, 96])
RATES = 0.001 * 2.0 ** np.arange(9)


def runs(flat=()):
    rng = np.random.default_rng(0)
    peaks = np.log(0.016) - 0.5 * np.log(WIDTHS / 64)
    curves = [0.15 * (np.log(RATES) - peak) ** 2 * (w not in flat) for w, peak in zip(WIDTHS, peaks, strict=True)]
    return [1 + curve + 0.02 * rng.standard_normal((3, 9)) for curve in curves]


def texts(figure) -> str:
    lines = [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]
    return "\n".join(lines)


def test_the_figure_contains_its_text():
    figure = optimum_figure.optimum_vs_width(WIDTHS, RATES, runs(), preset="laptop", corpus="zipf")
    text = texts(figure)
    for words in (
        "preset laptop, corpus zipf",
        "width d",
        "embedding learning rate",
        "nats per token",
        "slope −0.",
    ):
        assert words in text
    assert {" 0", " −1/2", " −1"} <= {*text.splitlines()} and "LVP" not in text  # a rate of any role
    assert "PARTIAL" not in text and "Hollow" not in text


def test_flagged_optima_are_hollow_and_named():
    figure = optimum_figure.optimum_vs_width(WIDTHS, RATES, runs(flat=(48,)))
    assert "width 48 (" in texts(figure) and "noise" in texts(figure)
    right = figure.axes[1]
    large = [line for line in right.get_lines() if line.get_markersize() == 8 and line.get_marker() in "osD^"]
    hollow = [isinstance(line.get_markerfacecolor(), str) for line in large]  # "white" if hollow, otherwise an array
    assert hollow == [False, True, False, False]


def test_a_partial_sweep_is_marked():
    assert "PARTIAL: 5 of 108 runs" in texts(optimum_figure.optimum_vs_width(WIDTHS, RATES, runs(), partial=(5, 108)))


def test_given_optima_and_fit_are_used():
    given_optima = optima(RATES, runs())
    fit = slope(WIDTHS[:3], given_optima[:3])
    figure = optimum_figure.optimum_vs_width(WIDTHS, RATES, runs(), optima=given_optima, fit=fit)
    assert f"{fit.slope:.2f}".replace("-", "−") in texts(figure)


def drawn(axes) -> dict[str, int]:
    """Returns the numbers of points, optima, crosses of diverged rates and dashed reference lines on the axes."""
    lines = axes.get_lines()
    return {
        "points": sum(
            len(line.get_xdata()) for line in lines if line.get_markersize() == 4 and line.get_marker() != "_"
        ),
        "optima": sum(line.get_markersize() == 8 for line in lines),
        "crosses": sum(len(line.get_xdata()) for line in lines if line.get_marker() == "x"),
        "references": sum(line.get_linestyle() == "--" for line in lines),
    }


NOTHING, DIVERGED = np.full((3, 9), np.nan), np.full((3, 9), np.inf)


@pytest.mark.parametrize(
    "losses, points, optima, crosses, words",
    [
        ([NOTHING] * 4, 0, 0, 0, "usable optima: 0|32 (missing); 48 (missing); 64 (missing); 96 (missing)"),
        ([DIVERGED] * 4, 0, 0, 36, "usable optima: 0|32 (diverged); 48 (diverged); 64 (diverged); 96 (diverged)"),
        ([curve[:1] for curve in runs()], 36, 4, 0, "fit: slope −0.|geometric mean"),
        ([curve - 3 for curve in runs()], 36, 4, 0, "fit: slope −0."),
        ([*runs()[:2], NOTHING, DIVERGED], 18, 2, 9, "no interval from 2 widths|64 (missing); 96 (diverged)"),
    ],
    ids=["nothing yet", "all diverged", "one seed", "negative losses", "half of it"],
)
def test_any_state_of_a_sweep_is_drawn(losses, points, optima, crosses, words, tmp_path):
    figure = optimum_figure.optimum_vs_width(WIDTHS, RATES, losses, partial=(1, 108))
    left, right = figure.axes
    assert drawn(left) == {"points": points, "optima": optima, "crosses": crosses, "references": 0}
    assert drawn(right) == {"points": 0, "optima": optima, "crosses": 0, "references": 3 * bool(optima)}
    text = texts(figure)
    assert "PARTIAL: 1 of 108 runs" in text and all(word in text for word in words.split("|"))
    # The 20 % tolerance of the paper has no meaning for losses below zero.
    positive = all((curve[np.isfinite(curve)] > 0).all() for curve in losses)
    assert ("within 20 % of the best loss" in text) == positive
    assert left.get_xlim() == (0.8 * RATES[0], 1.25 * RATES[-1])
    assert right.get_xlim()[0] < WIDTHS[0] and WIDTHS[-1] < right.get_xlim()[1]
    assert all(path.stat().st_size > 1000 for path in optimum_figure.save(figure, tmp_path / "figure"))


def test_one_width():
    figure = optimum_figure.optimum_vs_width(WIDTHS[:1], RATES, runs()[:1])
    left, right = figure.axes
    assert drawn(left) == {"points": 9, "optima": 1, "crosses": 0, "references": 0}
    assert drawn(right) == {"points": 0, "optima": 1, "crosses": 0, "references": 3}
    assert "no fit: usable optima: 1" in texts(figure) and "Hollow" not in texts(figure)


@pytest.mark.slow
def test_figure_files_are_complete_and_reproducible(tmp_path):
    paths = []
    for name in ("one", "two"):
        figure = optimum_figure.optimum_vs_width(WIDTHS, RATES, runs(), preset="smoke")
        (tmp_path / name).mkdir()
        paths.append(optimum_figure.save(figure, tmp_path / name / "figure.v1"))
    assert [path.name for path in paths[0]] == ["figure.v1.png", "figure.v1.svg"]
    for first, second in zip(*paths, strict=True):
        assert first.read_bytes() == second.read_bytes()
    assert len(list((tmp_path / "one").iterdir())) == 2  # no partly written file is left


def test_an_unwritable_path_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    figure = optimum_figure.optimum_vs_width(WIDTHS, RATES, runs())
    with pytest.raises(InputError, match="cannot write"):
        optimum_figure.save(figure, tmp_path / "file" / "figure")


@pytest.mark.parametrize(
    "change",
    [
        dict(widths=WIDTHS[:3]),
        dict(widths=[["a"]]),
        dict(rates=RATES[:4]),
        dict(optima=[]),
        dict(partial=(1,)),
    ],
)
def test_bad_input_gives_a_one_line_error(change):
    arguments = {"widths": WIDTHS, "rates": RATES, "losses_by_width": runs(), **change}
    with pytest.raises(InputError) as caught:
        optimum_figure.optimum_vs_width(**arguments)
    assert len(str(caught.value).splitlines()) == 1


def test_reading_optima_needs_no_matplotlib_and_no_jax():
    heavy = {"jax", "matplotlib", "pandas", "flax", "ray"}
    code = f"import sys, lvp.analysis; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
