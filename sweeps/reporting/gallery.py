"""The gallery: all committed figures, each with its question, command, origin and claims."""

import math
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import experiments
from experiments.common.experiment import Experiment
from lvp.analysis.claims import Claim

HEAD = """# Gallery

`python -m sweeps report` writes this page from the records in `experiments/results/`. The page shows the figures of the
papers as this project has drawn them. Each entry names its tier and the command that runs the sweep and draws the
figure. [claims.md](claims.md) lists all claims with their values and intervals. A core minute is a minute of training
on one CPU core or accelerator.
"""


class Shown(NamedTuple):
    """A committed result: its folder, sweep.json, records, experiment and claims."""

    folder: Path
    sweep: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    experiment: Experiment
    claims: Sequence[Claim]


def page(shown: Sequence[Shown], place: Path) -> str:
    """The gallery as Markdown, for a file in the directory `place`. Each paper has a section, which begins with the
    results that reproduce figures."""
    known = [experiments.load(name) for name in experiments.NAMES]
    parts = [HEAD]
    for paper in dict.fromkeys([*(e.paper for e in known), *(s.experiment.paper for s in shown)]):
        results = [s for s in shown if s.experiment.paper == paper]
        if paper or results:
            parts.append(f"## {paper or 'Without a paper'}\n")
        parts += [_entry(s, place) for s in sorted(results, key=lambda s: (_order(s.experiment.answers), s.folder))]
    parts.append("## Not drawn\n")
    have = {s.experiment.name for s in shown}
    for e in known:
        missing = dict(e.undrawn) | ({} if e.name in have else dict.fromkeys(e.answers, "no result is committed"))
        parts += [f"- {e.paper}, {what} (`{e.name}`): {why}" for what, why in missing.items()]
    return "\n".join(parts) + "\n"


def _order(answers: Sequence[str]) -> tuple[bool, str]:
    first = next(iter(answers), "")
    return not first.startswith("figure"), first


def _entry(s: Shown, place: Path) -> str:
    folder, name = Path(os.path.relpath(s.folder, place)).as_posix(), s.experiment.name
    heading = f"{name}, " if not s.experiment.answers else f"{_capital(listed(s.experiment.answers))}: {name}, "
    where = f"tier {s.sweep['tier']}, corpus {s.sweep['config']['corpus']}"
    lines = [
        f"### {heading}{where}\n",
        f"{_capital(s.experiment.question)}\n",
        f"![{name}, {where}]({folder}/figure.png)\n",
        f"```sh\n{command(s.sweep)}\n```\n",
        f"{_made(s)}; [as vectors]({folder}/figure.svg), [records]({folder}/records.jsonl.gz).\n",
        *(f"- **{c.verdict}**: {c.sentence}" for c in s.claims),
    ]
    return "\n".join(lines) + "\n"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def listed(words: Sequence[str]) -> str:
    """The words in one phrase: "figure 1", "figure 2" and "theorem 2" give "figures 1 and 2, theorem 2"."""
    kinds: dict[str, list[str]] = {}
    for word in words:
        kind, _, number = word.rpartition(" ")
        kinds.setdefault(kind if number.isdecimal() else word, []).append(number)
    phrases = []
    for kind, numbers in kinds.items():
        if kind in words:
            phrases.append(kind)
        else:
            *first, last = numbers
            phrases.append(f"{kind}s {', '.join(first)} and {last}" if first else f"{kind} {last}")
    return ", ".join(phrases)


def command(sweep: Mapping[str, Any]) -> str:
    """The `python -m sweeps run` command of a sweep's configuration."""
    experiment = experiments.load(sweep["experiment"])
    tier = experiments.configured(experiment, sweep["tier"])
    config = experiments.to_dict(experiments.restored(experiment, sweep["tier"], sweep["config"]), tier)
    base = experiments.to_dict(tier)
    changed = {key: value for key, value in config.items() if value != base.get(key)}
    words = ["python", "-m", "sweeps", "run", sweep["experiment"], "--tier", sweep["tier"]]
    if "corpus" in changed:
        words += ["--corpus", changed.pop("corpus")]
    if changed:
        words += ["--set", *(f"{key}={_text(value)}" for key, value in changed.items())]
    return shlex.join(words)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(f'"{text}"' if "," in text else text for text in map(_text, value))
    return "none" if value is None else str(value)


def training_minutes(rows: Sequence[Mapping[str, Any]]) -> float:
    """The time of training that one CPU core or one accelerator would need, from the records in `rows`."""
    sources = [row["provenance"] for row in rows]
    devices = [p["threads"] if p["platform"] == "cpu" else math.prod((p.get("mesh") or {}).values()) for p in sources]
    return sum(p["seconds"] * n / p["pack"] for p, n in zip(sources, devices, strict=True)) / 60


def workers(s: Shown) -> str:
    """The number of workers as text, with a comma before it; empty if all lanes were taken from other sweeps."""
    return f", {packing['workers']} workers" if (packing := s.sweep["packing"]) else ""


def _made(s: Shown) -> str:
    """Date, commit, device and training time of a sweep, as text."""
    sources = [row["provenance"] for row in s.rows]
    commits, devices = (sorted({p[key] or "unknown" for p in sources}) for key in ("commit", "device"))
    where = s.sweep.get("machine", ", ".join(devices))  # older results do not name the processor
    minutes = f"{training_minutes(s.rows):.1f} core minutes"
    return f"{s.sweep['date']}, commit {', '.join(commits)}, on {where}{workers(s)}, {minutes}"
