"""docs/extending.md: its blocks run as they stand, in an empty directory, and end with a figure."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lvp.training import records

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text()
FILE = "# mine.py\n"

pytestmark = pytest.mark.slow


def pieces(text):
    """(language, code) of every block."""
    return re.findall(r"```(python|sh)\n(.*?)```", text, flags=re.DOTALL)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Where a reader has followed the page: pieces of mine.py added to it as they come, everything else executed."""
    here = tmp_path_factory.mktemp("reader")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    places = {"PATH": path, "PYTHONPATH": str(ROOT), "LVP_CACHE": str(here / "cache"), "JAX_PLATFORMS": "cpu"}
    said = []
    for language, code in pieces(PAGE):
        if code.startswith(FILE):
            with open(here / "mine.py", "a") as file:
                file.write(code)
            continue
        words = ["python", "-c", code] if language == "python" else ["bash", "-ec", code]
        done = subprocess.run(words, cwd=here, env=os.environ | places, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    return here, said


def test_the_reader_has_a_figure_a_table_and_a_verdict(directory):
    here, (rule, _, sweep) = directory
    assert {"figure.png", "figure.svg", "table.csv"} <= {p.name for p in (here / "runs" / "mine").iterdir()}
    assert "halfway: width 512, vocab 8192" in rule and "halfway: decoder of 1 blocks" in rule
    assert "36 of 36 lanes have a record" in sweep
    assert re.search("(supported|contradicted|unresolved): the best rate stays where it is", sweep)


def test_its_lanes_are_the_rules_and_the_optimizers(directory):
    here, _ = directory
    found = records.read(here / "runs" / "mine" / "records")
    assert len(found) == 36 and {r["outcome"]["status"] for r in found} <= {"finished", "diverged"}
    for record in found:
        cell, lane = record["config"]["cell"], record["config"]["lane"]
        width = cell["model"]["width"]
        assert cell["optimizer"] == {"kind": "soft_sign", "options": {"softness": 1e-4}, "traced": []}
        assert lane["init_std"]["hidden"] == width**-0.5
        assert lane["learning_rates"]["output"] == lane["learning_rates"]["embedding"] * width**-0.5
    losses = [r["outcome"]["train_loss"] for r in found if r["outcome"]["status"] == "finished"]
    assert min(losses) < 0.9 * math.log(300)  # nats of a guess: it learns
