"""Configuration, tiers and cells."""

from dataclasses import dataclass

from experiments.common.checks import check_names, sorted_values
from experiments.common.decoder_runs import DecoderRuns, geometric
from experiments.common.experiment import CellLanes
from lvp.errors import InputError
from lvp.models.configs import forward_multipliers
from lvp.parametrization import TOKEN_ROWS, row_multiplier, table
from lvp.training import Lane, check_positive

HORIZONS = 5  # equal parts of the training at whose ends the slope is read
READINGS = {"plain": "rows plain", "sqrt": "rows × √d", "normalized": "rows / RMS"}


@dataclass(frozen=True)
class Config(DecoderRuns):
    """Defaults are the paper tier. What the paper states is marked with its section; the rest is ours, and says why."""

    widths: tuple[int, ...] = (256, 512, 1024, 2048, 4096)  # C.2
    vocab_per_width: int = 8  # C.2: m = 8 d
    rows: tuple[str, ...] = ("sqrt", "plain")  # not stated: how rows enter the model; the claims are of the first
    rates: tuple[float, ...] = geometric(2**-13, 2**-3, 21)  # not stated; η_E times the factor on the rows
    rate_times_width: float = 0.2  # C.2: η_hidden = η_output = 0.2/d
    steps: int = 10_000  # C.2
    tolerance: float = 0.2  # figure 3: rates within 20 % of the best loss make the shaded curve

    def __post_init__(self):
        super().__post_init__()
        sorted_values(self, "widths", positive=True)
        sorted_values(self, "rates", least=3, positive=True)  # an optimum has neighbours
        check_names("rows", self.rows, TOKEN_ROWS)
        check_positive("rate_times_width", self.rate_times_width)
        check_positive("tolerance", self.tolerance, zero=True)
        if self.vocab_per_width < 1:
            raise InputError(f"vocab_per_width must be at least 1, got {self.vocab_per_width}")

    def embedding_rates(self, rows: str, width: int) -> tuple[float, ...]:
        """η_E of the lanes, to 4 digits: `rates` over the factor on the rows."""
        return tuple(float(f"{rate / row_multiplier(rows, width):.4g}") for rate in self.rates)

    @property
    def horizons(self) -> tuple[int, ...]:
        """Steps at which the slope is read; the rates are constant, so each prefix of a run is a shorter run."""
        return tuple(sorted({max(1, self.steps * part // HORIZONS) for part in range(1, HORIZONS + 1)}))


# How the laptop tier was chosen is told in docs/width_vocab.md.
TIERS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        widths=(32, 40, 48),
        rows=("sqrt",),
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
        context=64,
        batch=8,
        steps=1500,
    ),
    "gpu": Config(
        widths=(256, 384, 512, 768, 1024),
        rates=geometric(2**-11, 2**-3, 9),
        slice_bytes=2_000_000,
        valid_bytes=200_000,
        steps=600,
    ),
    "paper": Config(),
}


def cells(config: Config) -> list[CellLanes]:
    """One cell a width and reading; in it every rate and seed."""
    planned = []
    for rows in config.rows:
        for width in config.widths:
            vocab = config.vocab_per_width * width
            lvp = table("lvp", width=width, vocab=vocab, token_rows=rows)
            lanes = [
                Lane.under(lvp, config.rate_times_width, seed, rates={"embedding": rate})
                for rate in config.embedding_rates(rows, width)
                for seed in config.seeds
            ]
            cell = config.cell(width, vocab, config.steps, **forward_multipliers(lvp))
            planned.append(CellLanes(label(config, rows, width), cell, lanes))
    return planned


def label(config: Config, rows: str, width: int) -> str:
    label = f"d {width}, m {config.vocab_per_width * width}"
    return label if len(config.rows) == 1 else f"{label}, {READINGS[rows]}"
