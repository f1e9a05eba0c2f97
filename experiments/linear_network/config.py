"""The configuration of `linear_network` at every preset, and its settings."""

from dataclasses import dataclass

from lvp.data.tokens.tokenizers import SMALLEST
from lvp.errors import InputError
from lvp.experiments.common.checks import check_names, check_seeds, sorted_values
from lvp.experiments.common.decoder_runs import geometric
from lvp.experiments.common.experiment import Calculation, SettingRuns
from lvp.experiments.common.shape_powers import Slice, slices
from lvp.experiments.width_vocab.config import READINGS
from lvp.training import DataConfig, check_positive

VOCAB_PER_WIDTH = 8
GROWING = f"m = {VOCAB_PER_WIDTH} d"
MOST_STEPS = 100_000  # the losses of all steps are in memory
GROWTH, ALIGNMENT = "growth", "alignment"  # the two scaling arguments of docs/theory.md
POWERS = {  # argument → how rows enter → power of d
    GROWTH: {"plain": 0.0, "normalized": -0.5},
    ALIGNMENT: {"plain": -0.5, "normalized": -1.0},
}


@dataclass(frozen=True)
class Config:
    corpus: str = "zipf:1"  # the frequencies of its pairs of tokens; a text has a BPE tokenizer of m ≥ 256 tokens
    widths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)  # d at fixed m
    vocabs: tuple[int, ...] = (256, 1024, 4096)  # fixed m
    growing_widths: tuple[int, ...] = (32, 48, 64, 96, 128, 256, 512)  # d at m = 8 d
    largest: int = 2**34  # shapes of fixed m with a larger d m², the cost of a step, are left out
    rows: tuple[str, ...] = ("plain", "normalized")  # how rows enter
    rates: tuple[float, ...] = geometric(2**-9, 2.0, 11)  # η_E
    rate_times_width: float = 0.2  # η_W = 0.2/d
    eps: float = 1e-20  # Adam's ε: gradients of rare tokens are far below the usual 1e-8
    steps: tuple[int, ...] = (5, 20, 100)  # after which the loss is read
    seeds: tuple[int, ...] = (0, 1, 2)  # of the initialisation

    def __post_init__(self):
        for name in ("widths", "vocabs", "growing_widths", "steps"):
            sorted_values(self, name, positive=True)
        sorted_values(self, "rates", least=3, positive=True)
        check_names("rows", self.rows, POWERS[GROWTH])
        check_seeds(self, "seeds")
        for name in ("largest", "rate_times_width", "eps"):
            check_positive(name, getattr(self, name))
        if self.steps[-1] > MOST_STEPS:
            raise InputError(f"steps must be at most {MOST_STEPS}, got {self.steps[-1]}")
        least = 2 if self.corpus.partition(":")[0] == "zipf" else SMALLEST
        if min(m for _, m in self.shapes) < least:
            raise InputError(f"vocabs and growing_widths give m below {least}, the smallest vocabulary of the corpus")
        if len(self.growing_widths) < 3:
            raise InputError(f"growing_widths needs at least 3 values, got {len(self.growing_widths)}")

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(d, m) of every setting, by increasing m."""
        fixed = {(d, m) for d in self.widths for m in self.vocabs if d * m**2 <= self.largest}
        growing = {(d, VOCAB_PER_WIDTH * d) for d in self.growing_widths}
        return sorted(fixed | growing, key=lambda shape: shape[::-1])

    @property
    def slices(self) -> list[Slice]:
        """The sets of shapes along which one of d and m moves."""
        return slices(self.shapes, VOCAB_PER_WIDTH)


PRESETS = {
    "smoke": Config(
        widths=(8, 16, 32), vocabs=(32, 64), growing_widths=(4, 8, 16), rates=geometric(2**-6, 1.0, 4), steps=(2, 5),
        seeds=(0, 1),
    ),
    # An earlier sweep with seeds 0 to 2 suggested the argument of alignment for rows / RMS.
    "laptop": Config(vocabs=(64, 256, 512), growing_widths=(32, 48, 64, 96, 128), largest=2**25, seeds=(3, 4, 5)),
    "gpu": Config(),
    "paper": Config(seeds=(0, 1, 2, 3, 4)),
}  # fmt: skip


def settings(config: Config) -> list[SettingRuns]:
    """One setting per shape, with a run for each form of the rows and each seed. A run trains every rate."""
    planned = []
    for d, m in config.shapes:
        arguments = {
            "width": d,
            "vocab": m,
            "rates": list(config.rates),
            "rate_times_width": config.rate_times_width,
            "eps": config.eps,
            "steps": list(config.steps),
        }
        flops = 6.0 * d * m**2 * (config.steps[-1] + 1) * len(config.rates)
        runs = [{"rows": rows, "seed": seed} for rows in config.rows for seed in config.seeds]
        planned.append(SettingRuns(f"d {d}, m {m}", Calculation(arguments, flops, DataConfig(config.corpus), m), runs))
    return planned


def name_of(rows: str) -> str:
    """The name of a form of the rows in tables and figures."""
    return READINGS[rows]
