"""The configuration of `feature_learning` at every preset, and its settings."""

from dataclasses import dataclass

from lvp.data.tokens.tokenizers import SMALLEST
from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, sorted_values
from lvp.experiments.common.experiment import Calculation, SettingRuns
from lvp.experiments.feature_learning import sign_moments
from lvp.parametrization import Table, table
from lvp.training import DataConfig

THEOREM = "theorem 1"
GROWING_VOCAB = 8
GROWING = f"m = {GROWING_VOCAB} d"  # the regime of the trained groups
# Trained groups: name → (optimizer, loss), under LVP with random one-hot targets. Theorem 1 does not cover them.
GROUPS = {
    "sign, square": ("sign", "square"),
    "Adam, square": ("adam", "square"),
    "sign, cross-entropy": ("sign", "cross_entropy"),
    "Adam, cross-entropy": ("adam", "cross_entropy"),
}
# Draws of theorem 1 for each draw of a trained group: a draw of a trained group costs more.
THEOREM_DRAWS_PER_TRAINED_DRAW = 8
# Parts of the change of the output: key in the records → name in tables.
PARTS = {
    "embedding": "δ_E",
    "top": "δ_W of the most frequent token",
    "rare": "δ_W of the median token",
}
TRAINED_PARTS = ("embedding", "top")  # the parts in the claims about the trained groups


@dataclass(frozen=True)
class Config:
    corpus: str = "zipf:1"  # source of the token frequencies α; for a text, those of a BPE tokenizer of m ≥ 256 tokens
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)  # d
    fixed_vocab: int = 1024  # m in the regime of a fixed vocabulary
    steps: tuple[int, ...] = (1, 2, 5, 20)  # the trained groups are measured after these steps
    rate: float = 0.2  # η of LVP in the trained groups
    draws: int = 40  # of the init and of the targets (for theorem 1, of the normals that replace E W − Z)
    largest: int = 16384  # the largest vocabulary; larger shapes (d, m) are left out
    seed: int = 0  # of the draws

    def __post_init__(self):
        sorted_values(self, "widths", least=2, positive=True)
        sorted_values(self, "steps", positive=True)
        check_count(self, "draws", least=2)
        if not any(regimes(self).values()):
            limits = f"{smallest(self)} ≤ m ≤ {self.largest}"
            raise InputError(
                f"no regime has two widths with {limits}; change widths={self.widths}, "
                f"fixed_vocab={self.fixed_vocab} or largest={self.largest}, the largest vocabulary"
            )


def lvp_table(width: int) -> Table:
    """LVP's table at m = 8 d."""
    return table("lvp", width=width, vocab=GROWING_VOCAB * width)


def smallest(config: Config) -> int:
    """The smallest possible vocabulary of the corpus. The tokenizer of a text has a token for each of the 256 bytes."""
    return 2 if config.corpus.partition(":")[0] == "zipf" else SMALLEST


def regimes(config: Config) -> dict[str, list[tuple[int, int]]]:
    """The regimes: name → shapes (d, m) within the limits `smallest` and `largest` of m.

    A regime relates m to d. The fit of a power of d needs two shapes, so a regime with fewer shapes has an empty list.
    """
    shapes = {
        f"m = {config.fixed_vocab}": [(d, config.fixed_vocab) for d in config.widths],
        GROWING: [(d, GROWING_VOCAB * d) for d in config.widths],
        "m = 64 d": [(d, 64 * d) for d in config.widths],
    }
    least, most = smallest(config), config.largest
    usable = {name: [(d, m) for d, m in pairs if least <= m <= most] for name, pairs in shapes.items()}
    return {name: pairs if len(pairs) > 1 else [] for name, pairs in usable.items()}


PRESETS = {
    "smoke": Config(widths=(8, 32, 64), fixed_vocab=256, draws=10, steps=(1, 5), largest=2048),
    "laptop": Config(widths=(16, 32, 64, 128, 256), draws=100, largest=8192),
    "gpu": Config(draws=100),
    "paper": Config(draws=400),
}


def settings(config: Config) -> list[SettingRuns]:
    """The settings of every shape (d, m) of every regime.

    One setting calculates theorem 1. At m = 8 d it also calculates theorems 3 and 4, and a second setting has the
    trained groups.
    """
    planned = []
    common, data = {"draws": config.draws, "seed": config.seed}, DataConfig(config.corpus)
    for name, pairs in regimes(config).items():
        for d, m in pairs:
            arguments = common | {"regime": name, "width": d, "vocab": m}
            one_step = Calculation(arguments, 8.0 * config.draws * d * m * m, data, m)
            groups = [THEOREM, *(sign_moments.GROUPS if name == GROWING else ())]
            planned.append(SettingRuns(f"{name}, d {d}", one_step, [{"arm": group} for group in groups]))
            if name == GROWING:
                trained = arguments | {"steps": list(config.steps), "rate": config.rate}
                cost = 8.0 * trained_draws(config.draws) * d * m * m * config.steps[-1]
                beyond = Calculation(trained, cost, data, m)
                planned.append(SettingRuns(f"beyond, d {d}", beyond, [{"arm": group} for group in GROUPS]))
    return planned


def trained_draws(draws: int) -> int:
    """The number of draws of a trained group, given that of theorem 1."""
    return max(2, draws // THEOREM_DRAWS_PER_TRAINED_DRAW)
