"""Tokenization on a Ray cluster makes the same bytes as in one process, although a machine is lost."""

import random
import subprocess
import sys
import time

import pytest

from lvp.data.text import splits
from lvp.data.tokens import tokenization
from tests.faults.test_clusters import cluster  # noqa: F401  fixture
from tests.lvp.data.tokens.texts import some_text

pytestmark = pytest.mark.slow
DRIVER = """
import sys
from lvp.sweeps.__main__ import main
from lvp.data.text import splits
from lvp.data.tokens import tokenization
tokenization._SHARD = splits.BLOCK = 100_000
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_node_changes_no_byte(cluster, tmp_path):  # noqa: F811
    (tmp_path / "t.txt").write_text(some_text(1_000_000))
    settings = tokenization.Settings(f"text:{tmp_path / 't.txt'}", 300, valid_bytes=50_000, tokenizer_bytes=50_000)
    node, out = cluster.add(), tmp_path / "out"
    words = settings.command(out).split()[3:]
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *words, "--ray-address", cluster.address],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    finished = random.Random(0).randrange(2, 8)

    while len(list(out.glob("train-*.npy"))) < finished:
        assert process.poll() is None, process.communicate()
        time.sleep(0.1)
    node.kill()
    _, stderr = process.communicate(timeout=240)
    assert process.returncode == 0, stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenization, "_SHARD", 100_000)
        patch.setattr(splits, "BLOCK", 100_000)
        tokenization.tokenize(settings, tmp_path / "here", cache=tmp_path / "cache", workers=1)
    for path in (tmp_path / "here").iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()
