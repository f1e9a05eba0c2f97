"""The bits of a run do not depend on the executor, on an interrupt or on the runs before it. Another pack size gives
the same losses within a tolerance."""

import numpy as np
import pytest

from lvp.files import checkpoints
from lvp.training import records
from tests.sweeps.running import LOCAL, outcomes

RUN = ("run", "width_vocab", "--preset", "smoke")
TOLERANCE = 1e-4  # relative, of a loss


def losses(out):
    """Run → losses of its steps. A calculation has none."""
    curves = {run: outcome.get("curve_losses") for run, outcome in outcomes(out).items()}
    return {run: np.array(curve, float) for run, curve in curves.items() if curve}


def resumed_at(out):
    """The steps from which the trained runs were resumed."""
    rows = {row["hash"]: row["provenance"] for row in records.read(out / "records")}
    return {run: provenance["resumed_at_step"] for run, provenance in rows.items() if "resumed_at_step" in provenance}


def test_interrupted_and_resumed_gives_the_same_bits(small, interrupted, tmp_path):
    out = tmp_path / "out"
    small.run(tmp_path / "whole")
    message = interrupted(lambda: small.run(out))
    again = f"python -m lvp.sweeps resume {out} --executor inline --experiment {small.path}"
    assert message == f"interrupted; `{again}` continues from here"
    (begun,) = (out / "checkpoints").iterdir()
    assert checkpoints.steps(begun) and losses(out) == {}
    small.resume(out)
    assert outcomes(out) == outcomes(tmp_path / "whole") and len(losses(out)) == 3
    first = resumed_at(out)
    assert first.pop(begun.name) > 0 and set(first.values()) == {0}  # control: a checkpoint was used
    assert not list(out.glob("checkpoints/*/*"))  # they go when their run has a record


@pytest.mark.slow
def test_another_pack_size_gives_the_same_losses(small, tmp_path):
    """Three runs in packs of two: the second pack repeats its run. Larger rates amplify the rounding within the run."""
    rates = {"rates": (0.003, 0.01, 0.03)}
    small.run(tmp_path / "one", **rates)
    small.run(tmp_path / "two", pack=2, **rates)
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert one.keys() == two.keys() and len(one) == 3
    for run, expected in one.items():
        np.testing.assert_allclose(two[run], expected, rtol=TOLERANCE)
        assert all(np.abs(one[other] - expected).max() > 0.01 for other in one if other != run)  # runs differ by more


@pytest.mark.slow
def test_a_diverged_run_does_not_change_its_pack(small, tmp_path):
    """The packs of two sweeps differ in one run, which diverges in one of them."""
    small.run(tmp_path / "sound", rates="0.01,0.1,0.03", pack=3)
    table = small.run(tmp_path / "other", rates="0.01,9e15,0.03", pack=3)
    sound, other = outcomes(tmp_path / "sound"), outcomes(tmp_path / "other")
    shared = sound.keys() & other.keys()
    assert len(shared) == 3 and all(other[run] == sound[run] for run in shared)  # two runs and the calculation
    (diverged,) = (outcome for run, outcome in other.items() if run not in shared)
    assert diverged["status"] == "diverged" and diverged["diverged_step"] < 60
    assert {outcome["status"] for outcome in sound.values()} == {"finished"} and len(table) == 4


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["ray", "inline"])
def test_executors_give_the_same_bits(finished, command, tmp_path, executor):
    """Three of the runs of the sweep under the local executor. XLA divides no product of this size among threads."""
    words = (*RUN, "--executor", executor, "--threads", "1", "--out", tmp_path / "out")
    process = command(*words, widths="16", seeds="0")
    assert process.returncode == 0, process.stderr
    ours = outcomes(tmp_path / "out")
    assert len(ours) == 3 and ours.items() <= outcomes(finished[0]).items()


@pytest.mark.slow
def test_bits_do_not_depend_on_order_or_on_earlier_runs(finished, command, tmp_path):
    """A worker trains all runs in another order. A new worker trains the last runs without the others."""
    done = command(*RUN, "--executor", "local", "--threads", "2", "--out", tmp_path / "one", rates="0.1,0.03,0.01")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "one" / "logs").iterdir())) == 1
    assert outcomes(tmp_path / "one") == outcomes(finished[0])
    done = command(*RUN, *LOCAL, "--out", tmp_path / "last", rates="0.01,0.03,0.1", widths="24", seeds="1")
    assert done.returncode == 0, done.stderr
    ours = outcomes(tmp_path / "last")
    assert len(ours) == 3 and ours.items() <= outcomes(finished[0]).items()
