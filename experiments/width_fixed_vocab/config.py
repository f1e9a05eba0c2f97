"""The configuration of `width_fixed_vocab` at every preset, and its settings."""

from dataclasses import dataclass, field
from functools import cache
from itertools import product

from lvp.errors import InputError
from lvp.experiments.common.checks import check_seeds, sorted_values
from lvp.experiments.common.decoder_runs import DecoderRuns, geometric, hidden_rate
from lvp.experiments.common.experiment import SettingRuns
from lvp.models.configs import OMITTED
from lvp.parametrization import Table, table
from lvp.training import Run, check_positive

DESIGNS = ("full", "star")
# Field of `Config` with a list of factors around 1 → name of the quantity in tables and figures.
FACTORS = {"output_rate_factors": "η_W/η_H", "embedding_std_factors": "σ_E √d", "output_std_factors": "σ_W √d"}


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are the paper preset. The paper gives no grids; these are ours."""

    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)  # C.1 has 2; here two select and three judge, the least for a claim
    vocab: int = 32768  # C.1
    widths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)  # C.1
    rates: tuple[float, ...] = geometric(2**-13, 2**-5, 9)  # η_E
    hidden_rates: tuple[float, ...] = geometric(0.05, 0.8, 5)  # η_H, times d
    output_rate_factors: tuple[float, ...] = (0.25, 1.0, 4.0)  # η_W over η_H
    embedding_std_factors: tuple[float, ...] = (0.25, 1.0, 4.0)  # σ_E over d^(−1/2)
    output_std_factors: tuple[float, ...] = (0.25, 1.0, 4.0)  # σ_W over d^(−1/2)
    design: str = "full"
    mup_init: bool = field(default=False, metadata=OMITTED)  # whether μP's init is trained too
    steps: int = 10_000  # C.1
    tolerance: float = 0.05  # relative excess of the loss that is near-optimal

    def __post_init__(self):
        super().__post_init__()
        check_seeds(self, "seeds", least=2)
        sorted_values(self, "widths", positive=True)
        sorted_values(self, "rates", least=3, positive=True)
        for name in ("hidden_rates", *FACTORS):
            sorted_values(self, name, positive=True)
        for name in FACTORS:
            if 1.0 not in getattr(self, name):
                raise InputError(f"{name} must contain 1, the value with equal points")
        if self.design not in DESIGNS:
            raise InputError(f"design must be one of {', '.join(DESIGNS)}, got {self.design!r}")
        check_positive("tolerance", self.tolerance)

    @property
    def selecting_seeds(self) -> tuple[int, ...]:
        """The first half of the seeds, which select the best points."""
        return self.seeds[: len(self.seeds) // 2]

    @property
    def judging_seeds(self) -> tuple[int, ...]:
        """The other seeds, which compare the selected points."""
        return self.seeds[len(self.seeds) // 2 :]


PRESETS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=8_000,
        valid_bytes=2_000,
        seeds=(0, 1),
        vocab=300,
        widths=(16, 24, 32),
        rates=geometric(0.004, 0.064, 3),
        hidden_rates=(0.2,),
        output_rate_factors=(0.25, 1.0),
        embedding_std_factors=(1.0,),
        output_std_factors=(1.0, 4.0),
        design="star",
        context=32,
        batch=4,
        steps=30,
    ),
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=60_000,
        valid_bytes=20_000,
        seeds=(0, 1, 2, 3, 4, 5),  # three select, three judge
        vocab=4096,
        widths=(32, 48, 80, 128),
        rates=geometric(0.004, 1.024, 9),  # at d 32 the best rate is 0.256 or more
        hidden_rates=(0.1, 0.2, 0.4, 0.8),
        output_rate_factors=(0.25, 1.0, 4.0, 16.0),  # at d 128 the best factor is 4 or more
        design="star",
        mup_init=True,
        context=64,
        batch=8,
        steps=400,
    ),
    "gpu": Config(
        slice_bytes=2_000_000,
        valid_bytes=200_000,
        widths=(256, 512, 1024),
        rates=geometric(2**-12, 2**-4, 9),
        hidden_rates=(0.1, 0.2, 0.4),
        design="star",
        steps=600,
    ),
    "paper": Config(mup_init=True),
}
COMMON = dict.fromkeys(FACTORS, 1.0)  # equal points of hidden, output and embedding


def rays(config: Config) -> list[dict[str, float]]:
    """The factors of the rays of a star: in each, one factor differs from 1."""
    return [COMMON | {name: value} for name in FACTORS for value in getattr(config, name) if value != 1.0]


def mup_init(width: int) -> dict[str, float]:
    """The factors of μP's init: σ_E = 1, σ_W = 1/d (Hayou & Liu 2025, table 1)."""
    return COMMON | {"embedding_std_factors": width**0.5, "output_std_factors": width**-0.5}


def mup_rates(config: Config, best: int) -> tuple[float, ...]:
    """The η_E under μP's init in a star: from two below the best under LVP's init (an index) to three above it.

    The larger init needs larger rates, so that the grid goes on at its last ratio.
    """
    ratio = config.rates[-1] / config.rates[-2]
    beyond = tuple(float(f"{config.rates[-1] * ratio**n:.4g}") for n in (1, 2, 3))
    return (config.rates + beyond)[max(0, best - 2) : best + 4]


def all_factors(config: Config) -> list[dict[str, float]]:
    """Every combination of factors that the design runs."""
    if config.design == "star":
        return [COMMON, *rays(config)]
    return [dict(zip(FACTORS, values, strict=True)) for values in product(*(getattr(config, n) for n in FACTORS))]


def points(config: Config) -> list[tuple[float, float, dict[str, float]]]:
    """(η_E, η_H d, factors) of every run of one seed, without the runs of `follow_up`."""
    factors = [COMMON] if config.design == "star" else all_factors(config)
    return list(product(config.rates, config.hidden_rates, factors))


@cache
def _lvp(width: int, vocab: int) -> Table:
    """LVP's table, cached because all runs of a width share it."""
    return table("lvp", width=width, vocab=vocab)


def run(width: int, vocab: int, rate: float, hidden: float, factors: dict[str, float], seed: int) -> Run:
    """The run of LVP at η_E = `rate` and η_H = `hidden`/d, with factors on η_W, σ_E and σ_W."""
    lvp = _lvp(width, vocab)
    rates = {"embedding": rate, "output": hidden_rate(hidden, width) * factors["output_rate_factors"]}
    stds = {
        "embedding": lvp["embedding"].init_std * factors["embedding_std_factors"],
        "output": lvp["output"].init_std * factors["output_std_factors"],
    }
    return Run.under(lvp, hidden_rate(hidden, width), seed, rates=rates, stds=stds)


def label(config: Config, width: int) -> str:
    """The name of the setting of a width."""
    return f"d {width}, m {config.vocab}"


def settings(config: Config) -> list[SettingRuns]:
    """One setting per width."""
    planned = []
    for width in config.widths:
        tried = points(config)
        if config.mup_init and config.design == "full":
            tried += product(config.rates, config.hidden_rates, [mup_init(width)])
        runs = [run(width, config.vocab, *point, seed) for point in tried for seed in config.seeds]
        setting = config.setting(config.model(width, config.vocab), config.steps)
        planned.append(SettingRuns(label(config, width), setting, runs))
    return planned
