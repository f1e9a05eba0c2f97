"""Tables, figures and claims from records; and the committed results, which fill README and docs."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import experiments
import lvp.parametrization.evidence
from experiments.common.adaptive_comparison import RateCurves, adaptive_table
from experiments.width_vocab.replay import replay_table
from experiments.width_vocab.token_rows import token_rows_table
from lvp.analysis import claims as claims_of
from lvp.analysis import figure_style
from lvp.errors import InputError, unknown
from lvp.files import ABSENT, write_whole
from lvp.training import records
from sweeps.driver import working_copy
from sweeps.driver.manifest import Manifest, corpus_name, lane_configs
from sweeps.reporting import front_page, gallery, page

DESCRIPTION, RECORDS = "sweep.json", "records.jsonl.gz"  # the two files of a published result
REMEDY = "restore it (`git restore`), or publish its sweep again (`python -m sweeps publish DIR`)"
COMMITTED = Path(experiments.__file__).parent / "results"
README = Path(experiments.__file__).parents[1] / "README.md"
REPORT = README.parent / "docs" / "claims.md"
GALLERY = README.parent / "docs" / "gallery.md"
EVIDENCE = Path(lvp.parametrization.evidence.__file__).parent / lvp.parametrization.evidence.NAME
HEADLINE = "width_vocab/laptop-wikitext2"  # the result that the README's figure shows
HEADLINE_EVIDENCE = "laptop-wikitext2"  # the result of `leaderboard` in README
REPORT_HEAD = """# Claims of the papers, as measured here

`python -m sweeps report` writes this page from the records in `experiments/results/`. Each verdict follows from a 95 %
interval. [Statistics](statistics.md#verdicts) defines the four verdicts. A core minute is a minute of training on one
CPU core or accelerator.
"""


def draw(manifest: Manifest, say: Callable):
    """Writes table.csv, figure.png and figure.svg of the finished lanes, and returns the table.

    Args:
      say: receives lines: the summary, the claims and the paths.
    """
    rows = manifest.read_records()
    if not rows:
        say("no lane has finished: nothing to draw")
        return records.table([])
    experiment, config = manifest.resolved
    table = records.table(rows)
    write_whole(manifest.out / "table.csv", table.to_csv(index=False))
    partial = None if len(rows) == manifest.num_lanes else (len(rows), manifest.num_lanes)
    figure = experiment.figure(table, config, tier=manifest.tier, corpus=corpus_name(config.corpus), partial=partial)
    figure_style.save(figure, manifest.out / "figure")
    say("", experiment.summary(table, config), "")
    if partial:
        say(f"PARTIAL: {partial[0]} of {partial[1]} lanes have finished")
    for claim in experiment.claims(table, config, _context(manifest.experiment, manifest.tier, config, rows)):
        say(f"{claim.verdict}: {claim.sentence}" + (f" ({claim.note})" if claim.note else ""))
    say(f"table:  {manifest.location}/table.csv", f"figure: {manifest.location}/figure.png (and .svg)")
    return table


def _context(experiment: str, tier: str, config, rows) -> dict[str, Any]:
    return {"experiment": experiment, "tier": tier, "corpus": corpus_name(config.corpus), "commit": _commits(rows)}


def _commits(rows) -> str:
    return ", ".join(sorted({str(row["provenance"]["commit"]) for row in rows}))


def sweep_page(manifest: Manifest) -> str:
    """An HTML page with the present results of a sweep: figure, summary, claims, the curves of all lanes that have
    begun, and a table of the lanes with records."""
    experiment, config = manifest.resolved
    rows, corpus = manifest.read_records(), corpus_name(config.corpus)
    recorded = {row["hash"] for row in rows}
    curves = (
        (entry, lane, manifest.read_curve(lane))
        for entry in manifest.cells
        for lane in entry.lanes
        if lane not in recorded
    )
    running = [
        {"config": next(lane_configs(entry.cell, [entry.lanes[lane]], entry.dataset)), "outcome": curve["outcome"]}
        for entry, lane, curve in curves
        if curve is not None
    ]
    origin = f"{len(rows)} of {manifest.num_lanes} lanes have a record, and {len(running)} others have begun."
    name = f"{manifest.experiment}, tier {manifest.tier}, corpus {corpus}"
    drawn: dict[str, Any] = {"summary": "", "claims": (), "figure": None}
    if rows:
        table = records.table(rows)
        partial = None if len(rows) == manifest.num_lanes else (len(rows), manifest.num_lanes)
        drawn = {
            "summary": experiment.summary(table, config),
            "claims": experiment.claims(table, config, _context(manifest.experiment, manifest.tier, config, rows)),
            "figure": experiment.figure(table, config, tier=manifest.tier, corpus=corpus, partial=partial),
        }
    return page.page(name, [page.Section(name, experiment.question, origin, rows=rows, running=running, **drawn)])


def committed_page() -> str:
    """All committed results as HTML."""
    sections = []
    for result in committed():
        machine = result.sweep.get("machine", ", ".join(result.devices))
        origin = f"{len(result.rows)} lanes, {result.sweep['date']}, on {machine}."
        sections.append(
            page.Section(
                result.name,
                result.experiment.question,
                origin,
                result.summary(),
                result.claims(),
                result.figure(),
                result.rows,
            )
        )
    return page.page("Committed results of lvp", sections)


def publish(out: str | Path, suffix: str = "") -> Path:
    """Copies a finished sweep's configuration and records into `experiments/results/` and returns their directory,
    EXPERIMENT/TIER-CORPUS or EXPERIMENT/TIER-CORPUS-SUFFIX.

    Paths of this machine are not copied. A name and fingerprints identify a corpus.

    Args:
      out: the sweep's directory.
      suffix: a word that keeps the result apart from others of the same experiment, tier and corpus.

    Raises: InputError if a lane has no record, if the experiment is a user's file, or if the suffix is not a word.
    """
    if suffix and not re.fullmatch(r"[A-Za-z0-9]+", suffix):
        raise InputError(f"suffix={suffix!r} must have only letters and digits, such as normalized")
    with working_copy.opened(out) as folder:
        return _publish(Manifest.read(folder), out, suffix)


def _publish(manifest: Manifest, out: str | Path, suffix: str) -> Path:
    if manifest.source is not None:
        raise InputError(f"{out} is a sweep of {manifest.source.path}: only experiments of lvp can be published")
    rows = manifest.read_records()
    if len(rows) < manifest.num_lanes:
        raise InputError(
            f"{out} is not finished: {len(rows)} of {manifest.num_lanes} lanes have a record; `resume` it first"
        )
    ended = max(manifest.record_path(row["hash"]).stat().st_mtime for row in rows)
    _, config = manifest.resolved
    corpus = corpus_name(config.corpus)
    folder = COMMITTED / manifest.experiment / "-".join(filter(None, (manifest.tier, corpus, suffix)))
    content = {
        "experiment": manifest.experiment,
        "tier": manifest.tier,
        "date": time.strftime("%Y-%m-%d", time.gmtime(ended)),  # UTC
        "config": _by_name(manifest.config),
        "sweep": manifest.hash,
        # Other sweeps, whose records were taken with `--reuse`.
        "reused": sorted({row["sweep"] for row in rows} - {manifest.hash}),
        "packing": manifest.packing,
        "machine": _machine(rows, manifest.packing),
        "datasets": {
            label: d and {k: v for k, v in d.items() if not _is_place(v)} | {"spec": corpus}
            for label, d in manifest.datasets.items()
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    records.write(folder / RECORDS, rows)
    described = _with_digests(content, records.content(folder / RECORDS))
    # Written last: `_read` refuses the new records together with an older description.
    write_whole(folder / DESCRIPTION, json.dumps(described, indent=1, sort_keys=True, allow_nan=False) + "\n")
    return folder


def _machine(rows: Sequence[Mapping[str, Any]], packing: Mapping[str, Any] | None) -> str:
    """Returns the number of cores, or the accelerators, that trained the lanes, and the processors. Host names are left
    out."""
    sources = [row["provenance"] for row in rows]
    processors = sorted({s["machine"].partition(":")[0] for s in sources if "machine" in s})  # older records lack it
    if packing and packing["platform"] == "cpu":
        return ", ".join([f"{packing['workers'] * packing['threads']} cores", *processors])
    return ", ".join(sorted({s["device"] for s in sources}) + processors)


def _with_digests(content: Mapping, recorded: bytes) -> dict:
    """The description of a result, with the digest of its records' text and a digest of itself."""
    described = json.loads(records.dumps(content)) | {"records_sha256": hashlib.sha256(recorded).hexdigest()}
    return described | {"digest": records.config_hash(described)}


def _by_name(config: Mapping) -> dict:
    """The configuration with the names of corpora instead of their paths."""
    return dict(config) | {name: corpus_name(config[name]) for name in ("corpus", "scored") if config.get(name)}


def _is_place(value: Any) -> bool:
    return isinstance(value, str) and Path(value).is_absolute()


class Result:
    """A committed result. Its summary, figure and claims are computed from its records.

    Attributes:
      folder: its directory.
      sweep: the content of sweep.json.
      rows: its records.
      experiment: its experiment.
      config: its configuration.
      table: the table of its records (`lvp.training.records.table`).
    """

    def __init__(self, folder: Path, sweep: Mapping, rows: list[dict]):
        self.folder, self.sweep, self.rows = folder, sweep, rows

    @cached_property
    def experiment(self):
        return experiments.load(self.sweep["experiment"])

    @cached_property
    def config(self):
        return experiments.restored(self.experiment, self.sweep["tier"], self.sweep["config"])

    @cached_property
    def table(self):
        return records.table(self.rows)

    @property
    def name(self) -> str:
        return f"{self.sweep['experiment']}/{self.folder.name}"

    @property
    def commit(self) -> str:
        """The commits that trained its lanes."""
        return _commits(self.rows)

    @property
    def devices(self) -> list[str]:
        """The devices that trained its lanes, without repetition."""
        return sorted({row["provenance"]["device"] for row in self.rows})

    def summary(self) -> str:
        return self.experiment.summary(self.table, self.config)

    def claims(self) -> list[claims_of.Claim]:
        context = _context(self.sweep["experiment"], self.sweep["tier"], self.config, self.rows)
        return self.experiment.claims(self.table, self.config, context)

    def figure(self):
        """The experiment's figure, as a matplotlib Figure."""
        origin = {"tier": self.sweep["tier"], "corpus": corpus_name(self.config.corpus)}
        return self.experiment.figure(self.table, self.config, **origin, partial=None)


def committed() -> list[Result]:
    """All committed results, in the order of their names."""
    return [_read(path.parent) for path in sorted(COMMITTED.glob(f"*/*/{DESCRIPTION}"))]


def result(name: str) -> Result:
    """The committed result EXPERIMENT/FOLDER, for example "warmup/laptop-wikitext2". Raises InputError if there is
    none."""
    known = sorted(f"{p.parent.parent.name}/{p.parent.name}" for p in COMMITTED.glob(f"*/*/{DESCRIPTION}"))
    if name not in known:
        raise unknown("committed result", name, known)
    return _read(COMMITTED / name)


def _read(folder: Path) -> Result:
    """The committed result in a directory. Raises InputError if a digest does not match."""
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
    return Result(folder, sweep, records.read(recorded))


def _matches_its_digest(sweep: Mapping) -> bool:
    try:
        return records.config_hash({k: v for k, v in sweep.items() if k != "digest"}) == sweep.get("digest")
    except ValueError:  # a number is infinite or NaN, so there is no digest
        return False


def _json(path: Path) -> Any:
    """The content of a published JSON file. Raises InputError if it cannot be parsed."""
    try:
        return json.loads(path.read_bytes())
    except (*ABSENT, ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}; {REMEDY}") from None


def report(results: Sequence[Result]) -> dict[Path, str]:
    """The texts that are made from the committed records, by path: `docs/claims.md`, `docs/gallery.md`, the evidence of
    `lvp.parametrization`, README and the other pages of docs. In README and docs, the text between `<!-- results
    NAME -->` and `<!-- end -->` is replaced."""
    all_claims, sections, blocks, evidence, shown = [], [], {}, {}, []
    headline: Result | None = None
    readings = []
    curves: list[tuple[str, RateCurves]] = []
    for result in results:
        claims, name, sweep = result.claims(), result.name, result.sweep
        headline = result if name == HEADLINE else headline
        if result.experiment.name == HEADLINE.partition("/")[0]:
            readings.append((result.table, result.config))
        if result.experiment.rate_curves is not None:
            curves += [(name, each) for each in result.experiment.rate_curves(result.table, result.config)]
        summary = f"```\n{result.summary()}\n```"
        earlier = sum(row["sweep"] != sweep["sweep"] for row in result.rows)
        reused = f" (earlier sweeps trained {earlier} of them)" if earlier else ""
        provenance = (
            f"{len(result.rows)} lanes{reused}, {gallery.training_minutes(result.rows):.1f} minutes of training on one "
            f"core or accelerator ({', '.join(result.devices)}). Commit {result.commit}."
        )
        sections.append(f"## {name}\n\n{provenance}\n\n{summary}\n")
        blocks[name] = summary + "\n\n" + "\n".join(f"- **{c.verdict}**: {c.sentence}" for c in claims)
        all_claims += claims
        shown.append(gallery.Shown(result.folder, sweep, result.rows, result.experiment, claims))
        if result.experiment.evidence is not None:
            origin = {"tier": sweep["tier"], "corpus": sweep["config"]["corpus"], "commit": result.commit}
            evidence[result.folder.name] = origin | result.experiment.evidence(result.table, result.config)
    for path in sorted(COMMITTED.glob("benchmarks/*.json")):
        blocks[f"benchmarks/{path.stem}"] = _benchmark(_json(path))
    pages = [README, *sorted(set(REPORT.parent.glob("*.md")) - {REPORT, GALLERY})]
    if HEADLINE_EVIDENCE in evidence:
        blocks["transfer"] = front_page.transfer(evidence[HEADLINE_EVIDENCE])
    if headline is not None:
        blocks["replay"] = replay_table(headline.table, headline.config)
        corpus = headline.config.corpus
        blocks["headline"] = front_page.headline([each for each in readings if each[1].corpus == corpus])
    blocks["token-rows"] = token_rows_table(readings)
    if curves:
        blocks["adaptive"] = adaptive_table(curves)
    at_laptop = {r.experiment.name: (r.table, r.config) for r in results if r.folder.name == "laptop-wikitext2"}
    blocks["published"] = front_page.published_rates(front_page.our_rates(at_laptop))
    accelerators = [_json(path) for path in sorted(COMMITTED.glob("accelerator/*.json"))]
    blocks["accelerator"], blocks["status"] = (
        front_page.accelerators(accelerators),
        front_page.status(shown, accelerators),
    )
    blocks["faults"] = _faults([_json(path) for path in sorted(COMMITTED.glob("faults/*.json"))])
    filled = {path: _fill(path.read_text(), blocks) for path in pages}
    filled[EVIDENCE] = json.dumps(evidence, indent=1, sort_keys=True, allow_nan=False) + "\n"
    filled[GALLERY] = gallery.page(shown, GALLERY.parent)
    tables = [front_page.results_table(shown), claims_of.table(claims_of.merged(all_claims))]
    return filled | {REPORT: "\n".join([REPORT_HEAD, "\n\n".join(tables), "", *sections])}


def _faults(faults: list[Mapping]) -> str:
    """The faults that the slow tests have injected, and their results, as a table."""
    rows = [("fault", "times", "lanes lost", "repeated", "with wrong bits"), ("---", "---:", "---:", "---:", "---:")]
    rows += [(f["fault"], *(str(f[k]) for k in ("injected", "lost", "repeated", "wrong_bits"))) for f in faults]
    commits = ", ".join(sorted({f["commit"] for f in faults}))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + f"\n\nCommit {commits}."


def _benchmark(content: Mapping) -> str:
    head = content["head"]
    rows = [head, ("---", *["---:"] * (len(head) - 1)), *content["rows"]]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    packages = ("jax", "torch", "libtpu", "tokamax")
    versions = ", ".join(f"{k} {content['versions'][k]}" for k in packages if k in content["versions"])
    rounds = f"Rounds: {content['rounds']}; " if content["rounds"] else ""
    return f"{table}\n\n{rounds}{content['machine']}, {versions}, commit {content['commit']}."


def _fill(text: str, blocks: Mapping[str, str]) -> str:
    """`text` with the content of each `<!-- results NAME --> … <!-- end -->` replaced by the block NAME."""
    for name, block in blocks.items():
        pattern = rf"(<!-- results {re.escape(name)} -->\n).*?(<!-- end -->)"
        escaped = block.replace("\\", r"\\")
        text = re.sub(pattern, rf"\g<1>{escaped}\n\g<2>", text, flags=re.DOTALL)
    return text


def write_report() -> str:
    """Writes the texts of `report`, redraws the committed figures that differ from their records, and returns the text
    of docs/claims.md."""
    results = committed()
    for result in results:
        figure = result.figure()
        if not figure_style.same_picture(figure, result.folder / "figure"):
            figure_style.save(figure, result.folder / "figure")
    texts = report(results)
    for path, text in texts.items():
        write_whole(path, text)
    return texts[REPORT]
