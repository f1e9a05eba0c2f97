"""The configuration of `width_vocab` at every preset, and its settings."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import product

from lvp.analysis.bracketing import coarse_rates
from lvp.errors import InputError
from lvp.experiments.common.checks import check_names, check_seeds, sorted_values
from lvp.experiments.common.decoder_runs import DecoderRuns, geometric, hidden_rate
from lvp.experiments.common.experiment import SettingRuns
from lvp.models.configs import OMITTED, DecoderConfig, forward_multipliers
from lvp.parametrization import TOKEN_ROWS, row_multiplier, table
from lvp.training import Run, check_positive

HORIZONS = 5  # equal parts of the training; the slope is read at the end of each
GRID, ADAPTIVE = DESIGNS = ("grid", "adaptive")
# How rows enter the model → name of this reading of the paper.
READINGS = {"plain": "rows plain", "sqrt": "rows × √d", "normalized": "rows / RMS"}


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are the paper preset.

    A comment names the paper's section, or gives the reason for a value that the paper does not state.
    """

    widths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)  # C.2
    vocab_per_width: int = 8  # C.2: m = 8 d
    token_rows: tuple[str, ...] = ("sqrt", "plain")  # not stated: how rows enter the model
    rates: tuple[float, ...] = geometric(2**-13, 2**-3, 21)  # not stated; η_E times the factor on the rows
    # Ours: η_E of the reading `normalized`; () is `rates`. Its loss depends little on η_E, so its grid is wider.
    normalized_rates: tuple[float, ...] = field(default=(), metadata=OMITTED)
    rate_times_width: float = 0.2  # C.2: η_hidden = η_output = 0.2/d
    steps: int = 10_000  # C.2
    tolerance: float = 0.2  # figure 3: the shaded curve is the mean of rates within 20 % of the best loss
    # C.2 tunes η_hidden · d = η_output · d at the smallest width. The values to try; () is `rate_times_width`.
    hidden_constants: tuple[float, ...] = field(default=(), metadata=OMITTED)
    tuning_seeds: tuple[int, ...] = field(default=(), metadata=OMITTED)  # ours: of the runs that tune η_hidden · d
    # Not stated. GRID: a run for every rate and seed. ADAPTIVE: the runs of `lvp.analysis.bracketing`.
    design: str = field(default=GRID, metadata=OMITTED)

    def __post_init__(self):
        super().__post_init__()
        sorted_values(self, "widths", positive=True)
        sorted_values(self, "rates", least=3, positive=True)  # an optimum has neighbours
        if self.normalized_rates:
            sorted_values(self, "normalized_rates", least=3, positive=True)
        check_names("token_rows", self.token_rows, TOKEN_ROWS)
        check_positive("rate_times_width", self.rate_times_width)
        check_positive("tolerance", self.tolerance, zero=True)
        if self.hidden_constants:
            sorted_values(self, "hidden_constants", least=3, positive=True)
            check_seeds(self, "tuning_seeds")
            if shared := sorted(set(self.seeds) & set(self.tuning_seeds)):
                raise InputError(f"tuning_seeds and seeds share {', '.join(map(str, shared))}; use other tuning_seeds")
        elif self.tuning_seeds:
            given = ", ".join(map(str, self.tuning_seeds))
            raise InputError(f"tuning_seeds={given} needs hidden_constants; set hidden_constants, or set tuning_seeds=")
        if self.design not in DESIGNS:
            raise InputError(f"design must be one of {', '.join(DESIGNS)}, got {self.design!r}")
        if self.design == ADAPTIVE:  # refuses few rates
            coarse_rates(len(self.rates))
            coarse_rates(len(self.normalized_rates or self.rates))
        if self.vocab_per_width < 1:
            raise InputError(f"vocab_per_width must be at least 1, got {self.vocab_per_width}")

    def embedding_rates(self, token_rows: str, width: int) -> tuple[float, ...]:
        """η_E of the runs: `rates` divided by the embedding's forward multiplier, rounded to 4 digits.

        For normalized rows, `normalized_rates`.
        """
        if token_rows == "normalized" and self.normalized_rates:
            return self.normalized_rates
        return tuple(float(f"{rate / row_multiplier(token_rows, width):.4g}") for rate in self.rates)

    @property
    def horizons(self) -> tuple[int, ...]:
        """Steps at which the slope is read. Rates are constant, so the first part of a run is a shorter run."""
        return tuple(sorted({max(1, self.steps * part // HORIZONS) for part in range(1, HORIZONS + 1)}))


# docs/width_vocab.md explains the choice of the laptop preset.
PRESETS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        widths=(32, 40, 48),
        token_rows=("sqrt",),
        rates=geometric(0.002, 0.128, 4),
        seeds=(0,),
        context=32,
        batch=4,
        steps=60,
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=60_000,
        valid_bytes=20_000,
        widths=(32, 48, 64, 96, 128),
        rates=geometric(0.002, 0.128, 9)[1:7],
        normalized_rates=geometric(0.004, 0.256, 7),
        context=64,
        batch=8,
        steps=1500,
    ),
    "workstation": Config(
        corpus="wikitext2",
        slice_bytes=180_000,
        valid_bytes=20_000,
        widths=(64, 96, 128, 192, 256, 512),
        rates=geometric(0.002, 0.128, 9)[:7],
        normalized_rates=geometric(0.004, 0.256, 7),
        hidden_constants=(0.1, 0.2, 0.4, 0.8, 1.6),
        tuning_seeds=(3, 4),
        design=ADAPTIVE,
        context=64,
        batch=4,
        steps=2000,
    ),
    "gpu": Config(
        widths=(128, 256, 512, 1024),
        token_rows=("sqrt",),
        rates=geometric(0.008, 0.128, 5),  # at d 512 and 1024, 0.032 was best of 0.002 to 0.032
        seeds=(0, 1),
        valid_bytes=200_000,
        batch=32,  # 12.3 million tokens a run, about four epochs of WikiText-2
        steps=1500,
        dtype="bfloat16",
        attention="fused",
    ),
    "paper": Config(),
}


def settings(config: Config) -> list[SettingRuns]:
    """One setting per reading and width, with the runs that depend on no result."""
    if config.hidden_constants:
        return [
            tuning_setting(config, token_rows)
            if width == config.widths[0]
            else grid_setting(config, token_rows, width, config.rate_times_width)._replace(runs=())
            for token_rows, width in shapes(config)
        ]
    grid = grid_settings(config)
    if config.design == GRID:
        return grid
    return [
        planned._replace(runs=runs_at(config, planned, _coarse_runs(config, *shape)))
        for planned, shape in zip(grid, shapes(config), strict=True)
    ]


def _coarse_runs(config: Config, token_rows: str, width: int) -> list[tuple[int, int]]:
    """The first runs of the adaptive design, as (index of the seed, index of the rate)."""
    return [(0, rate) for rate in coarse_rates(len(config.embedding_rates(token_rows, width)))]


def all_runs(config: Config) -> list[SettingRuns]:
    """The settings with as many runs as the sweep may train. Runs after the tuning are at `rate_times_width`."""
    return [
        each._replace(runs=[*tuning_setting(config, token_rows).runs, *each.runs])
        if config.hidden_constants and width == config.widths[0]
        else each
        for each, (token_rows, width) in zip(grid_settings(config), shapes(config), strict=True)
    ]


def runs_at(config: Config, planned: SettingRuns, indices: Iterable[tuple[int, int]]) -> list:
    """The runs of a setting of the grid at the given indices of seed and rate."""
    return [planned.runs[rate * len(config.seeds) + seed] for seed, rate in indices]


def shapes(config: Config) -> list[tuple[str, int]]:
    """(reading, width) of every setting."""
    return list(product(config.token_rows, config.widths))


def grid_settings(config: Config) -> list[SettingRuns]:
    """One setting per reading and width, with a run for every rate and seed."""
    return [grid_setting(config, *shape, config.rate_times_width) for shape in shapes(config)]


def grid_setting(config: Config, token_rows: str, width: int, hidden_constant: float) -> SettingRuns:
    """The setting of a reading and a width, with a run for every rate and seed at η_hidden = `hidden_constant` / d."""
    vocab = config.vocab_per_width * width
    name = label(config, token_rows, width)
    return swept_setting(replace(config, rate_times_width=hidden_constant), name, token_rows, width, vocab)


def tuning_setting(config: Config, token_rows: str) -> SettingRuns:
    """The setting of the smallest width, with the runs that tune η_hidden · d."""
    tuning = tuning_config(config)
    settings = [grid_setting(tuning, token_rows, config.widths[0], value) for value in config.hidden_constants]
    return settings[0]._replace(runs=[run for planned in settings for run in planned.runs])


def tuning_config(config: Config) -> Config:
    """The configuration of the runs that tune η_hidden · d.

    They are the tuning seeds at all rates, or at the coarse rates of the adaptive design.
    """
    tuning = replace(config, hidden_constants=(), tuning_seeds=(), seeds=config.tuning_seeds, design=GRID)
    if config.design == GRID:
        return tuning
    rates, normalized = (
        tuple(grid[i] for i in coarse_rates(len(grid))) if grid else ()
        for grid in (config.rates, config.normalized_rates)
    )
    return replace(tuning, rates=rates, normalized_rates=normalized)


def swept_setting(config: Config, name: str, token_rows: str, width: int, vocab: int) -> SettingRuns:
    """The setting of a shape, with a run for every rate and seed."""
    lvp_table = table("lvp", width=width, vocab=vocab, token_rows=token_rows)
    runs = [
        Run.under(lvp_table, hidden_rate(config.rate_times_width, width), seed, rates={"embedding": rate})
        for rate in config.embedding_rates(token_rows, width)
        for seed in config.seeds
    ]
    model = replace(config.model(width, vocab), **forward_multipliers(lvp_table))
    return SettingRuns(name, config.setting(model, config.steps), runs)


def setting_model(config: Config, token_rows: str, width: int) -> DecoderConfig:
    """The decoder of a reading at a width."""
    vocab = config.vocab_per_width * width
    multipliers = forward_multipliers(table("lvp", width=width, vocab=vocab, token_rows=token_rows))
    return replace(config.model(width, vocab), **multipliers)


def label(config: Config, token_rows: str, width: int) -> str:
    """The name of a setting; with one reading the reading is left out."""
    shape = f"d {width}, m {config.vocab_per_width * width}"
    return shape if len(config.token_rows) == 1 else f"{shape}, {READINGS[token_rows]}"
