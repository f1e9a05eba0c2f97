"""Sweeps on directories of token files and on TFDS texts."""

import json

import numpy as np
import pytest

from lvp import roles
from lvp.data.tokens.tokenization import Settings, tokenize
from lvp.training import Run
from tests.lvp.data.tokens.texts import some_text

RUN = Run(dict.fromkeys(roles.ROLES, 0.01), dict.fromkeys(roles.ROLES, 0.2), 3)
VOCABS = (300, 350)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """(path of a text, directory with the text's tokens for each vocabulary)."""
    directory = tmp_path_factory.mktemp("tokens")
    text = directory / "t.txt"
    text.write_text(some_text(10_000))
    for vocab in VOCABS:
        tokenize(Settings(f"text:{text}", vocab), directory / "out" / str(vocab), cache=directory, workers=1)
    return text, directory / "out"


def outcomes(command, out, corpus, vocabs):
    more = {"vocabs": ",".join(map(str, vocabs)), "first_rank": "1"}
    words = ("--preset", "smoke", "--executor", "local", "--corpus", corpus, "--out", out)
    process = command("run", "token_frequencies", *words, **more)
    records = [json.loads(line) for path in out.glob("records/*.jsonl") for line in path.read_text().splitlines()]
    return process, records


@pytest.mark.slow
def test_a_sweep_over_vocabularies_reads_a_directory_of_tokens(command, made, tmp_path):
    process, rows = outcomes(command, tmp_path / "out", f"tokens:{made[1]}", VOCABS)
    assert process.returncode == 0, process.stderr
    sizes = {r["config"]["lane"]["vocab"]: r["outcome"]["tokens"] for r in rows}
    assert sizes == {vocab: np.load(made[1] / str(vocab) / "train-00000.npy").size for vocab in VOCABS}
    process, rows = outcomes(command, tmp_path / "other", f"tokens:{made[1]}", (300, 400))
    assert process.returncode == 2 and f"no tokens in {made[1]}/400" in process.stderr and not rows
