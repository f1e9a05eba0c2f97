"""Experiments in files of a user: calculations, and a trained setting beside a calculation. In the test's process
(`executor="inline"`) a sweep takes less than a second, because there is no figure to draw."""

import pytest

from lvp.experiments.common import user_experiments

FILE = """
from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure

from lvp.experiments.common.experiment import Calculation, SettingRuns, Experiment
from lvp.analysis.claims import Claim, judge

open(TRACE, "a").write("executed ")


@dataclass(frozen=True)
class Config:
    corpus: str = "none"
    count: int = 3


def settings(config):
    return [SettingRuns("squares", Calculation({"power": 2}, 1.0), [{"x": i} for i in range(config.count)])]


def calculate(arguments, run, dataset):
    return {"y": run["x"] ** arguments["power"]}


def summary(table, config):
    return f"sum {table['y'].sum()}"


def figure(table, config, **origin):
    return Figure(figsize=(1, 1))


def claims(table, config, context):
    claim = {"statement": "2 squared is 4", "source": "arithmetic", "paper_value": 4.0, "value": 4.0}
    verdict = judge(4.0, (4.0, 4.0), claimed=4.0)
    return [Claim(**claim, interval=(4.0, 4.0), verdict=verdict, **context)] * 2


EXPERIMENT = Experiment(
    name="squares",
    question="what are the squares?",
    presets={"smoke": Config(), "laptop": Config()},
    settings=settings,
    summary=summary,
    figure=figure,
    claims=claims,
    calculate=calculate,
)
"""
FOLLOW_UP = ("    settings=settings,", "    settings=settings,\n    follow_up=follow_up,")
# One further run, whose value depends on the results.
ONE_MORE = "\n\ndef follow_up(table, config):\n    return {'squares': [{'x': int(table['y'].max())}]}\n\n\nEXPERIMENT"
# Squares the largest square below 100, again and again.
MORE = "\n\ndef follow_up(table, config):\n    largest = int(table['y'].max())\n"
MORE += "    return {'squares': [{'x': largest}] if largest < 100 else []}\n\n\nEXPERIMENT"

# A calculation, and three runs of a model of 40 tokens. The calculation is first and has more FLOPs.
TRAINED = """
from dataclasses import dataclass

from matplotlib.figure import Figure

from lvp.experiments.common.experiment import Calculation, SettingRuns, Experiment
from lvp.models.configs import DecoderConfig
from lvp.roles import ROLES
from lvp.training import Setting, DataConfig, Run


@dataclass(frozen=True)
class Config:
    corpus: str = "zipf:1"
    steps: int = 60
    rates: tuple[float, ...] = (0.01, 0.03, 0.1)
    epochs: float | None = None


def settings(config):
    model = DecoderConfig(vocab=40, width=8, layers=1, context=12, head_dim=8)
    trained = Setting(model, DataConfig(config.corpus, 4000, 800), batch=2, steps=config.steps)
    runs = [Run(dict.fromkeys(ROLES, rate), dict.fromkeys(ROLES, 0.3), 0) for rate in config.rates]
    sums = Calculation({"to": 3.0}, 1e15)
    return [SettingRuns("sums", sums, [{"add": 2}]), SettingRuns("runs", trained, runs, config.epochs)]


EXPERIMENT = Experiment(
    name="trained",
    question="do both kinds run side by side?",
    presets={"smoke": Config()},
    settings=settings,
    summary=lambda table, config: f"{table['sum'].count()} sums, {table['train_loss'].count()} losses",
    figure=lambda table, config, **origin: Figure(figsize=(1, 1)),
    claims=lambda table, config, context: [],
    calculate=lambda arguments, run, dataset: {"sum": arguments["to"] + run["add"], "blind": dataset is None},
)
"""


def written(folder, *replaced, text=FILE):
    """Writes the experiment's file with some texts replaced, pairs (old, new), and returns its path. Each execution of
    the file appends a word to the file `trace` beside it."""
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    path = folder / "mine.py"
    path.write_text(text.replace("TRACE", repr(str(folder / "trace"))))
    return path


def executions(folder):
    """How often the file in a folder was executed."""
    trace = folder / "trace"
    return len(trace.read_text().split()) if trace.exists() else 0


@pytest.fixture(autouse=True)
def anew():
    """A process executes a file once. Forgets the executions of earlier tests."""
    user_experiments._executed.cache_clear()
