"""The configuration of `feature_learning` at every tier, and its cells."""

from dataclasses import dataclass

from experiments.common.experiment import Calculation, CellLanes
from experiments.feature_learning import sign_moments
from lvp.data.tokens.tokenizers import SMALLEST
from lvp.errors import InputError
from lvp.parametrization import Table, table
from lvp.training import DataConfig

THEOREM = "theorem 1"
GROWING_VOCAB = 8
GROWING = f"m = {GROWING_VOCAB} d"  # the regime of the arms beyond theory
ARMS = {  # name → (optimizer, loss), under LVP with true targets
    "sign, square": ("sign", "square"),
    "Adam, square": ("adam", "square"),
    "sign, cross-entropy": ("sign", "cross_entropy"),
    "Adam, cross-entropy": ("adam", "cross_entropy"),
}
ONE_STEP_PER_TRAINED = 8  # draws: powers of d need fewer draws than theorem 1's constant, and a trained draw costs more
PARTS = {"embedding": "δ_E", "top": "δ_W, most frequent token", "rare": "δ_W, median token"}
TRAINED_PARTS = ("embedding", "top")  # the parts that the claims beyond theory are about


@dataclass(frozen=True)
class Config:
    corpus: str = "zipf:1"  # its token frequencies are α; a text has a BPE tokenizer of m ≥ 256 tokens
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)  # d
    fixed_vocab: int = 1024  # m of the regime of fixed vocabulary
    steps: tuple[int, ...] = (1, 2, 5, 20)  # numbers of steps in the arms beyond theory
    rate: float = 0.2  # LVP's η in the arms beyond theory
    draws: int = 40  # of initialisation and signal
    largest: int = 16384  # larger vocabularies are left out
    seed: int = 0  # of the draws

    def __post_init__(self):
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise InputError(f"widths must be at least two positive whole numbers, got {self.widths}")
        if self.draws < 2:
            raise InputError(f"draws must be at least 2, got {self.draws}")
        if not self.steps or min(self.steps) < 1:
            raise InputError(f"steps must be positive whole numbers, got {self.steps}")
        for name in ("widths", "steps"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        if not any(regimes(self).values()):
            limits = f"{smallest(self)} ≤ m ≤ {self.largest}"
            raise InputError(f"widths, fixed_vocab and largest must give a regime at least two widths with {limits}")


def lvp_table(width: int) -> Table:
    """LVP's table at m = 8 d."""
    return table("lvp", width=width, vocab=GROWING_VOCAB * width)


def smallest(config: Config) -> int:
    """The smallest vocabulary of the corpus; the vocabulary of a text contains every byte."""
    return 2 if config.corpus.partition(":")[0] == "zipf" else SMALLEST


def regimes(config: Config) -> dict[str, list[tuple[int, int]]]:
    """Name → (d, m) pairs of usable vocabularies; no pair if there are fewer than two, which a power of d needs."""
    shapes = {
        f"m = {config.fixed_vocab}": [(d, config.fixed_vocab) for d in config.widths],
        GROWING: [(d, GROWING_VOCAB * d) for d in config.widths],
        "m = 64 d": [(d, 64 * d) for d in config.widths],
    }
    least, most = smallest(config), config.largest
    usable = {name: [(d, m) for d, m in pairs if least <= m <= most] for name, pairs in shapes.items()}
    return {name: pairs if len(pairs) > 1 else [] for name, pairs in usable.items()}


TIERS = {
    "smoke": Config(widths=(8, 32, 64), fixed_vocab=256, draws=10, steps=(1, 5), largest=2048),
    "laptop": Config(widths=(16, 32, 64, 128, 256), draws=100, largest=8192),
    "gpu": Config(draws=100),
    "paper": Config(draws=400),
}


def cells(config: Config) -> list[CellLanes]:
    """One cell per shape with theorem 1; at m = 8 d also theorems 3 and 4, and a cell of the arms beyond theory."""
    planned = []
    shared, data = {"draws": config.draws, "seed": config.seed}, DataConfig(config.corpus)
    for name, pairs in regimes(config).items():
        for d, m in pairs:
            arguments = shared | {"regime": name, "width": d, "vocab": m}
            theorem = Calculation(arguments, 8.0 * config.draws * d * m * m, data, m)
            arms = [THEOREM, *(sign_moments.ARMS if name == GROWING else ())]
            planned.append(CellLanes(f"{name}, d {d}", theorem, [{"arm": arm} for arm in arms]))
            if name == GROWING:
                more = arguments | {"steps": list(config.steps), "rate": config.rate}
                cost = 8.0 * trained_draws(config.draws) * d * m * m * config.steps[-1]
                beyond = Calculation(more, cost, data, m)
                planned.append(CellLanes(f"beyond, d {d}", beyond, [{"arm": arm} for arm in ARMS]))
    return planned


def trained_draws(draws: int) -> int:
    """The number of draws in the arms beyond theory, for `draws` draws of one step."""
    return max(2, draws // ONE_STEP_PER_TRAINED)
