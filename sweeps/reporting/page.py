"""The results of sweeps as a single HTML file, without scripts and without other files."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from lvp.analysis import claims as claims_of
from lvp.analysis import figure_style
from lvp.analysis.claims import Claim
from lvp.training import records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
h1, h2, h3 { line-height: 1.2 } h2 { border-top: 1px solid #ccc; padding-top: 1.2rem; margin-top: 2.5rem }
img { max-width: 100% } pre { background: #f5f5f5; padding: .8rem; overflow-x: auto }
.wide { overflow-x: auto } table { border-collapse: collapse; font-size: 13px }
th, td { border: 1px solid #ddd; padding: .2rem .5rem; text-align: left; vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums } th { background: #f5f5f5 }
.supported { color: #00734f } .contradicted { color: #b00020 }
"""
MOST_IN_LEGEND = 12  # largest number of parameter values in a legend


class Section(NamedTuple):
    """The results of one sweep."""

    name: str  # the heading
    question: str  # of the experiment
    origin: str  # a sentence about lanes and devices
    summary: str  # the experiment's table of optima and slopes, as text
    claims: Sequence[Claim]
    figure: "Figure | None"  # of the experiment; None without a record
    rows: Sequence[Mapping[str, Any]]  # records
    running: Sequence[Mapping[str, Any]] = ()  # `config` and `outcome` so far of lanes without a record


def page(title: str, sections: Sequence[Section]) -> str:
    """The page as HTML. Numbers in tables have 6 digits; their `title` has all digits."""
    links = "".join(f'<li><a href="#{i}">{escape(s.name)}</a></li>\n' for i, s in enumerate(sections))
    contents = f"<ul>\n{links}</ul>\n" if len(sections) > 1 else ""
    body = "".join(_section(i, s) for i, s in enumerate(sections))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{contents}{body}</body>\n</html>\n"
    )


def _section(number: int, s: Section) -> str:
    parts = [f'<h2 id="{number}">{escape(s.name)}</h2>', f"<p>{escape(s.question)}</p>", f"<p>{escape(s.origin)}</p>"]
    if s.figure is not None:
        parts.append(_image(s.figure, f"Figure of {s.name}"))
    if s.summary:
        parts += ["<h3>Summary</h3>", f"<pre>{escape(s.summary)}</pre>"]
    if s.claims:
        parts += ["<h3>Claims</h3>", _table("claims", *claims_of.cells(s.claims))]
    if panels := curve_panels(s.rows, s.running):
        curves = figure_style.sheet(panels, title="Training loss", size=(4.6, 3.4))
        parts += ["<h3>Curves</h3>", _image(curves, f"Training loss against steps in {s.name}")]
    if s.rows:
        parts += ["<h3>Lanes</h3>", _table("lanes", *lane_cells(s.rows))]
    return "\n".join(parts) + "\n"


def _image(figure: "Figure", words: str) -> str:
    """The figure as an image inside the page. The names in the SVGs of two images do not collide."""
    data = base64.b64encode(figure_style.drawn(figure, ".svg")).decode()
    return f'<p><img alt="{escape(words)}" src="data:image/svg+xml;base64,{data}"></p>'


def _table(name: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["".join(f"<th>{escape(cell)}</th>" for cell in head), *("".join(map(_cell, row)) for row in rows)]
    inside = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table class="{name}">\n{inside}\n</table></div>'


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="number" title="{value!r}">{value:.6g}</td>' if value == value else "<td>–</td>"
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td class="number">{value}</td>'
    verdict = value if value in ("supported", "contradicted") else ""
    return f'<td class="{verdict}">{escape(value)}</td>' if verdict else f"<td>{escape(str(value))}</td>"


def lane_cells(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """The columns and rows of the page's table of lanes: the hash, the status and the numbers of the outcome, and the
    configured values that differ between lanes.

    Args:
      rows: records.
    """
    table = records.table(rows)
    configured = [c for c in map(str, table.columns) if c.startswith(("lane.", "cell."))]
    differing = [c for c in configured if table[c].dropna().map(str).nunique() > 1]  # older records lack some values
    numbers = (name for row in rows for name, x in row["outcome"].items() if not isinstance(x, list | Mapping | None))
    columns = ["hash", *dict.fromkeys(["status", *numbers]), *differing]
    return columns, [[_plain(value) for value in row] for row in table[columns].itertuples(index=False, name=None)]


def _plain(value: Any) -> Any:
    """A value of a table as a Python number or text."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return "–" if value is None else str(value)


@dataclass(frozen=True)
class CurvePanel:
    """A panel with the training losses of a cell's lanes. Lanes without a record are dashed."""

    title: str  # above the panel
    parameter: str  # the lanes' parameter that the colours show; "" if the lanes have equal parameters
    lanes: Sequence[tuple[Any, Sequence[int], Sequence[float], bool]]  # (value, steps, losses, whether it is running)

    def draw(self, axes: "Axes", panels: "Sequence[figure_style.Drawn]") -> None:
        """Draws the panel, for `lvp.analysis.figure_style.sheet`."""
        from matplotlib import colormaps

        values = sorted({value for value, *_ in self.lanes}, key=_order)
        colours = {v: colormaps["viridis"](0.9 * i / max(1, len(values) - 1)) for i, v in enumerate(values)}
        for value, steps, losses, running in self.lanes:
            style: Any = "--" if running else "-"
            axes.plot(steps, losses, style, color=colours[value], linewidth=0.9, alpha=0.8)
        # Without these limits, diverging lanes would hide the other lanes.
        begins = sorted(losses[0] for _, _, losses, _ in self.lanes if losses)
        lowest = min((min(losses) for _, _, losses, _ in self.lanes if losses), default=0.0)
        if begins:
            top = begins[len(begins) // 2]
            axes.set_ylim(lowest - 0.05 * (top - lowest), top + 0.1 * (top - lowest) + 1e-9)
        axes.set_title(self.title, fontsize=9)
        axes.set_xlabel("steps")
        axes.set_ylabel("training loss")
        if self.parameter and len(values) <= MOST_IN_LEGEND:
            from matplotlib.lines import Line2D

            handles = [Line2D([], [], color=colours[v], label=_short(v)) for v in values]
            name = self.parameter.removeprefix("lane.").replace("_", " ")
            axes.legend(handles=handles, title=name, fontsize=7, title_fontsize=7, frameon=False)


def curve_panels(rows: Sequence[Mapping[str, Any]], running: Sequence[Mapping[str, Any]] = ()) -> list[CurvePanel]:
    """A panel for each cell of trained lanes. In a panel, colours show the lanes' parameter with the most values.

    Args:
      rows: records.
      running: `config` and `outcome` so far of lanes without a record.
    """
    begun = [*((row, False) for row in rows), *((lane, True) for lane in running)]
    lanes = [
        (records.flatten(r["config"]), r["outcome"], dashed) for r, dashed in begun if r["outcome"].get("curve_steps")
    ]
    if not lanes:
        return []
    values: dict[str, set] = {}
    for config, *_ in lanes:
        for key, value in config.items():
            if not isinstance(value, list):
                values.setdefault(key, set()).add(value)
    varied = [key for key, of_key in values.items() if len(of_key) > 1]
    parameter = max((k for k in varied if k.startswith("lane.")), key=lambda k: len(values[k]), default="")
    # The model's sizes come first. Older records lack some values.
    cell_keys = [k for k in varied if k.startswith("cell.") and len(values[k] - {None}) > 1]
    cell_keys.sort(key=lambda key: (key not in ("cell.model.width", "cell.model.vocab"), key))
    cells: dict[tuple, list] = {}
    for config, outcome, is_running in lanes:
        pairs = [(s, x) for s, x in zip(outcome["curve_steps"], outcome["curve_losses"], strict=True) if x is not None]
        cell = tuple(_order(config.get(key)) for key in cell_keys)
        line = (config.get(parameter), [s for s, _ in pairs], [x for _, x in pairs], is_running)
        cells.setdefault(cell, []).append(line)
    names = [key.rpartition(".")[2] for key in cell_keys]
    titles = {cell: ", ".join(f"{n} {_short(x)}" for n, (_, x) in zip(names, cell, strict=True)) for cell in cells}
    return [CurvePanel(titles[cell], parameter, cells[cell]) for cell in sorted(cells)]


def _order(value: Any) -> tuple[bool, Any]:
    """A sort key: numbers come before texts."""
    number = isinstance(value, int | float)
    return not number, value if number else str(value)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
