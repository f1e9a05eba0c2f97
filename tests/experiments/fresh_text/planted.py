"""Sweeps of `fresh_text` with planted losses: known powers of d and m, and asymmetry that changes with width."""

from dataclasses import asdict, dataclass

import numpy as np

from lvp.experiments import fresh_text
from lvp.experiments.fresh_text import analysis
from lvp.experiments.fresh_text.config import GROUPS
from lvp.training import records

PARTS = np.arange(1, 21) / 20  # of the steps, at which a curve has a loss


def excess(x, lean):
    """The loss above the least at ln ratio x from the best ratio. Its third-order term is lean/3 of the second."""
    return 0.017 * (x**2 if lean == 0 else 2 * (np.exp(lean * x) - 1 - lean * x) / lean**2)


@dataclass(frozen=True)
class Planted:
    """The best places and the shape of the curves of every setting."""

    power_of_d: float = 0.5
    power_of_m: float = 0.0
    constant: float = 0.2  # best η_hidden · d
    ratio: float = 1.0  # best ratio at d 100, m 1024, as a multiple of the middle of the group's grid
    asymmetry: float = 0.0  # slope of the third-order term over ln d: curves of narrow and wide models lean apart
    noise: float = 0.003  # of one run
    power_of_steps: float = 0.0  # of the best ratio during training
    scatter: float = 0.0  # std of ln(best ratio) about the power law
    seed: int = 0

    def best_ratio(self, group, width, vocab):
        wander = self.scatter * np.random.default_rng([self.seed, width, vocab]).normal()
        power_law = (width / 100) ** self.power_of_d * (vocab / 1024) ** self.power_of_m
        return group.ratio * self.ratio * power_law * np.exp(wander)

    def loss(self, group, setting, run, part=1.0):
        """The loss of a run after a part, or after parts, of its steps. It rises by 0.4 % at twice the best ratio."""
        model, rates = setting.model, run.learning_rates
        best = self.best_ratio(group, model.width, model.vocab) * part**self.power_of_steps
        x = np.log(rates["embedding"] / rates["hidden"] / best)
        lean = self.asymmetry * np.log(model.width / 110)
        hidden = np.log(rates["hidden"] * model.width / self.constant)
        numbers = [self.seed, run.seed, model.width, model.vocab, *np.float64(list(rates.values())).view(np.uint64)]
        noise = self.noise * np.random.default_rng(numbers).normal() + 0.02 * np.sin(run.seed)
        return 2.0 + excess(x, lean) + 0.02 * hidden**2 + noise


def table_of(config, runs_by_label, planted):
    """The table of the given runs."""
    rows = []
    settings = {planned.label: planned.setting for planned in fresh_text.config.settings(config)}
    for name in config.groups:
        for shape in config.shapes:
            label = fresh_text.config.label(config, name, shape)
            setting = asdict(settings[label])
            for run in runs_by_label.get(label, ()):
                train = planted.loss(GROUPS[name], settings[label], run, PARTS).tolist()
                steps = np.rint(PARTS * settings[label].steps).astype(int).tolist()
                curve = {"curve_steps": steps, "curve_losses": train}
                outcome = {"status": "finished", "valid_bits_per_byte": train[-1], **curve}
                row = {"config": {"cell": setting, "lane": vars(run)}, "outcome": outcome, "provenance": {}}
                rows.append({"hash": str(len(rows)), **row})
    return records.table(rows)


def trained(config, planted):
    """The table of a whole sweep, and label → all its runs."""
    runs = {planned.label: list(planned.runs) for planned in fresh_text.config.settings(config)}
    while True:
        table = table_of(config, runs, planted)
        more = analysis.follow_up(table, config)
        if not any(more.values()):
            return table, runs
        for label, new in more.items():
            assert not any(run in runs[label] for run in new)
            runs[label] += new
