"""Reads the records of `pretrain_1b`: losses and perplexities by ratio, and the summary."""

import numpy as np

from lvp.analysis.measurement import Measurement
from lvp.analysis.tuned import Selected, Tuned, select
from lvp.experiments.common.tables import EMBEDDING_RATE, HIDDEN_RATE, finished_by_seed, lists_by_row
from lvp.experiments.pretrain_1b.config import Config, judging_runs
from lvp.training import Run


def selected_rate(table, config: Config, ratio: float) -> Selected | None:
    """The index of the rate with the least mean loss of the selecting seeds at ratio 1 or √d.

    None if no rate finished with all selecting seeds.
    """
    losses = [
        _runs(table, config, ratio, rate, config.selecting_seeds)["valid_loss"].to_numpy(float) for rate in config.rates
    ]
    return select(np.array(losses))


def tuned_rate(table, config: Config, ratio: float | None = None) -> float | None:
    """The rate that the selecting seeds choose at ratio 1 or √d (default); the configured `rate` if `rates` is empty.

    None if no rate finished with all selecting seeds.
    """
    if not config.rates:
        return config.rate
    selected = selected_rate(table, config, ratio or config.root)
    return None if selected is None else config.rates[selected.best]


def follow_up(table, config: Config) -> dict[str, list[Run]]:
    """Setting label → the runs of every judging seed: of every ratio at √d's tuned rate, and of ratio 1 at its own."""
    rate = tuned_rate(table, config)
    if not config.rates or rate is None:
        return {}
    return judging_runs(config, rate, tuned_rate(table, config, 1.0))


def tuned(table, config: Config, ratio: float) -> Tuned:
    """The validation losses of the judging seeds at the rate that is tuned at ratio 1 or √d; NaN without a rate."""
    losses = values_by_seed(table, config, ratio, "valid_loss", own_rate=True)
    selected = selected_rate(table, config, ratio) if config.rates else None
    return Tuned(losses) if selected is None else Tuned(losses, selected.regret)


def runs_by_seed(table, config: Config, ratio: float, own_rate: bool = False):
    """One row per judging seed at a ratio; NaN in the row of a missing or diverged run.

    Args:
      own_rate: whether the runs have the rate that is tuned at this ratio (1 or √d). The default is √d's tuned rate.
    """
    rate = tuned_rate(table, config, ratio if own_rate else None)
    return _runs(table, config, ratio, rate or np.nan, config.seeds)


def _runs(table, config: Config, ratio: float, rate: float, seeds):
    columns = {EMBEDDING_RATE: float(f"{rate * ratio:.6g}")} | ({HIDDEN_RATE: rate} if config.rates else {})
    return finished_by_seed(table, columns, seeds)


def values_by_seed(table, config: Config, ratio: float, column: str, own_rate: bool = False) -> np.ndarray:
    """A column of numbers [seeds] at a ratio; NaN for a missing or diverged run.

    Args:
      own_rate: as in `runs_by_seed`.
    """
    rows = runs_by_seed(table, config, ratio, own_rate)
    return rows[column].to_numpy(float) if column in rows else np.full(len(config.seeds), np.nan)


def validation_curves(table, config: Config, ratio: float, own_rate: bool = False) -> np.ndarray:
    """Validation losses [seeds, measured steps] in nats per token; NaN for a missing or diverged run.

    Args:
      own_rate: as in `runs_by_seed`.
    """
    rows = runs_by_seed(table, config, ratio, own_rate)
    return lists_by_row(rows, "measures.validation.loss", (len(config.measured_steps),))


def word_perplexities(table, config: Config, ratio: float) -> np.ndarray:
    """Perplexities by word [seeds, scored steps + 1], of a ratio at its own rate. The last one is that of the end.

    NaN for a missing or diverged run.
    """
    # WikiText counts line ends as words, so this column is the paper's perplexity by word.
    at_end = values_by_seed(table, config, ratio, "perplexity_by_tokens", own_rate=True)
    rows, measured = runs_by_seed(table, config, ratio, own_rate=True), config.measured_steps
    curves = lists_by_row(rows, "perplexities_by_tokens", (len(measured),))
    return np.column_stack([*(curves[:, measured.index(step)] for step in config.scored_steps), at_end])


def ratio_label(config: Config, ratio: float) -> str:
    """The ratio as tables and legends show it."""
    return {1.0: "1", config.root: f"√d = {ratio:.3g}"}.get(ratio, f"{ratio:.3g}")


def summary(table, config: Config) -> str:
    """By ratio: validation perplexity, and perplexity by word of the scored text."""
    header = f"{'η_E/η':<12}{'validation perplexity':>26}{'perplexity by word':>26}{'line ends not counted':>26}"
    rate = tuned_rate(table, config)
    tuning = f"{'' if config.rates else 'not '}tuned at √d"
    if config.rates and rate in (config.rates[0], config.rates[-1]):
        tuning += ", at the edge of its grid"
    lines = [f"√d = {config.root:g}, η = {rate or np.nan:g} ({tuning})", header]
    for ratio in config.ratios:
        columns = (
            np.exp(values_by_seed(table, config, ratio, "valid_loss")),
            values_by_seed(table, config, ratio, "perplexity_by_tokens"),
            values_by_seed(table, config, ratio, "perplexity_by_words"),
        )
        texts = [Measurement.over_seeds(values).text(".4g") for values in columns]
        lines.append(f"{ratio_label(config, ratio):<12}  " + "  ".join(f"{text:>24}" for text in texts))
    if config.rates:
        losses = tuned(table, config, 1.0).losses
        lines.append(
            f"1 at its own η = {tuned_rate(table, config, 1.0) or np.nan:g}: validation perplexity "
            f"{Measurement.over_seeds(np.exp(losses)).text('.4g')}"
        )
    if config.scored_points:
        steps = "".join(f"  {step + 1:>20}" for step in (*config.scored_steps, config.steps - 1))
        lines += ["", f"{'perplexity by word after step':<30}{steps}"]
        for ratio in (1.0, config.root):
            name = f"{ratio_label(config, ratio)} at η = {tuned_rate(table, config, ratio) or np.nan:g}"
            values = word_perplexities(table, config, ratio).T
            texts = [Measurement.over_seeds(at_step).text(".4g") for at_step in values]
            lines.append(f"{name:<30}" + "".join(f"  {text:>20}" for text in texts))
    lines += [
        "",
        f"means over {len(config.seeds)} seeds, 95 % t intervals. By word: exp(N/W). N: nats of the scored text, in "
        "windows that advance by half a context. W: number of its words and line ends.",
    ]
    return "\n".join(lines)
