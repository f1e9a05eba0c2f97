"""A sweep with a calculation and a trained cell: packing, run, resume and report."""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest

import experiments
import sweeps
from experiments.common.experiment import Calculation, CellLanes, Experiment
from lvp.analysis.claims import Claim
from lvp.analysis.figure_style import sheet
from lvp.models.configs import DecoderConfig
from lvp.roles import ROLES
from lvp.training import Cell, DataConfig, Lane
from sweeps.driver import api, packing
from sweeps.driver.manifest import Manifest
from sweeps.driver.options import Options
from sweeps.reporting import results
from sweeps.worker.worker import Settings
from tests.sweeps.running import outcomes


@dataclass(frozen=True)
class Config:
    corpus: str = "zipf:1"
    steps: int = 6


def cells(config):
    """A calculation and a trained cell. The calculation is first and has more FLOPs, but must not be measured."""
    model = DecoderConfig(vocab=40, width=8, layers=1, context=12, head_dim=8)
    trained = Cell(model, DataConfig(config.corpus, 4000, 800), batch=2, steps=config.steps)
    lanes = [Lane(dict.fromkeys(ROLES, rate), dict.fromkeys(ROLES, 0.3), 0) for rate in (0.01, 0.03, 0.1)]
    sums = Calculation({"to": 3.0}, 1e15)
    return [CellLanes("sums", sums, [{"add": i} for i in range(4)]), CellLanes("runs", trained, lanes)]


def claims(table, config, context):
    total = table["sum"].sum()  # rows of trained lanes have no sum
    shared = {"source": "arithmetic", "paper_value": 18.0, "interval": (total, total)} | dict(context)
    return [Claim(statement="the sums add up", value=total, verdict="supported", **shared)]


MIXED = Experiment(
    name="mixed",
    question="do both kinds run side by side?",
    tiers={"smoke": Config()},
    cells=cells,
    summary=lambda table, config: f"{table['sum'].count()} sums, {table['train_loss'].count()} losses",
    figure=lambda table, config, **about: sheet([], title="mixed", **about),
    claims=claims,
    calculate=lambda arguments, lane, dataset: {"sum": arguments["to"] + lane["add"], "blind": dataset is None},
)


@pytest.fixture
def mixed(cache, monkeypatch):
    """Options for workers in this process, where the experiment is defined, with three lanes per program."""
    monkeypatch.setattr(experiments, "load", lambda name, *_: MIXED)
    monkeypatch.setattr(api, "_holds_accelerator", lambda: "gpu")
    monkeypatch.setenv("LVP_CACHE", str(cache))
    return Options(executor="local", pack=3)


@pytest.mark.slow
def test_a_mixed_sweep_runs_resumes_and_reports(mixed, monkeypatch, tmp_path, capsys):
    out = tmp_path / "out"
    table = sweeps.run("mixed", "smoke", out=out, options=mixed)
    assert "4 sums, 3 losses" in capsys.readouterr().out and (out / "figure.png").exists()
    assert sorted(table["sum"].dropna()) == [3, 4, 5, 6] and table["blind"].dropna().all()
    manifest, before = Manifest.read(out), outcomes(out)
    assert manifest.packing["lanes_per_program"] == {"sums": 1, "runs": 3}
    assert {label: d is None for label, d in manifest.datasets.items()} == {"sums": True, "runs": False}
    assert all(table.loc[table["sum"].isna(), c].notna().all() for c in ("train_loss", "valid_loss", "lane.seed"))
    assert "7 of 7 lanes" in api.status(out)

    # A record of each kind is lost, and another record is damaged. These three lanes are run again, with the same bits.
    first, second = manifest.cells
    for lane in (list(first.lanes)[1], list(second.lanes)[2]):
        manifest.record_path(lane).unlink()
    damaged = manifest.record_path(list(second.lanes)[0])
    damaged.write_bytes(damaged.read_bytes()[:200])
    kept = {path: path.stat().st_mtime_ns for path in (out / "records").iterdir() if path != damaged}
    sweeps.resume(out, options=mixed, quiet=True)
    assert damaged.with_suffix(".damaged").exists()
    assert outcomes(out) == before and len(kept) == 4
    assert {path: path.stat().st_mtime_ns for path in kept} == kept

    monkeypatch.setattr(results, "COMMITTED", tmp_path / "results")
    folder = results.publish(out)
    assert folder.name == "smoke-zipf"
    text = results.report(results.committed())[results.REPORT]
    assert "| mixed | the sums add up | arithmetic | 18 | 18 [18, 18] | supported |" in text
    assert "## mixed/smoke-zipf" in text and "7 lanes, " in text


def test_only_trained_cells_with_lanes_are_measured():
    """Threads are measured on a CPU, lanes per program on an accelerator."""
    asked, said = [], []

    def probe(platform, cores):
        def answer(settings, calls, workers=1):
            asked.extend(c for c in calls if c[0] == "measure")
            hello = {"platform": platform, "device_kind": "any"}
            return [[hello if c[0] == "hello" else {p: float(p) for p in c[2][:3]} for c in calls]] * workers

        return SimpleNamespace(probe=answer, accelerators=lambda: 1, cores=lambda: cores)

    def pack(platform, planned, cores=(2,), **options):
        options = Options(**options)
        asked.clear()
        said.clear()
        manifest = SimpleNamespace(cells=planned)
        return packing.measured(manifest, probe(platform, cores), options, Settings(), said.append)

    planned = cells(Config())
    on_gpu = pack("gpu", planned)
    assert on_gpu["lanes_per_program"] == {"sums": 1, "runs": 4}
    assert asked == [("measure", 1, packing.ACCELERATOR_PACKS)]
    assert set(on_gpu["measured"]) == {"runs"}
    assert pack("gpu", planned, pack=2)["lanes_per_program"] == {"sums": 1, "runs": 2} and not asked
    on_cpu = pack("cpu", planned)
    assert on_cpu["lanes_per_program"] == {"sums": 1, "runs": 1} and {c[1] for c in asked} == {1}
    assert set(on_cpu["measured"]) == {"2x1", "1x2"}
    # Three lanes of 6 steps at 2 lane-steps per second. The calculation has no training time.
    assert len(said) == 1 and said[0].endswith("this sweep uses 2 workers of 1 thread: 9 s of training")
    # A cluster of three machines is measured on the cores of the smallest machine.
    on_cluster = pack("cpu", planned, cores=(2, 4, 5))
    assert on_cluster["measured"] == on_cpu["measured"] and on_cluster["workers"] == 11
    assert said[0].endswith("this sweep uses 11 workers of 1 thread: 2 s of training")
    assert pack("cpu", planned, cores=(2, 4, 5), threads=2, ray_address="auto")["workers"] == 5
    # A cell that gets its lanes from results is the most expensive, but it has no lane to measure.
    larger = replace(planned[1].cell, steps=60)
    for platform, measured in (("cpu", {"2x1", "1x2"}), ("gpu", {"runs"})):
        later = pack(platform, [*planned, CellLanes("later", larger, [])])
        assert {c[1] for c in asked} == {1} and set(later["measured"]) == measured
        assert later["lanes_per_program"]["later"] == 1
        assert pack(platform, [*planned, CellLanes("later", larger, [])], pack=2)["lanes_per_program"]["later"] == 2
    for platform in ("cpu", "gpu"):  # a calculation alone is not measured
        assert pack(platform, planned[:1])["lanes_per_program"] == {"sums": 1} and not asked
