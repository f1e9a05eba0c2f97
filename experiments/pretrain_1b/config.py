"""The configuration of `pretrain_1b` at every preset, and its settings."""

from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from lvp.analysis.claims import refusal
from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, check_points, check_schedule, check_seeds, sorted_values
from lvp.experiments.common.decoder_runs import DecoderRuns
from lvp.experiments.common.experiment import SettingRuns
from lvp.parametrization import table, uniform
from lvp.training import OptimizerConfig, Run, Setting, check_positive


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are the model of Table 3.

    Table 3 states no optimizer, rate, schedule or batch. Their defaults are usual values. The init std is d^(−1/2).
    """

    corpus: str = "tokens:phi3"  # the paper's corpus is not public
    scored: str = "wikitext2"  # figure 5: perplexity of its test split
    layers: int = 24  # Table 3
    width: int = 2048  # Table 3
    vocab: int = 32064  # Table 3
    context: int = 4096  # Table 3
    heads: int = 32  # Table 3
    kv_heads: int = 8  # Table 3
    head_dim: int | None = 128  # Table 3
    window: int = 2048  # Table 3
    norm_epsilon: float = 1e-5  # not stated: a usual value
    dtype: str = "bfloat16"  # not stated: the accelerators' usual dtype
    scan: bool = True
    remat: str = "block"
    attention_block: int = 512  # queries per call of the attention kernel
    batch: int = 256  # not stated: 2^20 tokens
    micro_batches: int = 8
    steps: int = 62_000  # 65 B tokens
    rate: float = 3e-4  # not stated: a usual value
    rates: tuple[float, ...] = ()  # candidates, at ratios 1 and √d: the best at √d replaces `rate`; empty: not tuned
    selecting_seeds: tuple[int, ...] = ()  # seeds that select the rate
    powers: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)  # ratios: √d to these powers
    beyond: tuple[float, ...] = (2.0, 4.0)  # further ratios: √d times these
    warmup: float = 0.02  # not stated: fraction of the steps
    cooldown: float = 0.2  # not stated: fraction of the steps
    clip_norm: float = 1.0  # not stated: a usual value
    b2: float = 0.95  # not stated: a usual value
    weight_decay: float = 0.1  # not stated: a usual value
    points: int = 25  # measured steps, at equal distances
    scored_points: int = 0  # measured steps, at equal distances, after which words are scored; 0: at the end only
    order: str = "rows"  # each row of the corpus once per epoch

    def __post_init__(self):
        super().__post_init__()
        check_count(self, "width")
        for name in ("rate", "weight_decay"):
            check_positive(name, getattr(self, name))
        check_seeds(self, "seeds", least=2)
        if bool(self.rates) != bool(self.selecting_seeds):
            raise InputError(
                "rates and selecting_seeds belong together: give both, or neither; got "
                f"rates={self.rates} and selecting_seeds={self.selecting_seeds}"
            )
        if self.rates:
            sorted_values(self, "rates", least=3, positive=True)
            check_seeds(self, "selecting_seeds")
            if line := refusal(self.seeds, self.selecting_seeds):
                raise InputError(
                    f"seeds={self.seeds} cannot judge the rates that selecting_seeds={self.selecting_seeds} selected: "
                    f"{line}"
                )
        sorted_values(self, "powers", least=2)
        sorted_values(self, "beyond", positive=True)
        if not {0.0, 1.0} <= set(self.powers):
            raise InputError(f"powers must contain 0 (one rate for all) and 1 (√d), got {self.powers}")
        check_points(self)
        check_count(self, "scored_points", least=0, most=self.points)
        check_schedule(self.warmup, self.cooldown)

    @property
    def root(self) -> float:
        """√d, rounded to 4 digits."""
        return float(f"{self.width**0.5:.4g}")

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ratios of the embedding's rate to the other rates, in increasing order, rounded to 4 digits."""
        ratios = [self.root**p for p in self.powers] + [self.root * b for b in self.beyond]
        return tuple(sorted({float(f"{x:.4g}") for x in ratios}))

    @property
    def measured_steps(self) -> tuple[int, ...]:
        """Steps after which the validation loss is measured."""
        return tuple(sorted({round(x) - 1 for x in np.linspace(self.steps / self.points, self.steps, self.points)}))

    @property
    def scored_steps(self) -> tuple[int, ...]:
        """Measured steps after which words are scored. The last step is left out, since it is always scored."""
        measured, parts = self.measured_steps, range(1, self.scored_points)
        return tuple(sorted({measured[round(len(measured) * i / self.scored_points) - 1] for i in parts}))


# Shared by the small presets, whose data stays on the device.
_SMALL: dict[str, Any] = {"scan": False, "remat": "none", "order": "windows", "dtype": "float32", "seeds": (0, 1, 2)}
PRESETS = {
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
        scored_points=2,
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
        scored_points=5,
        rate=0.003,  # docs/pretrain_1b.md has the command that tunes it
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
        scored_points=5,
        rate=1e-3,
    ),
    "paper": Config(scored_points=5),
}


def setting_of(config: Config) -> Setting:
    """The setting of runs whose words are scored only at the end."""
    own = ("norm_epsilon", "attention_block", "heads", "kv_heads", "window")
    form = {"positions": "rotary", "mlp": "swiglu", **{name: getattr(config, name) for name in own}}
    model = config.model(config.width, config.vocab, **form)
    setting = config.setting(model, config.steps)
    return replace(
        setting,
        optimizer=OptimizerConfig("adamw", {**config.adam.options, "weight_decay": config.weight_decay}),
        data=replace(setting.data, scored=config.scored),
        measured_steps=config.measured_steps,
        measures=("validation",),
        cooldown=config.cooldown,
    )


def settings(config: Config) -> list[SettingRuns]:
    """The setting of most runs, and a setting that also scores words during the training of ratios 1 and √d.

    If the rate is tuned, the runs have every rate at ratios 1 and √d. `analysis.follow_up` adds the runs of the tuned
    rates, which are all runs of the second setting. Otherwise the runs have every ratio and judging seed.
    """
    if config.rates:
        points = product((1.0, config.root), config.rates, config.selecting_seeds)
        runs = {label(config): [run_of(config, *point) for point in points]}
    else:
        runs = judging_runs(config, config.rate, config.rate)
    setting = setting_of(config)
    planned = {label(config): setting}
    if config.scored_points:
        planned[label(config, scored=True)] = replace(setting, scored_steps=config.scored_steps)
    return [SettingRuns(name, setting, runs.get(name, [])) for name, setting in planned.items()]


def judging_runs(config: Config, rate: float, rate_for_all: float | None) -> dict[str, list[Run]]:
    """Setting label → runs of the judging seeds: every ratio at `rate`, and ratio 1 at `rate_for_all`.

    Words are scored during the training of √d at `rate` and of ratio 1 at `rate_for_all`.

    Args:
      rate_for_all: η of ratio 1 as a rival of √d; None omits this rival.
    """
    compared = [(config.root, rate), *([] if rate_for_all is None else [(1.0, rate_for_all)])]
    runs: dict[str, list[Run]] = {}
    for point in dict.fromkeys([*((ratio, rate) for ratio in config.ratios), *compared]):
        name = label(config, scored=bool(config.scored_points) and point in compared)
        runs.setdefault(name, []).extend(run_of(config, *point, seed) for seed in config.seeds)
    return runs


def label(config: Config, scored: bool = False) -> str:
    """The name of a setting.

    Args:
      scored: whether words are scored during training.
    """
    return f"d {config.width}" + ", words scored" * scored


def run_of(config: Config, ratio: float, rate: float, seed: int) -> Run:
    """The run with `rate` for all roles except the embedding, which has `ratio` · `rate`."""
    hidden = table("lvp", width=config.width, vocab=config.vocab)["hidden"]
    one_rate = uniform(width=config.width, vocab=config.vocab, init_std=hidden.init_std)
    rates = {"embedding": float(f"{rate * ratio:.6g}")}
    return Run.under(one_rate, rate, seed, rates=rates, warmup_steps=round(config.warmup * config.steps))
