"""The configuration of `row_growth` at every preset, and its settings."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, check_names, check_points, sorted_values
from lvp.experiments.common.decoder_runs import DecoderRuns, geometric, hidden_rate
from lvp.experiments.common.experiment import SettingRuns
from lvp.models.configs import CHOICES, DecoderConfig, forward_multipliers
from lvp.parametrization import row_multiplier, table
from lvp.training import OptimizerConfig, Run, Setting, check_positive

TOKEN_ROWS = ("sqrt", "plain")  # normalized rows have no constant factor
OPTIMIZERS = {"adam": "Adam", "lion_a": "LionA"}  # key of `lvp.training.OPTIMIZERS` → name in tables
PREFIXES = (0.2, 0.4)  # parts of a run that are read as shorter runs; both end at a point of the curve


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are the paper preset. The shapes are those of Hayou & Liu 2025; all else is ours.

    The base variant has `width`, `steps`, factors of 1, and the first of `token_rows`, `positions` and `optimizers`.
    """

    vocab: int = 32768  # C.1; fixed, so that widths have the same tokens
    width: int = 1024  # of the base variant
    widths: tuple[int, ...] = (256, 1024, 4096)
    token_rows: tuple[str, ...] = TOKEN_ROWS  # how rows enter the model, at every width
    steps: int = 10_000  # C.1; of the base variant
    horizons: tuple[int, ...] = (2_000, 10_000, 80_000)  # steps of separate runs, at every width
    long_seeds: int = 2  # number of seeds at horizons above `steps`: the first of `seeds`
    long_rates: int = 6  # number of rates at horizons above `steps`, at most: the lowest of the grid
    amplitude_factors: tuple[float, ...] = (0.25, 1.0, 4.0)  # on the sinusoidal positions
    std_factors: tuple[float, ...] = (0.25, 1.0, 4.0)  # σ_E √d
    positions: tuple[str, ...] = ("sinusoidal", "learned", "rotary")
    optimizers: tuple[str, ...] = tuple(OPTIMIZERS)  # keys of `OPTIMIZERS`
    rate_times_width: float = 0.2  # C.2: η_hidden = η_output = 0.2/d
    lowest_rate: float = 0.125  # of the grid of η_E s √T
    highest_rate: float = 4.0  # as lowest_rate
    num_rates: int = 6  # as lowest_rate
    points: int = 8  # measured steps, at equal ratios
    tolerance: float = 0.25  # of the law's constant

    def __post_init__(self):
        super().__post_init__()
        for name, base in (("widths", self.width), ("horizons", self.steps)):
            sorted_values(self, name, positive=True)
            if base not in getattr(self, name):
                raise InputError(
                    f"{name} must contain {base}, the value of the base variant; got {getattr(self, name)}"
                )
        for name in ("amplitude_factors", "std_factors"):
            sorted_values(self, name, positive=True)
            if 1.0 not in getattr(self, name):
                raise InputError(f"{name} must contain 1, the value of the base variant; got {getattr(self, name)}")
        check_names("token_rows", self.token_rows, TOKEN_ROWS)
        check_names("positions", self.positions, CHOICES["positions"])
        check_names("optimizers", self.optimizers, OPTIMIZERS)
        if self.positions[0] != "sinusoidal":
            raise InputError(f"positions must begin with sinusoidal, which has an amplitude; got {self.positions}")
        for name in ("position_amplitude", "rate_times_width", "lowest_rate", "highest_rate", "tolerance"):
            check_positive(name, getattr(self, name))
        if self.lowest_rate >= self.highest_rate:
            raise InputError(f"lowest_rate ({self.lowest_rate}) must be below highest_rate ({self.highest_rate})")
        check_count(self, "num_rates", least=3, most=100)
        if len(set(geometric(self.lowest_rate, self.highest_rate, self.num_rates))) < self.num_rates:
            raise InputError(f"num_rates ({self.num_rates}) gives equal rates between lowest_rate and highest_rate")
        check_count(self, "long_seeds")
        check_count(self, "long_rates", least=3)
        check_points(self)


@dataclass(frozen=True)
class Variant:
    """One combination of the factors; its runs differ in rate and seed."""

    width: int  # d
    steps: int  # T
    token_rows: str  # of `TOKEN_ROWS`
    amplitude: float = 1.0  # factor on the base's sinusoidal positions
    std: float = 1.0  # σ_E √d
    positions: str = "sinusoidal"  # of `DecoderConfig.positions`
    optimizer: str = "adam"  # of `OPTIMIZERS`

    @property
    def row_factor(self) -> float:
        """s, the factor on the rows as they enter."""
        return row_multiplier(self.token_rows, self.width)

    @property
    def label(self) -> str:
        """The name in tables and figures."""
        rows = {"sqrt": "rows × √d", "plain": "rows plain"}[self.token_rows]
        parts = [f"d {self.width}", f"T {self.steps}", rows]
        parts += [f"positions × {self.amplitude:g}"] * (self.amplitude != 1)
        parts += [f"σ_E × {self.std:g}"] * (self.std != 1)
        parts += [f"{self.positions} positions"] * (self.positions != "sinusoidal")
        parts += [OPTIMIZERS[self.optimizer]] * (self.optimizer != "adam")
        return ", ".join(parts)


def base(config: Config) -> Variant:
    """The base variant. Every other variant differs from it in one factor, or in the width and one factor."""
    return Variant(config.width, config.steps, config.token_rows[0], optimizer=config.optimizers[0])


def variants(config: Config) -> list[Variant]:
    """All variants, each once: row factor and horizon at every width, the other factors at the base width."""
    return list(dict.fromkeys(_variants(config)))


def _variants(config: Config) -> Iterator[Variant]:
    start = base(config)
    for width in config.widths:
        yield from (replace(start, width=width, token_rows=rows) for rows in config.token_rows)
        yield from (replace(start, width=width, steps=steps) for steps in config.horizons)
    yield from (replace(start, amplitude=factor) for factor in config.amplitude_factors)
    yield from (replace(start, std=factor) for factor in config.std_factors)
    yield from (replace(start, positions=positions) for positions in config.positions)
    yield from (replace(start, optimizer=optimizer) for optimizer in config.optimizers)


def growths(config: Config, variant: Variant) -> tuple[float, ...]:
    """The grid of η_E s √T of a variant.

    A factor other than 1 on the amplitude or the init std extends the grid by this factor, upwards if it is above 1 and
    downwards if it is below. The grid then contains the optimum whether or not the optimum follows the factor. Runs
    longer than the base variant's have only the lowest rates, because their optimum is lower.
    """
    factor = variant.amplitude * variant.std
    low, high = config.lowest_rate * min(1.0, factor), config.highest_rate * max(1.0, factor)
    ratio = math.log(config.highest_rate / config.lowest_rate) / (config.num_rates - 1)
    rates = geometric(low, high, config.num_rates + min(100, round(abs(math.log(factor)) / ratio)))
    return rates[: config.long_rates] if variant.steps > config.steps else rates


def embedding_rates(config: Config, variant: Variant) -> tuple[float, ...]:
    """η_E of a variant's runs, rounded to 4 digits."""
    unit = variant.row_factor * math.sqrt(variant.steps)
    return tuple(float(f"{growth / unit:.4g}") for growth in growths(config, variant))


def seeds(config: Config, variant: Variant) -> tuple[int, ...]:
    """The seeds of a variant: fewer for runs longer than the base variant's."""
    return config.seeds[: config.long_seeds] if variant.steps > config.steps else config.seeds


def prefixes(config: Config, variant: Variant) -> tuple[int, ...]:
    """The steps at which a variant's runs are read as shorter runs: from the shortest horizon to its own steps."""
    read = {int(variant.steps * part) for part in PREFIXES}
    return tuple(sorted(steps for steps in read | {variant.steps} if steps >= config.horizons[0]))


def measured_steps(config: Config, variant: Variant) -> tuple[int, ...]:
    """Steps whose inputs are measured: at equal ratios, and the last step of every prefix."""
    equal_ratios = {round(x) - 1 for x in np.geomspace(1, variant.steps, config.points)}
    return tuple(sorted(equal_ratios | {steps - 1 for steps in prefixes(config, variant)}))


def model(config: Config, variant: Variant) -> DecoderConfig:
    """The decoder of a variant."""
    sinusoidal = variant.positions == "sinusoidal"
    multipliers = forward_multipliers(
        table("lvp", width=variant.width, vocab=config.vocab, token_rows=variant.token_rows)
    )
    return replace(
        config.model(variant.width, config.vocab),
        positions=variant.positions,
        position_amplitude=config.position_amplitude * variant.amplitude if sinusoidal else 1.0,
        **multipliers,
    )


def setting(config: Config, variant: Variant) -> Setting:
    """The setting of a variant. Settings that differ in the init std share it."""
    lion_a = OptimizerConfig("lion_a", {"b": config.b1, "weight_decay": 0.0})  # as Adam: no decay, the same momentum
    return replace(
        config.setting(model(config, variant), variant.steps),
        optimizer={"adam": config.adam, "lion_a": lion_a}[variant.optimizer],
        measured_steps=measured_steps(config, variant),
        measures=("inputs", "later_positions"),
    )


def run(config: Config, variant: Variant, rate: float, seed: int) -> Run:
    """LVP's run with another embedding rate and another init std of the embedding."""
    lvp = table("lvp", width=variant.width, vocab=config.vocab, token_rows=variant.token_rows)
    stds = {"embedding": lvp["embedding"].init_std * variant.std}
    return Run.under(
        lvp, hidden_rate(config.rate_times_width, variant.width), seed, rates={"embedding": rate}, stds=stds
    )


def settings(config: Config) -> list[SettingRuns]:
    """One setting per program, named after its first variant."""
    planned: list[SettingRuns] = []
    for variant in variants(config):
        runs = [
            run(config, variant, rate, seed)
            for rate in embedding_rates(config, variant)
            for seed in seeds(config, variant)
        ]
        own = setting(config, variant)
        for i, other in enumerate(planned):
            if other.setting == own:
                planned[i] = other._replace(runs=[*other.runs, *runs])
                break
        else:
            planned.append(SettingRuns(variant.label, own, runs))
    return planned


PRESETS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        seeds=(0, 1),
        layers=1,
        context=32,
        batch=4,
        vocab=300,
        width=16,
        widths=(16, 24),
        steps=50,
        horizons=(50, 100),
        amplitude_factors=(1.0, 4.0),
        std_factors=(1.0,),
        positions=("sinusoidal", "rotary"),
        optimizers=("adam",),
        lowest_rate=0.5,  # 50 steps are too few for rows to grow: the best rate is higher
        highest_rate=32.0,
        num_rates=4,
        points=4,
    ),
    # 12,000 steps of this batch are fewer tokens than the text has. docs/row_growth.md gives the reasons.
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=8_000_000,
        valid_bytes=20_000,
        context=64,
        batch=4,
        vocab=512,
        width=64,
        widths=(32, 64, 128),
        steps=1_500,
        horizons=(300, 1_500, 12_000),
        long_seeds=3,
        highest_rate=16.0,
        num_rates=8,
    ),
    "gpu": Config(
        slice_bytes=2_000_000,
        valid_bytes=200_000,
        vocab=4096,
        width=512,
        widths=(256, 512, 1024),
        steps=2_000,
        horizons=(500, 2_000, 10_000),
    ),
    "paper": Config(),
}
