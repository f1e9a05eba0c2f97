"""What the records of `mean_embedding` say, and its table."""

from itertools import product
from typing import Any

import numpy as np

from experiments.common.decoder_runs import of_optimizer, where
from experiments.mean_embedding.config import ARMS, EMBEDDING, HEAD, HEADS, Arm, Config, cell_of, lane, rates_of
from lvp.training import Lane


def follow_up(table, config: Config) -> dict[str, list[Lane]]:
    """The other seeds of every arm at its tuned rate."""
    found: dict[str, list[Lane]] = {}
    for head, arm in product(config.heads, (ARMS[name] for name in config.arms)):
        rate = tuned(table, config, arm, head)
        more = [] if rate is None else [lane(config, arm, head, rate, seed) for seed in config.seeds[1:]]
        found.setdefault(f"{arm.optimizer}, {head}", []).extend(more)
    return found


def _rows(table, config: Config, arm: Arm, head: str, rate: float):
    """The lanes of an arm at a rate, by seed."""
    cell, example = cell_of(config, arm.optimizer, head), lane(config, arm, head, rate, config.seeds[0])
    columns: dict[str, Any] = {"cell.model.tied": HEADS[head]}
    columns |= {f"lane.learning_rates.{r}": example.learning_rates[r] for r in ("embedding", "hidden", "output")}
    return where(of_optimizer(table, cell), columns).sort_values("lane.seed")


def tuned(table, config: Config, arm: Arm, head: str) -> float | None:
    """The rate of the least validation loss of the first seed; None where every rate diverged or has no lane."""
    losses = {}
    for rate in rates_of(config, arm):
        rows = where(_rows(table, config, arm, head, rate), {"lane.seed": config.seeds[0], "status": "finished"})
        if len(rows):
            losses[rate] = rows["valid_loss"].iloc[0]
    return min(losses, key=losses.__getitem__) if losses else None


def readings(table, config: Config, name: str, head: str):
    """The lanes of an arm at its tuned rate, a row a seed and nothing but NaN in it where that one is missing or
    diverged; empty where no rate finished."""
    rate = tuned(table, config, ARMS[name], head)
    if rate is None:
        return table[:0]
    rows = _rows(table, config, ARMS[name], head, rate)
    return rows[rows["status"] == "finished"].set_index("lane.seed").reindex(list(config.seeds))


def measured(rows, path: str, what: str) -> np.ndarray:
    """A measure of a vocabulary matrix [seeds, measured steps, ...]; NaN where there is none."""
    column = f"measures.vocabulary.{path}.{what}"
    lists = [x for x in rows.get(column, ()) if isinstance(x, list)]
    if not lists:
        return np.full((len(rows), 1), np.nan)
    gap = np.full(np.shape(np.array(lists[0], float)), np.nan)
    return np.array([np.array(x, float) if isinstance(x, list) else gap for x in rows[column]])


def mean_of_finite(values: np.ndarray) -> float:
    """Over the seeds that finished; NaN without one."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else np.nan


def last(rows, path: str, what: str) -> np.ndarray:
    """The same at the last measured step [seeds]."""
    return measured(rows, path, what)[:, -1]


def moment_fit(table, config: Config, head: str) -> tuple[np.ndarray, np.ndarray]:
    """Of Adam's head: R² of v̂ against frequency (mean over the measured steps but the first) and A times the tokens of
    a step, which is about E[h²] (last measured step); [seeds] each."""
    rows = readings(table, config, "Adam", head)
    r_squared = np.array([points[1:].mean() for points in measured(rows, HEAD[head], "r_squared")])
    return r_squared, last(rows, HEAD[head], "slope") * config.batch * config.context


def summary(table, config: Config) -> str:
    """Every arm at its tuned rate: validation loss, and the geometry of its vocabulary matrices at the end."""
    columns = f"{'optimizer':<17} {'rate':>8} {'bits/byte':>10} {'drift: head':>12} {'embedding':>10}"
    columns += f" {'cosine':>8} {'isotropy':>9} {'R²':>6}"
    lines = []
    for head in config.heads:
        about = "means over seeds; cosine, isotropy and R² of v̂ against frequency are the head's"
        lines += [f"{head} head, {about}", columns]
        for name in config.arms:
            arm = ARMS[name]
            rows, rate = readings(table, config, name, head), tuned(table, config, arm, head)
            if not len(rows):
                lines.append(f"{name:<17} no finished lane")
                continue
            edge = "*" if rate in (rates_of(config, arm)[0], rates_of(config, arm)[-1]) else " "
            numbers = [last(rows, HEAD[head], "mean_drift"), last(rows, EMBEDDING[head], "mean_drift")]
            numbers += [last(rows, HEAD[head], what) for what in ("average_cosine", "isotropy", "r_squared")]
            drift, own, cosine, isotropy, fit = map(mean_of_finite, numbers)
            line = f"{name:<17} {rate:>7.4g}{edge} {rows['valid_bits_per_byte'].mean():>10.3f} {drift:>12.2g} "
            lines.append(line + f"{own:>10.2g} {cosine:>8.3f} {isotropy:>9.2g} {fit:>6.2f}".replace("nan", "  –"))
        lines.append("")
    for head in config.heads:
        r_squared, scale = moment_fit(table, config, head)
        if not len(scale):
            continue
        lines.append(
            f"Adam, {head}: R² of v̂ against frequency {mean_of_finite(r_squared):.2f} over the measured steps; slope A "
            f"times the tokens of a step {mean_of_finite(scale):.2g} (E[h²] is about 1 behind the last norm)"
        )
    lines.append("drift: of the mean row from its start, over the mean norm of a row. *: rate at the edge of its grid")
    return "\n".join(lines)
