"""The command `python -m lvp train`: one run of a decoder on all devices of one or more processes.

Files, on a file system that all processes share:

    OUT/run.json      the configuration of the run and its hash, written before the first step
    OUT/checkpoints/  the last steps; `lvp.models.load(OUT)` reads the parameters of a finished run
    OUT/record.jsonl  the record of the finished run (`lvp.training.records`)
"""

import argparse
import dataclasses
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lvp import training
from lvp.cli.parser import parsed
from lvp.cli.settings import decoder_of, setting_of
from lvp.data.text import corpora
from lvp.errors import InputError
from lvp.files import cache_dir, checkpoints, write_whole
from lvp.models.configs import DecoderConfig, forward_multipliers
from lvp.models.weights import Weights, read
from lvp.parallel import sharding
from lvp.parallel.processes import gathered
from lvp.parametrization import RULES, Table, table
from lvp.parametrization.rules import ADAM_RMS
from lvp.signals import handled
from lvp.training import Run, Setting, check_positive, records
from lvp.training.outcome import Outcome

# Fields of a decoder that do not change its function of tokens: precision, memory and init.
NOT_OF_FUNCTION = {"dtype", "param_dtype", "attention", "attention_block", "remat", "down_init", "residual_init"}
PROGRESS_SECONDS = 10.0  # least time between two lines of progress


def train(arguments: argparse.Namespace) -> None:
    """Trains the run of the options, from its last checkpoint if there is one, and writes its record.

    SIGTERM saves the run after the present chunk of steps; all processes stop at the same step.

    Raises:
      InputError: the options or the data cannot be used, or the directory is that of another run. Nothing is written
        there then.
    """
    setting, run = _setting_and_run(arguments)
    out = arguments.out.absolute()
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; name a directory")
    if arguments.distributed and not jax.distributed.is_initialized():  # Ray Train has joined its workers
        _join()
    asked = threading.Event()
    with handled(lambda *_: asked.set(), signal.SIGTERM):
        sizes = sharding.mesh_sizes(arguments.mesh, jax.device_count())
        task = training.task_for(setting)
        task.check_mesh(sizes)
        dataset = task.prepare(cache_dir() / "data")
        config = _configuration(setting, run, task.fingerprints(dataset))
        tokenizer = config["data"].get("tokenizer")
        start = None if arguments.start_from is None else _start(arguments.start_from, setting.model, tokenizer)
        config |= {} if start is None else {"start": start.digest}
        key = _claimed(out, config)
        if gathered([(out / "record.jsonl").exists()])[0, 0]:  # process 0 decides: others may not see it yet
            _say(f"{out}: finished; the record is {out / 'record.jsonl'}")
            return
        mesh = sharding.make_mesh(sizes)
        saved = _Saved(task.program(mesh=mesh), run, out / "checkpoints", config, arguments.checkpoint_seconds)
        saved.start = start and start.params
        outcome = saved.train(task.load(dataset, mesh)([run]), asked.is_set)
    if outcome is None:
        _say(f"{out}: stopped at step {saved.step:,} of {setting.steps:,}; the same command continues")
    elif jax.process_index() == 0:
        content = {"format": records.FORMAT, "hash": key, "config": config, "outcome": task.outcome(dataset, outcome)}
        records.write(out / "record.jsonl", [content | {"provenance": saved.provenance(sizes)}])
        loss = "" if outcome.valid_loss is None else f", validation loss {outcome.valid_loss:.4f}"
        _say(f"{out}: {outcome.status}{loss}; the record is {out / 'record.jsonl'}")


def _say(text: str) -> None:
    if jax.process_index() == 0:
        print(text, flush=True)


def _setting_and_run(arguments: argparse.Namespace) -> tuple[Setting, Run]:
    """The compiled and the traced part of the run. The model takes the forward multipliers of the rule."""
    if not 0 <= arguments.seed < 2**32:
        raise InputError(f"--seed must lie from 0 to 2^32 − 1, got {arguments.seed}")
    check_positive("--checkpoint-seconds", arguments.checkpoint_seconds, zero=True)
    model = decoder_of(arguments, vocab=arguments.vocab)
    rates = table(arguments.rule, width=model.width, vocab=model.vocab, tied=model.tied)
    model = decoder_of(arguments, forward_multipliers(rates), vocab=arguments.vocab)
    setting = setting_of(
        arguments, model, corpora.absolute(arguments.corpus), arguments.steps, clip_norm=arguments.clip_norm
    )
    rate, own = _in_unit_of(rates, arguments.optimizer, arguments.learning_rate)
    run = Run.under(rates, rate, arguments.seed, rates=own, warmup_steps=arguments.warmup_steps)
    setting.check(run)
    return setting, run


def _in_unit_of(rule: Table, optimizer: str, hidden_rate: float) -> tuple[float, dict[str, float]]:
    """The rate that the rule's factors multiply, and the rates of single roles.

    Raises:
      InputError: the rule has no rates for the optimizer.
    """
    muon = rule.rule not in RULES
    if muon and optimizer != "muon":
        raise InputError(f"--rule {rule.rule} has Muon's rates: use --optimizer muon, not {optimizer}")
    if optimizer == "sgd" and rule.rule != "sp":
        raise InputError(
            f"--optimizer sgd: the rates of --rule {rule.rule} are for updates of order one per coordinate (Adam, "
            "Lion); use --rule sp"
        )
    if optimizer == "muon" and not muon:  # as `lvp recommend --optimizer muon`
        return hidden_rate / (ADAM_RMS * math.sqrt(rule.width)), {"hidden": hidden_rate}
    return hidden_rate, {}


def _configuration(setting: Setting, run: Run, fingerprints: Mapping[str, str | None]) -> dict[str, Any]:
    """All values that determine the result. The corpus has no path, because its fingerprint identifies it."""
    config = {"cell": records.configuration(setting), "lane": records.configuration(run), "data": dict(fingerprints)}
    config["cell"]["data"]["corpus"] = corpora.split(setting.data.corpus)[0]
    return config


def _start(place: str, model: DecoderConfig, tokenizer: str | None) -> Weights:
    """The weights at a place.

    Raises:
      InputError: there are no weights, or they are those of another model or tokenizer.
    """
    weights = read(place)
    free = NOT_OF_FUNCTION if model.positions == "learned" else NOT_OF_FUNCTION | {"context"}
    for name in (field.name for field in dataclasses.fields(model) if field.name not in free):
        there, here = getattr(weights.config, name), getattr(model, name)
        if there != here:
            raise InputError(
                f"--start-from {place}: its model has {name}={there}, and this one has {here}; use the model and the "
                "--rule of that run"
            )
    if None not in (weights.tokenizer, tokenizer) and weights.tokenizer != tokenizer:
        raise InputError(
            f"--start-from {place}: its tokenizer is {weights.tokenizer}, and that of this corpus is {tokenizer}; "
            "encode the corpus with it: lvp tokenize --tokenizer FILE"
        )
    return weights


def _join() -> None:
    """Joins the other processes of the launcher.

    Raises:
      InputError: there is no launcher that JAX knows.
    """
    # JAX itself reads JAX_COORDINATOR_ADDRESS, but not these two.
    names = {name: f"JAX_{name.upper()}" for name in ("num_processes", "process_id")}
    given = {name: parsed(key, os.environ[key], int) for name, key in names.items() if key in os.environ}
    try:
        jax.distributed.initialize(**given)
    except ValueError as error:
        remedy = f"use srun, mpirun or a TPU pod, or set JAX_COORDINATOR_ADDRESS, {', '.join(names.values())}"
        raise InputError(f"--distributed: {str(error).rstrip('.')}; {remedy}") from None


def _claimed(out: Path, config: Mapping[str, Any]) -> str:
    """The hash of the configuration. Process 0 writes OUT/run.json if there is none.

    Raises:
      InputError: a process has another configuration than OUT/run.json. All processes receive the error.
    """
    path, key = out / "run.json", records.config_hash(config)
    checkpoints.wait_for_all()  # the data of some processes may have taken longer
    if jax.process_index() == 0 and not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_whole(path, records.dumps({"hash": key, "config": config}) + "\n")
    checkpoints.wait_for_all()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["hash"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        found = f"unreadable, {type(error).__name__}; all hosts must share --out"
    if gathered([found != key]).any():
        raise InputError(
            f"{path} has another configuration ({found}) than these options and data ({key}) in at least one process: "
            "choose another --out, or the options of the first call"
        )
    return key


class _Saved:
    """The training of one run, with checkpoints and lines of progress. `step` counts the trained steps."""

    def __init__(self, program: Any, run: Run, folder: Path, config: Mapping[str, Any], checkpoint_seconds: float):
        self.program, self.run, self.folder, self.config = program, run, folder, config
        self.key = records.config_hash(config)
        self.start: Any = None  # parameters to start from; None: the run's init
        self.checkpoint_seconds, self.step, self.first_step, self.seconds = checkpoint_seconds, 0, 0, 0.0

    def train(self, feed: Any, asked: Callable[[], bool]) -> Outcome | None:
        """Trains from the last checkpoint to the end and returns the outcome; None after a stop on request."""
        self.program.compile(feed.feed(0)[1])
        checkpoints.wait_for_all()  # compilation takes longer on some machines
        state = None if self.start is None else self.program.started(self.run, self.start)
        if found := checkpoints.latest(self.folder, self.program.run_shapes(), self.key):
            self.first_step, state, _ = found
            _say(f"continues from step {self.first_step:,}")
        self.step = self._printed_step = self.first_step
        began = self._saved = self._printed = time.perf_counter()
        chunks = training.chunks(self.program, [self.run], feed, state=state, step=self.first_step)
        while True:
            try:
                step, state = next(chunks)
            except StopIteration as end:
                self.seconds = time.perf_counter() - began
                return end.value[0]
            self._on_chunk(step, state)
            # A signal reaches the processes at different times, and all of them must stop at the same step.
            if step < self.program.setting.steps and gathered([asked()]).any():
                self._save(step, state)
                return None

    def _on_chunk(self, step: int, state: Any) -> None:
        self.step, last, now = step, step == self.program.setting.steps, time.perf_counter()
        if last or now - self._printed >= PROGRESS_SECONDS:
            rate = (step - self._printed_step) * self.program.setting.tokens_per_step / (now - self._printed)
            loss = np.asarray(state["losses"])[step - 1]
            _say(f"step {step:,} of {self.program.setting.steps:,}  loss {loss:.4f}  {rate:,.0f} tokens/s")
            self._printed, self._printed_step = now, step
        # Clocks differ, and all processes must save together: process 0 decides.
        if gathered([last or now - self._saved >= self.checkpoint_seconds])[0, 0]:
            self._save(step, state)
            self._saved = time.perf_counter()

    def _save(self, step: int, state: Any) -> None:
        checkpoints.save_step(self.folder, step, state, self.key, config=self.config)

    def provenance(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The provenance of the record: software, devices, and the time since the last start."""
        device, tokens = jax.devices()[0], (self.step - self.first_step) * self.program.setting.tokens_per_step
        return records.software() | {
            "device": device.device_kind,
            "platform": device.platform,
            "mesh": dict(sizes),
            "processes": jax.process_count(),
            "resumed_at_step": self.first_step,
            "seconds": round(self.seconds, 3),
            "tokens_per_second": round(tokens / self.seconds, 1),
        }
