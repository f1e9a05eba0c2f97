"""The committed results in `experiments/results`, and the figures, pages and blocks of docs made from them."""

import hashlib
import json
import math
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from lvp import experiments
from lvp.analysis import claims as claims_of
from lvp.analysis import figure_style, markdown
from lvp.analysis.claims import Claim, Finding
from lvp.errors import InputError, unknown
from lvp.experiments.common.adaptive_comparison import RateCurves, adaptive_table
from lvp.files import ABSENT, write_whole
from lvp.parametrization import evidence
from lvp.sweeps.report import Report
from lvp.training import records

DESCRIPTION, RECORDS = "sweep.json", "records.jsonl.gz"  # the two files of a published result
MISSING = "no value was measured"
MARKER = r"<!-- results (\S+) -->"  # the beginning of a block in README or docs
REMEDY = "restore it (`git restore`), or publish its sweep again (`python -m lvp.sweeps publish DIR`)"
COMMITTED = Path(experiments.__file__).resolve().parent / "results"
README = COMMITTED.parents[1] / "README.md"


@dataclass(frozen=True)
class Result(Report):
    """A committed result. Its summary, figure and claims are computed from its records."""

    folder: Path
    sweep: Mapping[str, Any]  # the content of sweep.json

    @property
    def name(self) -> str:
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def devices(self) -> str:
        """The devices that trained its runs."""
        return ", ".join(sorted({row["provenance"]["device"] for row in self.rows}))

    @property
    def machine(self) -> str:
        """The machine and the number of workers; no number if all runs were taken from other sweeps."""
        workers = f", {packing['workers']} workers" if (packing := self.sweep["packing"]) else ""
        return self.sweep.get("machine", self.devices) + workers  # older results do not name the machine

    @cached_property
    def evidence(self) -> dict[str, Any]:
        """The result of the experiment's `evidence`, with its origin. Empty if the experiment has no evidence."""
        if self.experiment.evidence is None:
            return {}
        origin = {"tier": self.preset, "corpus": self.corpus, "commit": self.commit}
        return origin | dict(self.experiment.evidence(self.table, self.config))


def publish(sweep: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], suffix: str = "") -> Path:
    """Writes a finished sweep into `experiments/results/` and returns its directory.

    The directory is EXPERIMENT/PRESET-CORPUS or EXPERIMENT/PRESET-CORPUS-SUFFIX. Paths of this machine are not written.
    A name and fingerprints identify a corpus.

    Args:
      sweep: `experiment` (name), `tier` (preset), `date` of the last record (UTC, YYYY-MM-DD), `config` (JSON), `hash`,
        `packing` (None if all runs were taken from other sweeps) and `datasets` (label → JSON or None). Other keys are
        not written.
      rows: the records of its runs.
      suffix: a word that keeps the result apart from others of the same experiment, preset and corpus.

    Raises:
      InputError: this lvp is not a clone, or the suffix has characters other than letters and digits.
    """
    _check_clone()
    if suffix and not re.fullmatch(r"[A-Za-z0-9]+", suffix):
        raise InputError(f"suffix={suffix!r} must have only letters and digits, such as normalized")
    corpora = {name: spec.partition(":")[0] for name in ("corpus", "scored") if (spec := sweep["config"].get(name))}
    folder = COMMITTED / sweep["experiment"] / "-".join(filter(None, (sweep["tier"], corpora["corpus"], suffix)))
    content = {key: sweep[key] for key in ("experiment", "tier", "date", "packing")} | {
        "config": {**sweep["config"], **corpora},
        "sweep": sweep["hash"],
        "reused": sorted({row["sweep"] for row in rows} - {sweep["hash"]}),  # sweeps that trained some of the runs
        "machine": machine(rows, sweep["packing"]),
        "datasets": {
            label: d and {k: v for k, v in d.items() if not _is_place(v)} | {"spec": corpora["corpus"]}
            for label, d in sweep["datasets"].items()
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    records.write(folder / RECORDS, rows)
    # Written last: `read` refuses the new records together with an older description.
    write_whole(folder / DESCRIPTION, described(content, records.content(folder / RECORDS)))
    return folder


def machine(rows: Sequence[Mapping[str, Any]], packing: Mapping[str, Any] | None) -> str:
    """The number of cores, or the accelerators, that trained the runs, and the processors. Host names are left out."""
    sources = [row["provenance"] for row in rows]
    processors = sorted({s["machine"].partition(":")[0] for s in sources if "machine" in s})  # older records lack it
    if packing and packing["platform"] == "cpu":
        return ", ".join([f"{packing['workers'] * packing['threads']} cores", *processors])
    return ", ".join(sorted({s["device"] for s in sources}) + processors)


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and Path(value).is_absolute()


def described(content: Mapping[str, Any], recorded: bytes) -> str:
    """The text of sweep.json: its content with the digest of the records' text and a digest of itself."""
    whole = json.loads(records.dumps(content)) | {"records_sha256": hashlib.sha256(recorded).hexdigest()}
    return _indented(whole | {"digest": records.config_hash(whole)})


def _indented(content: Any) -> str:
    return json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n"


def committed() -> list[Result]:
    """All committed results, in the order of their names."""
    return [read(path.parent) for path in sorted(COMMITTED.glob(f"*/*/{DESCRIPTION}"))]


def result(name: str) -> Result:
    """The committed result EXPERIMENT/FOLDER, for example "warmup/laptop-wikitext2".

    Raises:
      InputError: there is no such result, or its files cannot be used.
    """
    known = sorted(f"{p.parent.parent.name}/{p.parent.name}" for p in COMMITTED.glob(f"*/*/{DESCRIPTION}"))
    if name not in known:
        raise unknown("committed result", name, known)
    return read(COMMITTED / name)


def read(folder: Path) -> Result:
    """The committed result in a directory.

    Raises:
      InputError: a file cannot be read, or does not match its digest.
    """
    description, recorded = folder / DESCRIPTION, folder / RECORDS
    sweep = _json(description)
    if not isinstance(sweep, dict) or not _matches_its_digest(sweep):
        raise InputError(f"{description} does not match its digest; {REMEDY}")
    try:
        matches = hashlib.sha256(records.content(recorded)).hexdigest() == sweep.get("records_sha256")
    except InputError:
        matches = False
    if not matches:
        raise InputError(f"{recorded} does not match its digest in {description}; {REMEDY}")
    rows, experiment = records.read(recorded), experiments.load(sweep["experiment"])
    config = experiments.restored(experiment, sweep["tier"], sweep["config"])
    return Result(experiment, config, sweep["tier"], rows, len(rows), folder, sweep)


def _matches_its_digest(sweep: Mapping) -> bool:
    try:
        return records.config_hash({k: v for k, v in sweep.items() if k != "digest"}) == sweep.get("digest")
    except ValueError:  # a number is infinite or NaN, so there is no digest
        return False


def _json(path: Path) -> Any:
    """The content of a published JSON file.

    Raises:
      InputError: the file is missing or is not JSON.
    """
    try:
        return json.loads(path.read_bytes())
    except (*ABSENT, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}; {REMEDY}") from None


def _check_clone() -> None:
    if not README.is_file():
        raise InputError(f"{COMMITTED.parent} is not in a clone of the repository, which has the committed results")


def write_report() -> Path:
    """Writes the files of `texts`, redraws figures, and returns the path of docs/claims.md.

    Only committed figures that differ from their records are redrawn.

    Raises:
      InputError: this lvp is not a clone, or a result cannot be read.
    """
    _check_clone()
    results = committed()
    for each in results:
        figure = each.figure()
        if not figure_style.same_picture(figure, each.folder / "figure"):
            figure_style.save(figure, each.folder / "figure")
    made = texts(results)
    for path, text in made.items():
        write_whole(path, text)
    return README.parent / "docs" / "claims.md"


def texts(results: Sequence[Result]) -> dict[Path, str]:
    """The texts that are made from the committed records, by path.

    They are evidence.json, README and the pages of docs. In the pages, the text between `<!-- results NAME -->` and
    `<!-- end -->` is replaced by the block NAME.
    """
    docs = README.parent / "docs"
    pages = {path: path.read_text(encoding="utf-8") for path in (README, *docs.glob("*.md"))}
    shown = {name: path.name for path, text in pages.items() for name in re.findall(MARKER, text)}
    listed = {"claims": "\n".join(_claims(results, shown)), "gallery": gallery(results, docs, shown)}
    content = _blocks(results) | listed
    made = {path: _fill(text, content) for path, text in pages.items()}
    made[COMMITTED / evidence.FILE.name] = _indented({r.folder.name: r.evidence for r in results if r.evidence})
    return made


def _fill(text: str, blocks: Mapping[str, str]) -> str:
    """`text` with the content of each `<!-- results NAME --> … <!-- end -->` replaced by the block NAME."""
    return re.sub(
        rf"({MARKER}\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}{blocks[found[2]]}\n{found[3]}" if found[2] in blocks else found[0],
        text,
        flags=re.DOTALL,
    )


def _blocks(results: Sequence[Result]) -> dict[str, str]:
    """The text of each block: of every result, of their experiments, of other measurements, and of the project."""
    blocks: dict[str, str] = {}
    curves: list[tuple[str, RateCurves]] = []
    for each in results:
        blocks[each.name] = "\n".join([f"```\n{each.summary}\n```\n", *_listed(each)])
        if each.experiment.rate_curves is not None:
            curves += [(each.name, of_group) for of_group in each.experiment.rate_curves(each.table, each.config)]
    if curves:
        blocks["adaptive"] = adaptive_table(curves)
    for experiment in map(experiments.load, experiments.NAMES):
        own = {each.folder.name: each for each in results if each.experiment.name == experiment.name}
        if own and experiment.blocks is not None:
            blocks |= experiment.blocks(own)
    for path in sorted(COMMITTED.glob("benchmarks/*.json")):
        blocks[f"benchmarks/{path.stem}"] = _benchmark(_json(path))
    accelerators = [_json(path) for path in sorted(COMMITTED.glob("accelerator/*.json"))]
    blocks["accelerator"] = _accelerators(accelerators) or "No accelerator has run the command yet."
    if (faults := COMMITTED / "faults.json").exists():
        blocks["faults"] = _faults(_json(faults))
    blocks["status"] = status(results, accelerators)
    return blocks


def _listed(result: Result) -> list[str]:
    """The findings of a result as lines of a list."""
    return [f"- **{found.verdict}**: {found.sentence}" for found in claims_of.findings({"": result.claims})]


def _faults(faults: Sequence[Mapping]) -> str:
    """The faults that the slow tests have injected, and their results, as a table."""
    head = ("fault", "times", "runs lost", "repeated", "with wrong bits")
    rows = [[f[key] for key in ("fault", "injected", "lost", "repeated", "wrong_bits")] for f in faults]
    commits = ", ".join(sorted({f["commit"] for f in faults}))
    return f"{markdown.table(head, rows, align='lrrrr')}\n\nCommit {commits}."


def _accelerators(found: Sequence[Mapping[str, Any]]) -> str:
    """The tables of the parts of `python -m tests.benchmarks.accelerator`, for each card.

    Of several results of a part, the one with the most measured rows is shown, and the last of equals.
    """
    shown: dict[tuple[str, str], tuple[int, Mapping[str, Any]]] = {}
    for each in sorted(found, key=lambda each: each["date"]):
        for name, part in each["parts"].items():
            key, count = (each["device"]["kind"], name), sum("value" in row for row in part["rows"])
            if count >= shown.get(key, (0, each))[0]:
                shown[key] = count, each
    texts = []
    for each in sorted(found, key=lambda each: each["date"], reverse=True):
        head, *sections = each["table"].strip().split("\n\n**")
        own = {name for (_, name), (_, source) in shown.items() if source is each}
        kept = [f"**{section}" for section in sections if section.partition("**")[0] in own]
        texts += [f"{head}.", *kept] * bool(kept)
    return "\n\n".join(texts)


def _benchmark(content: Mapping) -> str:
    table = markdown.table(content["head"], content["rows"], align="l" + "r" * (len(content["head"]) - 1))
    packages = ("jax", "torch", "libtpu", "tokamax")
    versions = ", ".join(f"{k} {content['versions'][k]}" for k in packages if k in content["versions"])
    rounds = f"Rounds: {content['rounds']}; " if content["rounds"] else ""
    return f"{table}\n\n{rounds}{content['machine']}, {versions}, commit {content['commit']}."


def status(results: Sequence[Result], accelerators: Sequence[Mapping[str, Any]]) -> str:
    """A list with the hardware, the extent of the committed results, and the number of each verdict.

    It ends with the experiments and presets without a result.

    Args:
      accelerators: results of `python -m tests.benchmarks.accelerator`.
    """
    rows, found = [row for each in results for row in each.rows], _findings(results)
    names = {each.experiment.name for each in results}
    presets = {preset for name in experiments.NAMES for preset in experiments.load(name).presets} - {"smoke"}
    missing = {"experiments": {*experiments.NAMES} - names, "presets": presets - {each.preset for each in results}}
    without = [f"{kind} {', '.join(f'`{name}`' for name in sorted(of))}" for kind, of in missing.items() if of]
    cards = {each["device"]["kind"]: each["date"] for each in accelerators}
    others = "; ".join(f"{kind} on {date}" for kind, date in cards.items()) or "no accelerator has run a sweep"
    return (
        f"- **Hardware:** two CPU cores; {others} ([accelerators](docs/accelerators.md)). [Clusters](docs/clusters.md) "
        "are experimental.\n"
        f"- **Measured:** {len(names)} of {len(experiments.NAMES)} experiments, {len(rows):,} runs, "
        f"{training_minutes(rows) / 60:.1f} hours of training on one core. Sizes of the Transformers: {_sizes(rows)}.\n"
        f"- **Claims:** of the papers' sentences in their own setting, {_verdicts(f for f in found if not f.ours)}; of "
        f"our results, {_verdicts(f for f in found if f.ours)} ([all claims](docs/claims.md)).\n"
        f"- **Without a committed result:** {'; '.join(without) or 'none'}."
    )


def _findings(results: Sequence[Result]) -> list[Finding]:
    """The findings of all results, experiment by experiment."""
    by_experiment: dict[str, dict[str, Sequence[Claim]]] = {}
    for each in results:
        by_experiment.setdefault(each.experiment.name, {})[each.folder.name] = each.claims
    return [finding for by_place in by_experiment.values() for finding in claims_of.findings(by_place)]


def _verdicts(found: Iterable[Finding]) -> str:
    """The number of findings with each verdict, in words."""
    counts = Counter(finding.verdict for finding in found)
    return ", ".join(f"{counts[v]} {v}" for v in claims_of.FINDING_VERDICTS if counts[v]) or "none"


def _sizes(rows: Iterable[Mapping]) -> str:
    """The ranges of width and vocabulary; "–" if no run has a language model."""
    models = [row["config"]["cell"].get("model", {}) for row in rows]
    ranges = []
    for letter, key in (("d", "width"), ("m", "vocab")):
        if values := [model[key] for model in models if key in model]:
            ranges.append(f"{letter} " + "–".join(dict.fromkeys(map(str, (min(values), max(values))))))
    return ", ".join(ranges) or "–"


def training_minutes(rows: Iterable[Mapping[str, Any]]) -> float:
    """The time of training that one CPU core or one accelerator would need, from the records in `rows`."""
    sources = [row["provenance"] for row in rows]
    devices = [p["threads"] if p["platform"] == "cpu" else math.prod((p.get("mesh") or {}).values()) for p in sources]
    return sum(p["seconds"] * n / p["pack"] for p, n in zip(sources, devices, strict=True)) / 60


def _claims(results: Sequence[Result], shown: Mapping[str, str]) -> list[str]:
    """The parts of docs/claims.md: two tables of findings, how they were measured, and the runs.

    The summaries of the results that no page shows follow.

    Args:
      shown: name of a result → the file in docs that has its block.
    """
    found = _findings(results)
    tested = [each for each in found if any(c.value is not None and not c.reason for c in each.claims.values())]
    papers, ours = ([each for each in tested if each.ours == own] for own in (False, True))
    rows = [*papers, *ours]
    decided = sum(
        c.verdict in ("supported", "contradicted")
        for each in rows
        for c in each.claims.values()
        if c.interval != (c.value, c.value)  # a p-value or a count
    )
    untested: dict[str, list[str]] = {}  # reason → claims
    for claim in (each.first for each in found if each not in tested):
        untested.setdefault(claim.reason or MISSING, []).append(
            f"{claim.full_statement} ({claim.source.removeprefix(f'{claims_of.OUR_RESULT}, ')})"
        )
    parts = [
        f"An interval misses its value once in twenty times. So at most about {0.05 * decided:.0f} of the {decided} "
        "intervals below that decide\nare expected to decide wrongly by chance. Some share their runs, so this is "
        "rough.\n",
        f"## Sentences of the papers\n\n{_verdicts(papers).capitalize()}.\n\n{claims_of.table(papers)}",
        f"## Results of this project\n\n{_verdicts(ours).capitalize()}.\n\n{claims_of.table(ours, len(papers) + 1)}",
        "## Not tested here\n\n"
        + "\n".join(f"- {reason}:\n  - " + "\n  - ".join(of) for reason, of in untested.items())
        + "\n",
        f"## How each row was measured\n\n{claims_of.measurements(rows)}",
        "## Runs\n\nA core minute is a minute of training on one core or accelerator.\n",
        results_table(results, shown) + "\n",
    ]
    for each in results:
        if each.name in shown:
            continue
        earlier = sum(row["sweep"] != each.sweep["sweep"] for row in each.rows)
        reused = f" (earlier sweeps trained {earlier} of them)" if earlier else ""
        origin = (
            f"{len(each.rows)} runs{reused}, {training_minutes(each.rows):.1f} minutes of training on one core or "
            f"accelerator ({each.devices}). Commit {each.commit}."
        )
        parts.append(f"### {each.name}\n\n{origin}\n\n```\n{each.summary}\n```\n")
    return parts


def results_table(results: Sequence[Result], shown: Mapping[str, str]) -> str:
    """A table of the committed results of each experiment and preset, over all corpora: sizes, runs, time, device.

    Args:
      shown: as in `_claims`. The first column links to the summaries.
    """
    by_preset: dict[tuple[str, str], list[Result]] = {}
    for each in results:
        by_preset.setdefault((each.experiment.name, each.preset), []).append(each)
    lines = []
    for (name, preset), alike in by_preset.items():
        places = [shown.get(each.name, f"#{each.name.replace('/', '')}") for each in alike]  # a page, or this page
        names = [each.folder.name.removeprefix(f"{preset}-") for each in alike]
        corpora = ", ".join(f"[{corpus}]({place})" for corpus, place in zip(names, places, strict=True))
        rows = [row for each in alike for row in each.rows]
        devices = "; ".join(sorted({each.machine for each in alike}))
        minutes = f"{training_minutes(rows):.1f}"
        lines.append((f"{name} ({preset}: {corpora})", _sizes(rows), len(rows), minutes, devices))
    head = ["experiment", "sizes", "runs", "core minutes", "device"]
    return markdown.table(head, lines, align="llrrl")


def gallery(results: Sequence[Result], place: Path, shown: Mapping[str, str]) -> str:
    """The gallery as Markdown, for a file in the directory `place`.

    Each paper has a section, which begins with the results that reproduce figures.

    Args:
      shown: as in `_claims`. The other results have their verdicts in the gallery.
    """
    known = [experiments.load(name) for name in experiments.NAMES]
    parts: list[str] = []
    for paper in dict.fromkeys([*(e.paper for e in known), *(each.experiment.paper for each in results)]):
        of_paper = [each for each in results if each.experiment.paper == paper]
        if paper or of_paper:
            parts.append(f"## {paper or 'Without a paper'}\n")
        parts += [_entry(each, place, shown.get(each.name, "")) for each in sorted(of_paper, key=_order)]
    parts.append("## Not drawn\n")
    have = {each.experiment.name for each in results}
    for e in known:
        missing = dict(e.undrawn) | ({} if e.name in have else dict.fromkeys(e.answers, "no result is committed"))
        parts += [f"- {e.paper}, {what} (`{e.name}`): {why}" for what, why in missing.items()]
    return "\n".join(parts) + "\n"


def _order(each: Result) -> tuple[bool, str, Path]:
    first = next(iter(each.experiment.answers), "")
    return not first.startswith("figure"), first, each.folder


def _entry(each: Result, place: Path, page: str) -> str:
    """A result in the gallery: question, figure, command, origin, and verdicts unless a page has them."""
    folder, experiment = Path(os.path.relpath(each.folder, place)).as_posix(), each.experiment
    answers = f"{_capital(', '.join(experiment.answers))}: " if experiment.answers else ""
    where = f"{experiment.name}, preset {each.preset}, corpus {each.corpus}"
    commits = ", ".join(sorted({row["provenance"]["commit"] or "unknown" for row in each.rows}))
    minutes = f"{training_minutes(each.rows):.1f} core minutes"
    origin = f"{each.sweep['date']}, commit {commits}, on {each.machine}, {minutes}"
    lines = [
        f"### {answers}{where}\n",
        f"{_capital(experiment.question)}\n",
        f"![{where}]({folder}/figure.png)\n",
        f"```sh\n{command(each.sweep)}\n```\n",
        f"{origin}; [as vectors]({folder}/figure.svg), [records]({folder}/{RECORDS})"
        + (f", [table and verdicts]({page})." if page else ".\n"),
        *([] if page else _listed(each)),
    ]
    return "\n".join(lines) + "\n"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def command(sweep: Mapping[str, Any]) -> str:
    """The `python -m lvp.sweeps run` command of a sweep's configuration."""
    experiment = experiments.load(sweep["experiment"])
    preset = experiments.configured(experiment, sweep["tier"])
    config = experiments.to_dict(experiments.restored(experiment, sweep["tier"], sweep["config"]), preset)
    base = experiments.to_dict(preset)
    changed = {key: value for key, value in config.items() if value != base.get(key)}
    words = ["python", "-m", "lvp.sweeps", "run", sweep["experiment"], "--preset", sweep["tier"]]
    if "corpus" in changed:
        words += ["--corpus", changed.pop("corpus")]
    if changed:
        words += ["--set", *(f"{records.field_of(key)}={_text(value)}" for key, value in changed.items())]
    return shlex.join(words)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(f'"{text}"' if "," in text else text for text in map(_text, value))
    return "none" if value is None else str(value)
