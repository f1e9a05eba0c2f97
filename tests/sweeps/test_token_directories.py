"""Sweeps on directories of token files."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from lvp import roles
from lvp.data.tokens.tokenization import Settings, tokenize
from lvp.models.configs import DecoderConfig
from lvp.training import DataConfig, Run, Setting, task_for
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


@pytest.mark.parametrize("order", ["rows", "windows"])
@pytest.mark.parametrize("slice_bytes", [None, 5000])
def test_tokens_and_text_give_the_same_batches(made, tmp_path, order, slice_bytes):
    text, out = made
    seen = []
    for corpus in (f"text:{text}", f"tokens:{out}"):
        model = DecoderConfig(vocab=300, width=16, layers=1, context=16, head_dim=8)
        setting = Setting(model, DataConfig(corpus, slice_bytes, order=order), batch=4, steps=100, measured_steps=(4,))
        task = task_for(setting)
        dataset = task.prepare(tmp_path)
        if slice_bytes is not None:  # a text may be cut in the middle of a token; tokens are not
            dataset = dataclasses.replace(dataset, num_tokens=1000)
        feed = task.load(dataset)([RUN])
        seen.append([feed.feed(step) for step in (0, 8, 96)])
    assert jax.tree.structure(seen[0]) == jax.tree.structure(seen[1])
    for of_text, of_tokens in zip(*map(jax.tree.leaves, seen), strict=True):
        np.testing.assert_array_equal(of_text, of_tokens, strict=True)


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
