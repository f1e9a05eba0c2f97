"""The results of a sweep from its records: table, figure and claims, as files and as a page for a browser."""

import base64
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any

from lvp.analysis import claims as claims_of
from lvp.analysis import figure_style
from lvp.analysis.claims import NOT_TESTED, Claim
from lvp.errors import InputError
from lvp.experiments.common.experiment import Experiment
from lvp.training import records

if TYPE_CHECKING:  # workers import `sweeps` and draw nothing
    from matplotlib.figure import Figure
    from pandas import DataFrame

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2rem }} img {{ max-width: 100% }}
table {{ border-collapse: collapse; font-size: 13px }} th, td {{ padding: .2rem .5rem; text-align: left }}
</style></head><body>
<h1>{title}</h1>
<p>{question}</p>
<p>{count}</p>
{results}
</body></html>
"""


@dataclass(frozen=True)
class Report:
    """An experiment's reading of the records of a sweep. `files` and `page` report its exceptions."""

    experiment: Experiment
    config: Any  # the experiment's configuration
    preset: str
    rows: Sequence[Mapping[str, Any]]  # records
    planned: int  # number of planned runs

    @property
    def corpus(self) -> str:
        """The name of the corpus without its path."""
        return self.config.corpus.partition(":")[0]

    @property
    def commit(self) -> str:
        """The commits that trained the runs."""
        return ", ".join(sorted({str(row["provenance"]["commit"]) for row in self.rows}))

    @cached_property
    def table(self) -> "DataFrame":
        """The table of the records (`lvp.training.records.table`)."""
        return records.table(self.rows)

    @cached_property
    def summary(self) -> str:
        return self.experiment.summary(self.table, self.config)

    @cached_property
    def claims(self) -> list[Claim]:
        place = {
            "experiment": self.experiment.name,
            "preset": self.preset,
            "corpus": self.corpus,
            "commit": self.commit,
        }
        return self.experiment.claims(self.table, self.config, place)

    def figure(self) -> "Figure":
        """The experiment's figure, with what was found above its title, and PARTIAL if planned runs have no record."""
        partial = (len(self.rows), self.planned) if len(self.rows) < self.planned else None
        drawn = self.experiment.figure(self.table, self.config, preset=self.preset, corpus=self.corpus, partial=partial)
        found = []
        if self.experiment.headline:
            with suppress(Exception):  # `files` reports a failure of the claims
                found = claims_of.findings({"": self.claims})
        if text := claims_of.headline(found):
            figure_style.above(drawn, text)
        return drawn

    def runs(self) -> "DataFrame":
        """A row per record: hash, status, numbers of the outcome, and the configured values that differ."""
        configured = [name for name in self.table if str(name).startswith(("run.", "setting."))]
        # Records of earlier versions lack some values.
        differing = [name for name in configured if self.table[name].dropna().map(str).nunique() > 1]
        numbers = [k for row in self.rows for k, x in row["outcome"].items() if isinstance(x, int | float | str)]
        return self.table[["hash", *dict.fromkeys(numbers), *differing]]

    def files(self) -> tuple[dict[str, bytes], str, list[str]]:
        """The files of the results, the text that a command prints at its end, and the errors of the experiment.

        With fewer records than planned runs the figure and the text say PARTIAL.

        Returns:
          The content of table.csv, figure.png, figure.svg and claims.md by name; the summary and the first claim that
          was tested; and one line for each function of the experiment that failed: its files are missing. Without a
          record there is no file.
        """
        if not self.rows:
            return {}, "no run has a record: nothing to draw", []
        errors: list[str] = []

        def images() -> dict[str, bytes]:
            figure = self.figure()
            return {f"figure{suffix}": figure_style.drawn(figure, suffix) for suffix in (".png", ".svg")}

        files = {"table.csv": self.table.to_csv(index=False).encode()}
        files |= _attempt("figure", images, errors) or {}
        lines = [_attempt("summary", lambda: self.summary, errors)]
        if len(self.rows) < self.planned:
            lines.append(f"PARTIAL: {len(self.rows)} of {self.planned} runs have a record")
        if diverged := sum(row["outcome"].get("status") == "diverged" for row in self.rows):
            remedy = ": no loss is known; try smaller rates" if diverged == len(self.rows) else ""
            lines.append(f"{diverged} of {len(self.rows)} runs diverged{remedy}")
        if found := _attempt("claims", lambda: claims_of.findings({"": self.claims}), errors):
            title = f"# Claims of {self.experiment.name}, {self.preset}, {self.corpus}"
            files["claims.md"] = f"{title}\n\n{claims_of.table(found)}\n{claims_of.measurements(found)}".encode()
            lines += [f"{c.verdict}: {c.sentence}: {c.measured}" for c in self.claims if c.verdict != NOT_TESTED][:1]
        return files, "\n".join(filter(None, lines)), errors

    def page(self) -> str:
        """The figure, the claims and the runs as one HTML file that loads nothing."""
        import pandas as pd

        errors: list[str] = []

        def image() -> str:
            data = base64.b64encode(figure_style.drawn(self.figure(), ".svg")).decode()
            return f'<p><img alt="figure" src="data:image/svg+xml;base64,{data}"></p>'

        def claims() -> str:
            head, cells = claims_of.cells(claims_of.findings({"": self.claims}))
            return (
                pd.DataFrame(cells, columns=head).to_html(index=False).replace(escape(claims_of.LINE), claims_of.LINE)
            )

        def runs() -> str:
            return self.runs().to_html(index=False, na_rep="–", float_format="{:.6g}".format)

        parts = {"figure": image, "claims": claims, "runs": runs} if self.rows else {}
        with pd.option_context("display.max_colwidth", None):  # to_html would shorten long texts
            made = [
                f"<h2>{name.capitalize()}</h2>\n{_attempt(name, part, errors) or ''}" for name, part in parts.items()
            ]
        return PAGE.format(
            title=escape(f"{self.experiment.name}, {self.preset}, {self.corpus}"),
            question=escape(self.experiment.question),
            count=f"{len(self.rows)} of {self.planned} runs have a record.",
            results="\n".join([*(f"<p>{escape(error)}</p>" for error in errors), *made]),
        )


def _attempt(name: str, function: Callable[[], Any], errors: list[str]) -> Any:
    """The function's value; None if it fails. A line with the error and its place is then appended to `errors`."""
    try:
        return function()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = ([f for f in frames if "site-packages" not in f.filename] or frames)[-1]  # not inside of a library
        place = "" if isinstance(error, InputError) else f" ({where.filename}:{where.lineno})"
        message = " ".join(f"{type(error).__name__}: {error}".split())
        errors.append(f"no {name}: {message}{place}")
        return None
