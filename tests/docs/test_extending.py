"""Runs the code blocks of docs/extending.md in an empty directory, as a reader would, up to the figure."""

import ast
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lvp.training import records
from tests import QUICK_COMPILATION

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()

pytestmark = pytest.mark.slow


def pieces(text):
    """Returns (language, code) of every block."""
    return re.findall(r"```(python|sh)\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Returns a directory after all steps of the page: files are assembled from their pieces, everything else is
    executed."""
    here = tmp_path_factory.mktemp("reader")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    places = {"PATH": path, "PYTHONPATH": str(ROOT), "LVP_CACHE": str(here / "cache"), "JAX_PLATFORMS": "cpu"}
    places |= {"XLA_FLAGS": QUICK_COMPILATION}
    outputs = []
    for language, code in pieces(PAGE):
        if name := re.match(r"# (\w+\.py)\n", code):
            with open(here / name[1], "a") as file:
                file.write(code)
            continue
        words = ["python", "-c", code] if language == "python" else ["bash", "-ec", code]
        done = subprocess.run(words, cwd=here, env=os.environ | places, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    return here, outputs


def test_the_page_ends_with_a_figure_a_table_and_a_verdict(directory):
    here, (_, best, _, rule, _, sweep, _) = directory
    assert [line.split()[0] for line in best.splitlines()] == ["16", "24"]
    assert {"figure.png", "figure.svg", "table.csv"} <= {p.name for p in (here / "runs" / "mine").iterdir()}
    assert "halfway: width 512, vocab 8192" in rule and "halfway: decoder of 1 blocks" in rule
    assert "54 of 54 runs have a record" in sweep
    assert re.search("(supported|contradicted|unresolved): the best rate does not depend on the width", sweep)


@pytest.mark.parametrize("name, runs", [("recurrent", 12), ("outside", 54)])
def test_a_model_of_ones_own_has_records_and_a_figure(directory, name, runs):
    here, _ = directory
    assert (here / "runs" / name / "figure.png").exists()
    losses = [r["outcome"]["train_loss"] for r in records.read(here / "runs" / name / "records")]
    learned = 0.9 * math.log(300) if name == "recurrent" else 0.1
    assert len(losses) == runs and min(losses) < learned


def test_the_tuner_finds_rates_of_a_model_that_learns(directory):
    *_, tuner = directory[1]
    config, loss = re.search(r"^(\{.*\}) (\S+)$", tuner, re.MULTILINE).groups()
    assert 1e-3 <= ast.literal_eval(config)["embedding"] <= 1 and float(loss) < 0.95 * math.log(256)


def test_the_runs_are_those_of_the_rules_and_optimizers(directory):
    here, _ = directory
    run_records = records.read(here / "runs" / "mine" / "records")
    assert len(run_records) == 54 and {r["outcome"]["status"] for r in run_records} <= {"finished", "diverged"}
    for record in run_records:
        setting, run = record["config"]["cell"], record["config"]["lane"]
        width = setting["model"]["width"]
        assert setting["optimizer"] == {"kind": "soft_sign", "options": {"softness": 1e-4}, "traced": []}
        assert run["init_std"]["hidden"] == width**-0.5
        rates, base_width = run["learning_rates"], 16  # at which all roles have the same rate
        assert math.isclose(rates["output"], rates["embedding"] * (width / base_width) ** -0.5)
    losses = [r["outcome"]["train_loss"] for r in run_records if r["outcome"]["status"] == "finished"]
    assert min(losses) < 0.9 * math.log(300)  # the loss of a uniform guess in nats: the model learns
