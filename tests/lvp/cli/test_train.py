"""`python -m lvp train` on one process and on two processes of this machine, with two devices in all."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lvp import models
from lvp.cli import main, train
from lvp.errors import InputError
from lvp.files import checkpoints
from lvp.parametrization import Shape, table
from lvp.parametrization.recommend import recommend
from lvp.training import records

ROOT = Path(__file__).parents[3]
STEPS = 40  # at most eight in a chunk
TOLERANCE = 1e-5  # nats, between one process and two
MODEL = {"vocab": 64, "width": 16, "layers": 1, "context": 8, "head_dim": 8}


@pytest.fixture
def words(tmp_path, monkeypatch):
    """The command without --out, with a cache that all processes of the test share."""
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    options = f"--corpus zipf --vocab 64 --steps {STEPS} --batch 4 --learning-rate 0.02 --checkpoint-seconds 0"
    return ["train", str(tmp_path / "model.json"), *options.split()]


def outcome(out):
    (record,) = records.read(out / "record.jsonl")
    assert record["hash"] == json.loads((out / "run.json").read_text())["hash"]
    return record["outcome"]


# --- one process --------------------------------------------------------------------------------------------------


def test_a_run_trains_once_and_keeps_its_parameters(words, tmp_path, capsys):
    out = tmp_path / "out"
    assert main.main([*words, "--out", str(out)]) == 0
    assert f"step {STEPS} of {STEPS}" in capsys.readouterr().out
    losses = outcome(out)["curve_losses"]
    assert outcome(out)["status"] == "finished" and losses[0] - losses[-1] > 0.2
    model, params = models.load(out)
    assert model.config.width == MODEL["width"] and model.apply(params, np.zeros((1, 8), np.int32)).shape == (1, 8, 16)
    before = (out / "record.jsonl").read_bytes()
    assert main.main([*words, "--out", str(out)]) == 0
    assert "finished" in capsys.readouterr().out and (out / "record.jsonl").read_bytes() == before
    assert main.main([*words, "--seed", "1", "--out", str(out)]) == 2
    assert "run.json has another configuration" in capsys.readouterr().err
    shutil.rmtree(out / "checkpoints" / checkpoints.name_of(STEPS))
    with pytest.raises(InputError, match=rf"the run has \d+ of {STEPS} steps; continue it"):
        models.load(out)


@pytest.mark.slow
def test_a_run_starts_from_the_parameters_of_another(words, tmp_path, capsys):
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    assert main.main([*words, "--out", str(first)]) == 0
    for out, seed in ((second, "1"), (other, "2")):
        assert main.main([*words, "--seed", seed, "--start-from", str(first), "--out", str(out)]) == 0
    losses = [outcome(out)["curve_losses"] for out in (first, second, other)]
    assert max(losses[1][0], losses[2][0]) < losses[0][0] - 0.2
    assert len({json.loads((out / "run.json").read_text())["config"].get("start") for out in (first, second)}) == 2
    assert main.main([*words, "--seed", "1", "--out", str(second)]) == 2  # other parameters are another run
    assert "another configuration" in capsys.readouterr().err
    started = [*words, "--start-from", str(first), "--out", str(tmp_path / "refused")]
    for more, message in (
        (["--set", "width=32"], "its model has width=16, and this one has 32"),
        (["--set", "norm=rms"], "its model has norm=layer, and this one has rms"),
        (["--rule", "umup"], "its model has .*multiplier=1.0, and this one has .*--rule of that run"),
    ):
        assert main.main([*started, *more]) == 2 and re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "refused").exists()


@pytest.mark.slow
def test_parameters_of_another_tokenizer_are_refused(words, tmp_path, capsys):
    text = [tmp_path / "first.txt", tmp_path / "other.txt"]
    for path, word in zip(text, ("some words here. ", "another text, with others; "), strict=True):
        path.write_text((word + "abcdefgh\n") * 400)
    words[words.index("zipf")], words[words.index("--vocab") + 1] = f"text:{text[0]}", "260"
    assert main.main([*words, "--out", str(tmp_path / "first")]) == 0
    words[words.index(f"text:{text[0]}")] = f"text:{text[1]}"
    assert main.main([*words, "--start-from", str(tmp_path / "first"), "--out", str(tmp_path / "other")]) == 2
    assert re.search("its tokenizer is .*lvp tokenize --tokenizer FILE", capsys.readouterr().err)


def test_the_rule_gives_rates_and_forward_multipliers(words, tmp_path):
    """umup has forward multipliers. `--learning-rate` is the hidden rate under every rule. `--set` overrides a rule."""
    configs = []
    for rule in (["lvp"], ["umup"], ["umup", "--set", "output_multiplier=3"]):
        arguments = main.parser().parse_args([*words, "--rule", *rule, "--out", str(tmp_path / "out")])
        configs.append(train._setting_and_run(arguments))
    assert [run.hidden_rate for _, run in configs] == pytest.approx([0.02] * 3)
    lvp, umup, chosen = (setting.model.output_multiplier for setting, _ in configs)
    assert lvp == 1 != umup and chosen == 3


def _run(words, *more):
    return train._setting_and_run(main.parser().parse_args([*words, *more, "--out", "out"]))[1]


@pytest.mark.parametrize("rule", ["lvp", "mup"])
def test_a_tied_matrix_has_its_own_row(rule, words):
    row = table(rule, width=16, vocab=64, tied=True)["tied"]
    run = _run(words, "--set", "tied=true", "--rule", rule)
    assert run.learning_rates["output"] == pytest.approx(0.02 * row.lr_multiplier)
    assert run.init_std["output"] == pytest.approx(row.init_std)


def test_rates_beside_muon_are_those_of_recommend(words):
    """`--learning-rate` is Muon's. A rule of nanochat has Muon's rates already."""
    advice = recommend(Shape(16, 64), hidden_lr=0.02, optimizer="muon")
    wanted = {role.role: role.learning_rate for role in advice.roles}
    rates = _run(words, "--optimizer", "muon").learning_rates
    assert rates == pytest.approx({role: wanted[role] for role in rates}) and rates["hidden"] == 0.02
    nanochat = table("nanochat", width=16, vocab=64)
    rates = _run(words, "--optimizer", "muon", "--rule", "nanochat").learning_rates
    assert rates == pytest.approx({row.role: 0.02 * row.lr_multiplier for row in nanochat.rows})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--mesh", "fsdp=3"], "mesh: data 1 × fsdp 3 × model 1 needs 3 devices, but there are 1"),
        (["--optimizer", "adan"], "optimizer must be one of"),
        (["--optimizer", "sgd"], "--optimizer sgd: the rates of --rule lvp are for updates of order one"),
        (["--set", "vocab=65"], "--set vocab=65 contradicts --vocab 64: omit one"),
        (["--set", "remat=block", "--remat", "dots"], "--set remat=block contradicts --remat dots: omit one"),
        (["--rule", "nanochat"], "--rule nanochat has Muon's rates: use --optimizer muon, not adamw"),
        (["--rule", "lpv"], "unknown rule 'lpv'; did you mean lvp?"),
        (["--vocab", "256", "--corpus", "text:missing.txt"], "missing.txt"),
        (["--corpus", "wikitxt2"], "did you mean wikitext2?"),
        (["--learning-rate", "0"], "learning rate of role"),
        (["--micro-batches", "3"], "micro_batches (3) must divide batch (4)"),
        (["--clip-norm", "-1"], "clip_norm must be"),
        (["--warmup-steps", "39"], "warmup_steps (39) plus cooldown"),
        (["--seed", "-1"], "--seed must lie from 0"),
    ],
    ids=lambda x: x[0] if isinstance(x, list) else "",
)
def test_bad_input_gives_one_line_and_writes_nothing(more, message, words, tmp_path, capsys):
    assert main.main([*words, *more, "--out", str(tmp_path / "out")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("lvp: ") and printed.count("\n") == 1 and message in printed
    assert not (tmp_path / "out").exists()


def test_a_file_is_no_directory_of_a_run(words, tmp_path, capsys):
    (tmp_path / "file").write_text("kept")
    assert main.main([*words, "--out", str(tmp_path / "file")]) == 2
    assert "is a file; name a directory" in capsys.readouterr().err and (tmp_path / "file").read_text() == "kept"


def test_without_a_launcher_the_error_names_the_variables(words, tmp_path):
    """In a process of its own: JAX joins other processes only before it has used a device."""
    command = [sys.executable, "-m", "lvp", *words, "--distributed", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("lvp: --distributed: ") and done.stderr.count("\n") == 1
    assert "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES, JAX_PROCESS_ID" in done.stderr
    assert not (tmp_path / "out").exists()


# --- processes of their own ---------------------------------------------------------------------------------------


class Started:
    """`count` processes that train one run."""

    def __init__(self, words, out, count):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
        command = [sys.executable, "-m", "lvp", *words, "--out", str(out), *["--distributed"] * (count > 1)]
        variables = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "PYTHONPATH": str(ROOT)}
        if count > 1:
            variables |= {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": str(count)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.out, self.processes = out, []
        for index in range(count):
            environment = os.environ | variables | {"JAX_PROCESS_ID": str(index)}
            self.processes.append(subprocess.Popen(command, cwd=ROOT, env=environment, **pipes))

    def wait(self):
        """The standard output of every process, all of which must succeed."""
        try:
            outputs = [process.communicate(timeout=600) for process in self.processes]
        finally:
            for process in self.processes:
                process.kill()
        for process, (_, error) in zip(self.processes, outputs, strict=True):
            assert process.returncode == 0, error[-4000:]
        return [output for output, _ in outputs]

    def wait_for_a_checkpoint(self):
        until = time.monotonic() + 300
        while not any(step < STEPS for step in checkpoints.steps(self.out / "checkpoints")):
            assert time.monotonic() < until and all(process.poll() is None for process in self.processes)
            time.sleep(0.02)

    def kill(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.communicate()
        assert not (self.out / "record.jsonl").exists()


@pytest.mark.slow
def test_two_processes_give_the_losses_of_one(words, tmp_path):
    Started(words, tmp_path / "one", 1).wait()
    first, second = Started(words, tmp_path / "two", 2).wait()
    assert "finished" in first and "finished" not in second  # process 0 alone prints
    interrupted = Started(words, tmp_path / "killed", 2)
    interrupted.wait_for_a_checkpoint()
    interrupted.kill()
    assert "continues from step" in Started(words, tmp_path / "killed", 2).wait()[0]
    one, two, killed = (outcome(tmp_path / name) for name in ("one", "two", "killed"))
    assert killed == two
    for name in ("curve_losses", "train_loss", "valid_loss"):
        np.testing.assert_allclose(one[name], two[name], atol=TOLERANCE)
    (record,) = records.read(tmp_path / "killed" / "record.jsonl")
    assert record["provenance"]["processes"] == 2 and record["provenance"]["mesh"]["fsdp"] == 2
    assert 0 < record["provenance"]["resumed_at_step"] < STEPS


@pytest.mark.slow
def test_sigterm_to_one_process_stops_all_at_one_step(words, tmp_path):
    started = Started(words, tmp_path / "out", 2)
    started.wait_for_a_checkpoint()
    started.processes[1].send_signal(signal.SIGTERM)
    first, _ = started.wait()
    assert "stopped at step" in first and not (tmp_path / "out" / "record.jsonl").exists()
    step = int(first.split("stopped at step ")[1].split()[0])
    assert checkpoints.steps(tmp_path / "out" / "checkpoints")[-1] == step < STEPS
