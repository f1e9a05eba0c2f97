"""The configuration of `vocab_effect` at every preset, and its settings."""

from dataclasses import dataclass

from lvp.errors import InputError
from lvp.experiments.common.checks import sorted_values
from lvp.experiments.common.decoder_runs import geometric
from lvp.experiments.common.experiment import SettingRuns
from lvp.experiments.common.shape_powers import Slice, slices
from lvp.experiments.width_vocab import config as width_vocab


@dataclass(frozen=True)
class Config(width_vocab.Config):
    """`width_vocab` with fixed vocabularies beside m = `vocab_per_width` · d."""

    widths: tuple[int, ...] = (256, 512, 1024, 2048)  # d
    vocabs: tuple[int, ...] = (2048, 8192, 32768)  # m of the grid
    token_rows: tuple[str, ...] = ("sqrt",)  # `width_vocab` also has plain rows

    def __post_init__(self):
        super().__post_init__()
        sorted_values(self, "vocabs", positive=True)
        if len(self.token_rows) > 1:
            raise InputError(f"token_rows must hold one name, got {', '.join(self.token_rows)}")
        if self.design != width_vocab.GRID:
            raise InputError(f"design must be {width_vocab.GRID}, got {self.design!r}: the planes need all rates")
        if self.hidden_constants:
            raise InputError(
                "hidden_constants has no effect in vocab_effect; remove it, or set rate_times_width instead"
            )
        if not self.slices:
            raise InputError("widths and vocabs leave no slice of three shapes; add a width or a vocabulary")

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """(d, m) of every setting."""
        return [(d, m) for d in self.widths for m in sorted({*self.vocabs, self.vocab_per_width * d})]

    @property
    def slices(self) -> list[Slice]:
        """The sets of shapes along which one of d and m moves."""
        return slices(self.shapes, self.vocab_per_width)


PRESETS = {
    "smoke": Config(
        corpus="python-docs",
        slice_bytes=20_000,
        valid_bytes=4_000,
        widths=(32, 40, 48),
        vocabs=(256, 384),
        rates=geometric(0.004, 0.064, 3),
        seeds=(0,),
        context=32,
        batch=4,
        steps=20,
    ),
    # A run trains on fewer tokens than the text has. With a repeated text, a larger vocabulary would have more epochs.
    "laptop": Config(
        corpus="python-docs",
        slice_bytes=4_000_000,
        valid_bytes=100_000,
        widths=(32, 64, 128),
        vocabs=(256, 1024, 4096),
        rates=geometric(0.002, 0.128, 9)[1:8],
        context=64,
        batch=8,
        steps=1500,
    ),
    "gpu": Config(
        widths=(128, 256, 512, 1024),
        rates=geometric(2**-11, 2**-3, 9),
        slice_bytes=2_000_000,
        valid_bytes=200_000,
        steps=2000,
    ),
    "paper": Config(),
}


def settings(config: Config) -> list[SettingRuns]:
    """One setting per shape, with a run for every rate and seed."""
    (rows,) = config.token_rows
    return [width_vocab.swept_setting(config, f"d {d}, m {m}", rows, d, m) for d, m in config.shapes]
