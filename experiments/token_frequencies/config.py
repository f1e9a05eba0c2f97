"""The configuration of `token_frequencies` at every preset, and its settings."""

from dataclasses import dataclass

from lvp.errors import InputError
from lvp.experiments.common.checks import sorted_values
from lvp.experiments.common.experiment import Calculation, SettingRuns
from lvp.training import DataConfig


@dataclass(frozen=True)
class Config:
    """The default corpus and vocabularies are from the paper's figure 2. The ranks are ours."""

    corpus: str = "wikitext2"
    vocabs: tuple[int, ...] = (8192, 32768)  # m, one tokenizer each
    first_rank: int = 10  # of the fit: lower ranks do not follow a power
    last_rank: int = 1000  # of the fit: higher ranks have few counts

    def __post_init__(self):
        sorted_values(self, "vocabs", positive=True)
        if not 1 <= self.first_rank < self.last_rank:
            raise InputError(
                f"first_rank must be at least 1 and below last_rank ({self.last_rank}), got {self.first_rank}"
            )


OCTAVES = tuple(2**k for k in range(8, 16))
PRESETS = {
    "smoke": Config(corpus="python-docs", vocabs=(256, 512, 1024)),
    "laptop": Config(vocabs=OCTAVES),
    "gpu": Config(vocabs=OCTAVES),
    "paper": Config(),
}


def settings(config: Config) -> list[SettingRuns]:
    """One setting of one run per vocabulary, since each vocabulary has its own tokenizer."""
    shared = {"ranks": [config.first_rank, config.last_rank]}
    return [
        SettingRuns(f"m {vocab}", Calculation(shared, 1e9, DataConfig(config.corpus), vocab), [{"vocab": vocab}])
        for vocab in config.vocabs
    ]
