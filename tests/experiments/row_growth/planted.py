"""Tables of `row_growth` whose best rates follow a planted law."""

import math
from collections.abc import Mapping

import numpy as np

from lvp.analysis import Optimum
from lvp.experiments.row_growth import config as runs
from lvp.experiments.row_growth.analysis import Point
from lvp.experiments.row_growth.laws import LAWS
from lvp.training import records

ADDED = {"sinusoidal": math.sqrt(0.5), "learned": 0.5, "rotary": 0.0}  # RMS at amplitude 1
PARTS = np.arange(1, 51) / 50
# The optimum is constant over the last tenth of every prefix, because the loss of a prefix is the mean over this tenth.
MOVES = np.where(PARTS > 0.9, 1.0, np.where((PARTS > 0.36) & (PARTS <= 0.4), 0.4, PARTS))


def point(variant: runs.Variant, steps: float, rate: float = 1.0, std: float = 0.1) -> Point:
    """Returns a resolved optimum at a variant with the planted sizes."""
    interval = (rate * math.exp(-1.96 * std), rate * math.exp(1.96 * std))
    optimum = Optimum(rate, std, interval, 1.0, "quadratic", degrees_of_freedom=60.0)
    return Point(variant, int(steps), optimum, 1.0, variant.amplitude * ADDED[variant.positions])


def best_rate(powers: Mapping[str, float], variant: runs.Variant, steps: float) -> float:
    """Returns the planted optimum: 0.6 of the random walk's rate at the base, moved by `powers` from there."""
    start = runs.base(runs.PRESETS["laptop"])
    here, there = (point(s, t).quantities for s, t in ((variant, steps), (start, start.steps)))
    moved = math.prod((here[name] / there[name]) ** power for name, power in powers.items() if here[name] > 0)
    return 0.6 / (start.row_factor * math.sqrt(start.steps)) * moved


def table_of(config: runs.Config, law: str, *, noise: float = 0.003, departures: float = 0.0, seed: int = 0):
    """Returns a table with losses that are a parabola in the log rate.

    Args:
      law: key of `LAWS`. noise: std of a run's loss. departures: std of a variant's ln optimum about the law.
    """
    rng, rows = np.random.default_rng(seed), []
    for variant in runs.variants(config):
        depart = departures * rng.normal()
        best = np.array([math.log(best_rate(LAWS[law], variant, part * variant.steps)) for part in MOVES]) + depart
        setting = records.configuration(runs.setting(config, variant))
        measured = len(setting["measured_steps"])
        measured_parts = (np.array(setting["measured_steps"]) + 1) / variant.steps
        added = variant.amplitude * ADDED[variant.positions]
        for rate in runs.embedding_rates(config, variant):
            for run_seed in runs.seeds(config, variant):
                run = records.configuration(runs.run(config, variant, rate, run_seed))
                curve = 1 + 0.1 * (math.log(rate) - best) ** 2 + noise * rng.normal(size=len(PARTS))
                outcome = {
                    "status": "finished",
                    "train_loss": curve[-1],
                    "curve_steps": [round(part * variant.steps) for part in PARTS],
                    "curve_losses": curve.tolist(),
                    "measures": {
                        "inputs": {"rows": [1.0] * measured, "added": [added] * measured},
                        "later_positions": {"loss": np.interp(measured_parts, PARTS, curve).tolist()},
                    },
                }
                config_of = {"cell": setting, "lane": run}
                rows.append({"hash": str(len(rows)), "config": config_of, "outcome": outcome, "provenance": {}})
    return records.table(rows)
