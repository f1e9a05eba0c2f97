"""Does an embedding that learns √d times as fast as the rest still win at production scale?

Hayou & Liu 2025 (paper A), section 5 and C.3: the "1B" (Table 3) under AdamW on the corpus of Phi-3, its embedding
learning ratio times as fast as all the rest. Figure 4: perplexity over training for ratios 1 and √d, and for several on
65 B tokens (√d near-optimal, larger ones of marginal benefit). Figure 5: word-level perplexity on WikiText's test set,
√d better throughout. The corpus is not public: any text serves; perplexities compare ratios, not papers.

    python -m sweeps run pretrain_1b --tier laptop --corpus wikitext2      2 CPU cores, an hour
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.checks import check_count, check_points, check_schedule, check_seeds, sorted_values
from experiments.decoder_runs import DecoderRuns, same, where
from experiments.experiment import CellLanes, Experiment
from lvp import analysis
from lvp.analysis.claims import ABOVE_ZERO, Claim, of_values
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.errors import InputError
from lvp.training import Cell, Lane, OptimizerConfig, check_positive

PAPER_A = "Hayou & Liu 2025"


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are Table 3's; rate, schedule, batch, init and AdamW's constants are not stated there, and usual."""

    corpus: str = "tokens:phi3"
    scored: str = "wikitext2"  # figure 5: its test split
    layers: int = 24
    width: int = 2048
    vocab: int = 32064
    context: int = 4096
    heads: int = 32
    kv_heads: int = 8
    head_dim: int | None = 128
    window: int = 2048
    norm_epsilon: float = 1e-5
    dtype: str = "bfloat16"
    scan: bool = True
    remat: str = "block"
    attention_block: int = 512
    batch: int = 256
    micro_batches: int = 8
    steps: int = 62_000  # 65 B tokens
    rate: float = 3e-4
    powers: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)  # the ratio is √d to this power …
    beyond: tuple[float, ...] = (2.0, 4.0)  # … or √d times this
    warmup: float = 0.02
    cooldown: float = 0.2
    clip_norm: float = 1.0
    b2: float = 0.95
    weight_decay: float = 0.1
    points: int = 25  # of the curves, evenly over the steps
    order: str = "rows"

    def __post_init__(self):
        super().__post_init__()
        check_count(self, "width")
        for name in ("rate", "clip_norm", "weight_decay"):
            check_positive(name, getattr(self, name))
        check_seeds(self, "seeds", least=2)
        sorted_values(self, "powers", least=2)
        sorted_values(self, "beyond", positive=True)
        if not {0.0, 1.0} <= set(self.powers):
            raise InputError(f"powers must hold 0 (one rate for all) and 1 (√d), got {self.powers}")
        check_points(self)
        check_schedule(self.warmup, self.cooldown)

    @property
    def root(self) -> float:
        """√d, to 4 digits: it is a name as much as a number."""
        return float(f"{self.width**0.5:.4g}")

    @property
    def ratios(self) -> tuple[float, ...]:
        """Of the embedding's rate to the others'."""
        found = [self.root**p for p in self.powers] + [self.root * b for b in self.beyond]
        return tuple(sorted({float(f"{x:.4g}") for x in found}))

    @property
    def measured_steps(self) -> tuple[int, ...]:
        return tuple(sorted({round(x) - 1 for x in np.linspace(self.steps / self.points, self.steps, self.points)}))


# Of both small tiers: what is small is kept on the device.
_SMALL: dict[str, Any] = {"scan": False, "remat": "none", "order": "windows", "dtype": "float32", "seeds": (0, 1, 2)}

TIERS = {
    "smoke": Config(
        corpus="python-docs",
        scored="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        **(_SMALL | {"seeds": (0, 1)}),
        layers=1,
        width=16,
        vocab=300,
        context=16,
        heads=4,
        kv_heads=2,
        head_dim=4,
        window=8,
        attention_block=8,
        batch=4,
        micro_batches=1,
        steps=60,
        rate=0.01,
        powers=(0.0, 1.0),
        beyond=(4.0,),
        points=3,
    ),
    "laptop": Config(
        corpus="wikitext2",
        valid_bytes=200_000,
        **_SMALL,
        layers=4,
        width=128,
        vocab=4096,
        context=256,
        heads=4,
        kv_heads=1,
        head_dim=32,
        window=128,
        attention_block=64,
        batch=16,
        micro_batches=1,
        steps=250,  # 1 M tokens
        rate=0.003,
    ),
    "gpu": Config(
        corpus="wikitext2",
        **(_SMALL | {"dtype": "bfloat16"}),
        layers=12,
        width=512,
        vocab=16384,
        context=1024,
        heads=8,
        kv_heads=2,
        head_dim=64,
        window=512,
        batch=64,
        micro_batches=2,
        steps=1500,
        rate=1e-3,
    ),
    "paper": Config(),
}


def cell_of(config: Config) -> Cell:
    decay = dict.fromkeys(("embedding", "position", "hidden", "output"), config.weight_decay)
    options = {"b1": config.b1, "b2": config.b2, "eps": config.eps, "weight_decay": decay}
    training = {
        "micro_batches": config.micro_batches,
        "cooldown": config.cooldown,
        "clip_norm": config.clip_norm,
        "measures": ("validation",),
    }
    model = ("heads", "kv_heads", "window", "norm_epsilon", "scan", "remat", "attention_block")
    return config.cell(
        config.width,
        config.vocab,
        config.steps,
        OptimizerConfig("adamw", options),
        config.measured_steps,
        training,
        data={"scored": config.scored, "order": config.order},
        positions="rotary",
        mlp="swiglu",
        **{name: getattr(config, name) for name in model},
    )


def cells(config: Config) -> list[CellLanes]:
    """One cell: ratios and seeds are traced."""
    lanes = [_lane(config, ratio, seed) for ratio in config.ratios for seed in config.seeds]
    return [CellLanes(f"d {config.width}", cell_of(config), lanes)]


def _lane(config: Config, ratio: float, seed: int) -> Lane:
    rates = same(config.rate) | {"embedding": float(f"{config.rate * ratio:.6g}")}
    return Lane(rates, same(config.width**-0.5), seed, warmup_steps=round(config.warmup * config.steps))


# --- what the records say ---------------------------------------------------------------------------------------------


def rows(table, config: Config, ratio: float):
    """The lanes of a ratio, a row a seed; nothing but NaN in the row of one that is missing or diverged."""
    rate = _lane(config, ratio, 0).learning_rates["embedding"]
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


def _named(config: Config, ratio: float) -> str:
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
        lines.append(f"{_named(config, ratio):<12}  " + "  ".join(f"{words:>24}" for words in found))
    lines += [
        "",
        f"means over {len(config.seeds)} seeds, 95 % t intervals. By word: exp of the nats of all of the scored text "
        "over its words and line ends, whatever the tokenizer, by windows that advance by half a context",
    ]
    return "\n".join(lines)


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Perplexity over training by ratio (figure 4), and word-level perplexity over the ratio (figure 5)."""
    steps, over_time = np.array(config.measured_steps) + 1, []
    for ratio in config.ratios:
        means = np.exp(curves(table, config, ratio).mean(axis=0))
        if np.isfinite(means).all():
            over_time.append(Series(_named(config, ratio), steps, means, fitted=means))
    panels = [Panel("over training", "step", "validation perplexity", over_time, legend="η_E/η", ordered=True)]
    for title, name, of in (
        ("at the end", "valid_loss", np.exp),
        ("by word, scored text", "perplexity_by_tokens", lambda x: x),
    ):
        values = np.array([of(column(table, config, ratio, name)) for ratio in config.ratios])
        known = np.isfinite(values).all(axis=1)
        ratios, values = np.array(config.ratios)[known], values[known]
        means, error = values.mean(axis=1), np.ptp(values, axis=1) / 2
        series = [Series("mean over seeds", ratios, means, error=error, fitted=means)]
        panels.append(Panel(title, "η_E/η", "perplexity", series))
    return sheet(
        panels,
        title="How fast the embedding learns beside the rest",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[f"√d = {config.root:g}. Bars: half the range over seeds. All other rates are {config.rate:g}."],
    )


def claims(table, config: Config, context) -> list[Claim]:
    """Figures 4 and 5, seed by seed."""
    losses = {ratio: column(table, config, ratio, "valid_loss") for ratio in config.ratios}
    words = {ratio: np.log(column(table, config, ratio, "perplexity_by_tokens")) for ratio in config.ratios}
    means = {ratio: x.mean() for ratio, x in losses.items() if np.isfinite(x).all()}
    best = min(means, key=means.__getitem__) if means else config.root
    root, largest = config.root, config.ratios[-1]
    nats = "nats per token of validation text"
    made = [
        ("√d is better than one rate for all", 4, losses[1.0] - losses[root], ABOVE_ZERO, "> 0", nats),
        (
            "√d is within 0.02 nats of the best ratio",
            4,
            losses[root] - losses[best],
            (-np.inf, 0.02),
            "near-optimal",
            f"{nats}, against ratio {best:g}, the best of these seeds",
        ),
        (
            f"{largest / root:g} √d gains little over √d",
            4,
            losses[root] - losses[largest],
            (-np.inf, 0.02),
            "marginal",
            f"{nats}, at most 0.02",
        ),
        (
            "√d is better than one rate for all, by word",
            5,
            words[1.0] - words[root],
            ABOVE_ZERO,
            "> 0",
            "difference in ln of word-level perplexity",
        ),
    ]
    return [
        of_values(
            values,
            claimed=claimed,
            statement=statement,
            source=f"{PAPER_A}, figure {number}",
            paper_value=paper,
            note=f"{note}; t interval over {len(values)} seeds",
            **dict(context),
        )
        for statement, number, values, claimed, paper, note in made
    ]


EXPERIMENT = Experiment(
    name="pretrain_1b",
    question="does an embedding that learns √d times as fast as the rest still win at production scale?",
    tiers=TIERS,
    cells=cells,
    summary=summary,
    figure=figure,
    claims=claims,
    paper=PAPER_A,
    answers=("figure 4", "figure 5"),
)
