"""Style of all figures: colours, heading, the stamp of an unfinished sweep, and saving."""

import io
import re
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lvp.errors import InputError
from lvp.files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

# matplotlib is imported inside the functions, because optima and slopes do not need it.

Numbers = Sequence[float] | np.ndarray  # the data of a panel
SUFFIXES = (".png", ".svg")
MARKERS = "osD^vPXh"
INK, FIT, PAPER, REFERENCE = "#222222", "#D55E00", "#56B4E9", "#777777"  # differ in grey print
SAME_PICTURE = 0.002  # largest mean difference of the pixels of equal pictures; pixels from 0 to 1
STYLE: dict[Any, Any] = {  # matplotlib's own type lists all its keys
    "font.family": "DejaVu Sans",  # shipped with matplotlib: the same letters on every machine
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "path",  # the same appearance on every machine
    "svg.hashsalt": "lvp",
}


def heading(figure: "Figure", title: str, preset: str, corpus: str) -> None:
    """Sets the title, with the preset and corpus below it."""
    origin = ", ".join(part for part in (preset and f"preset {preset}", corpus and f"corpus {corpus}") if part)
    figure.suptitle("\n".join(filter(None, [*_wrapped(figure, title), origin])), fontsize=12)


def above(figure: "Figure", found: str) -> None:
    """Writes what was found above the title."""
    figure.suptitle("\n".join(filter(None, [*_wrapped(figure, found), figure.get_suptitle()])), fontsize=12)


def _wrapped(figure: "Figure", text: str) -> list[str]:
    """The lines of a title, each at most as wide as the figure."""
    width = round(11 * figure.get_figwidth())  # characters in a line
    return [part for line in text.splitlines() for part in textwrap.wrap(line, width)]


def below(figure: "Figure", lines: Iterable[str]) -> None:
    """Writes the lines that explain the marks, below the panels."""
    figure.supxlabel("\n".join(lines), fontsize=8.5, color="#444444")


def stamp(figure: "Figure", partial: tuple[int, int] | None) -> None:
    """Writes (runs done, runs planned) of an unfinished sweep across the figure; nothing if `partial` is None.

    Raises:
      InputError: `partial` does not have two entries.
    """
    if partial is None:
        return
    if len(partial) != 2:
        raise InputError(f"partial must be (runs done, runs planned), got {partial!r}")
    words = f"PARTIAL: {partial[0]} of {partial[1]} runs"
    style: dict[str, Any] = dict(fontsize=40, color="#CC0000", alpha=0.22, rotation=18, ha="center", va="center")
    figure.text(0.5, 0.5, words, weight="bold", zorder=50, **style)
    figure.text(0.995, 0.985, words, ha="right", va="top", color="#CC0000", weight="bold", fontsize=11)


class Drawn(Protocol):
    """A panel that draws itself into matplotlib axes and knows the other panels of the figure."""

    def draw(self, axes: "Axes", panels: Sequence["Drawn"]) -> None: ...


def sheet(
    panels: Sequence[Drawn],
    *,
    title: str,
    preset: str = "",
    corpus: str = "",
    partial: tuple[int, int] | None = None,
    words: Sequence[str] = (),
    columns: int = 3,
    size: tuple[float, float] = (5.0, 4.9),
) -> "Figure":
    """Returns a matplotlib figure with the panels in a grid; see `save`.

    Args:
      panels: the panels, row by row.
      title, preset, corpus: text above the panels.
      partial: (runs done, runs planned) of an unfinished sweep, written across the figure.
      words: lines of text below the panels.
      columns: number of columns of the grid.
      size: width and height of a panel in inches.

    Raises:
      InputError: `partial` does not have two entries.
    """
    import matplotlib
    from matplotlib.figure import Figure

    rows = max(1, -(-len(panels) // columns))  # a sweep that has just begun may have no panel
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(size[0] * columns, 0.9 + size[1] * rows), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for place, panel in zip(axes, panels, strict=False):
            panel.draw(place, panels)
        for empty in axes[len(panels) :]:
            empty.set_axis_off()
        heading(figure, title, preset, corpus)
        below(figure, words)
        stamp(figure, partial)
    return figure


def decimal(axis: "Axis") -> None:
    """Labels a log axis with plain decimals at decades and at 2 and 5 between them, or closer on a short axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator

    low, high = axis.get_view_interval()
    between = (1.5, 2, 2.5, 3, 4, 5, 6, 8) if high < 6 * low else (2, 5)
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(LogLocator(subs=between))
    axis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_tick_params(which="minor", labelsize=8)


def save(figure: "Figure", stem: str | Path) -> tuple[Path, Path]:
    """Writes `stem`.png and `stem`.svg atomically; the same figure gives the same bytes.

    Returns:
      The two paths.

    Raises:
      InputError: the directory cannot be written.
    """
    stem = Path(stem)
    png, svg = (stem.with_name(stem.name + suffix) for suffix in SUFFIXES)
    # The PNG is written last, because `same_picture` reads it to decide whether both files are up to date.
    images = {path: drawn(figure, path.suffix) for path in (png, svg)}
    for path in (svg, png):
        _write(path, images[path])
    return png, svg


def picture(path: str | Path) -> Path:
    """Returns the path of a picture after a check of its name.

    Raises:
      InputError: the name does not end in .png or .svg.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: a picture's name ends in {' or '.join(SUFFIXES)}")
    return path


def same_picture(figure: "Figure", stem: str | Path) -> bool:
    """Whether `stem`.png and `stem`.svg show the figure, up to the anti-aliasing of letters and lines.

    Two versions of matplotlib or FreeType draw the same figure with other grey levels at edges. The words must be
    equal. The result is False for a file that cannot be read.
    """
    from matplotlib.image import imread

    stem = Path(stem)
    png, svg = (stem.with_name(stem.name + suffix) for suffix in SUFFIXES)
    try:
        committed, present = imread(png, format="png"), imread(io.BytesIO(drawn(figure, ".png")), format="png")
        if committed.shape != present.shape or float(np.abs(committed - present).mean()) >= SAME_PICTURE:
            return False
        return _words(svg.read_bytes()) == _words(drawn(figure, ".svg"))
    except (OSError, SyntaxError, ValueError):
        return False


def _words(svg: bytes) -> list[bytes]:
    """The texts of an SVG file. Matplotlib writes each text as a comment before its outlines."""
    return re.findall(rb"<!-- (.*?) -->", svg, flags=re.DOTALL)


def save_as(figure: "Figure", path: str | Path) -> None:
    """Writes a .png or .svg file as `save` does.

    Raises:
      InputError: the name does not end in .png or .svg; the path cannot be written.
    """
    path = picture(path)
    _write(path, drawn(figure, path.suffix))


def drawn(figure: "Figure", suffix: str) -> bytes:
    """The content of a .png or .svg file. A PNG has at most 256 colours, which makes it three times smaller."""
    import matplotlib
    from PIL import Image

    image = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.draw_without_rendering()  # the constrained layout settles in the second drawing
        if suffix == ".svg":
            figure.savefig(image, format="svg", dpi=160, metadata={"Date": None})
            return image.getvalue()
        figure.savefig(image, format="png", dpi=160, pil_kwargs={"compress_level": 0})
    colours = Image.open(image).convert("RGB").quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    image = io.BytesIO()
    colours.save(image, "png", optimize=True)
    return image.getvalue()


def _write(path: Path, image: bytes) -> None:
    try:
        write_whole(path, image)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
