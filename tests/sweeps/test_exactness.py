"""The bits of a run do not depend on an interrupt or on the process. Another pack size gives the same losses within a
tolerance."""

import numpy as np
import pytest

from lvp.files import checkpoints
from lvp.training import records
from tests.sweeps.running import outcomes

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
def test_a_process_of_a_user_gives_the_bits_of_workers(finished, command, tmp_path):
    """Three of the runs of the sweep under the local executor. XLA divides no product of this size among threads."""
    words = (*RUN, "--executor", "inline", "--threads", "1", "--out", tmp_path / "out")
    process = command(*words, widths="16", seeds="0")
    assert process.returncode == 0, process.stderr
    ours = outcomes(tmp_path / "out")
    assert len(ours) == 3 and ours.items() <= outcomes(finished[0]).items()
