"""What the records of `pretrain_1b` say, and its table."""

import numpy as np

from experiments.common.decoder_runs import where
from experiments.pretrain_1b.config import Config, lane_of
from lvp import analysis


def rows(table, config: Config, ratio: float):
    """The lanes of a ratio, a row a seed; nothing but NaN in the row of one that is missing or diverged."""
    rate = lane_of(config, ratio, 0).learning_rates["embedding"]
    found = where(table, {"lane.learning_rates.embedding": rate, "status": "finished"})
    return found.set_index("lane.seed").reindex(list(config.seeds))


def column(table, config: Config, ratio: float, name: str) -> np.ndarray:
    """[seeds]; NaN where there is none."""
    found = rows(table, config, ratio)
    return found[name].to_numpy(float) if name in found else np.full(len(config.seeds), np.nan)


def curves(table, config: Config, ratio: float) -> np.ndarray:
    """Validation loss [seeds, points] in nats per token."""
    empty = [np.nan] * len(config.measured_steps)
    found = rows(table, config, ratio).get("measures.validation.loss", [empty] * len(config.seeds))
    return np.array([x if isinstance(x, list) else empty for x in found], float)


def named(config: Config, ratio: float) -> str:
    return {1.0: "1", config.root: f"√d = {ratio:.3g}"}.get(ratio, f"{ratio:.3g}")


def _interval(values: np.ndarray) -> str:
    if (interval := analysis.t_interval(values)) is None:
        return "–"
    low, high = interval
    return f"{values.mean():.4g} [{low:.4g}, {high:.4g}]"


def summary(table, config: Config) -> str:
    """Every ratio: validation perplexity, and word-level perplexity of the scored text."""
    head = f"{'η_E/η':<12}{'validation perplexity':>26}{'perplexity by word':>26}{'line ends not counted':>26}"
    lines = [f"√d = {config.root:g}, η = {config.rate:g}", head]
    for ratio in config.ratios:
        found = [
            _interval(np.exp(column(table, config, ratio, "valid_loss"))),
            _interval(column(table, config, ratio, "perplexity_by_tokens")),
            _interval(column(table, config, ratio, "perplexity_by_words")),
        ]
        lines.append(f"{named(config, ratio):<12}  " + "  ".join(f"{words:>24}" for words in found))
    lines += [
        "",
        f"means over {len(config.seeds)} seeds, 95 % t intervals. By word: exp of the nats of all of the scored text "
        "over its words and line ends, whatever the tokenizer, by windows that advance by half a context",
    ]
    return "\n".join(lines)
