"""The configuration of `feature_learning` at every tier, and its cells."""

from dataclasses import dataclass

from experiments.common.experiment import Calculation, CellLanes
from experiments.feature_learning import sign_moments
from lvp.data.tokens.tokenizers import SMALLEST
from lvp.errors import InputError
from lvp.training import DataConfig

THEOREM = "theorem 1"
GROWING = "m = 8 d"  # the regime in which the arms are trained
ARMS = {  # name → (optimizer, loss): true targets, LVP
    "sign, square": ("sign", "square"),
    "Adam, square": ("adam", "square"),
    "sign, cross-entropy": ("sign", "cross_entropy"),
    "Adam, cross-entropy": ("adam", "cross_entropy"),
}
LVP_POWER = {"embedding": -1.0, "top": -1.5}  # of η_E σ_W = d^(−1/2) d^(−1/2), of η_W σ_E = d^(−1) d^(−1/2)
ONE_STEP_PER_TRAINED = 8  # draws: powers of d need fewer than theorem 1's constant, and a trained draw is many steps
PARTS = {"embedding": "δ_E", "top": "δ_W, most frequent token", "rare": "δ_W, median token"}


@dataclass(frozen=True)
class Config:
    corpus: str = "zipf:1"  # whose token frequencies α; a text's are those of a BPE tokenizer of m tokens, 256 or more
    widths: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)
    fixed_vocab: int = 1024
    steps: tuple[int, ...] = (1, 2, 5, 20)
    rate: float = 0.2  # η of LVP, in the arms beyond theory: η_E = η d^(−1/2), η_W = η / d
    draws: int = 40  # of initialisation and signal
    largest: int = 16384  # vocabularies above it are left out
    seed: int = 0

    def __post_init__(self):
        if len(self.widths) < 2 or min(self.widths) < 1:
            raise InputError(f"widths needs at least two whole numbers from 1 up, got {self.widths}")
        if self.draws < 2:
            raise InputError(f"draws must be at least 2, got {self.draws}")
        if not self.steps or min(self.steps) < 1:
            raise InputError(f"steps must be whole numbers from 1 up, got {self.steps}")
        for name in ("widths", "steps"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        if not any(regimes(self).values()):
            limits = f"{smallest(self)} ≤ m ≤ {self.largest}"
            raise InputError(f"widths, fixed_vocab and largest leave no regime two widths with {limits}")


def smallest(config: Config) -> int:
    """A text's vocabulary holds every byte; synthetic tokens are as many as asked for."""
    return 2 if config.corpus.partition(":")[0] == "zipf" else SMALLEST


def regimes(config: Config) -> dict[str, list[tuple[int, int]]]:
    """Name → (d, m) pairs: those of a usable m, and none where they are fewer than a power of d needs."""
    shapes = {
        f"m = {config.fixed_vocab}": [(d, config.fixed_vocab) for d in config.widths],
        GROWING: [(d, 8 * d) for d in config.widths],
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
    """A cell a shape: theorem 1's quantities, and at m = 8 d theorems 3 and 4 and every arm beyond theory."""
    found = []
    shared, data = {"draws": config.draws, "seed": config.seed}, DataConfig(config.corpus)
    for name, pairs in regimes(config).items():
        for d, m in pairs:
            arguments = shared | {"regime": name, "width": d, "vocab": m}
            theorem = Calculation(arguments, 8.0 * config.draws * d * m * m, data, m)
            arms = [THEOREM, *(sign_moments.ARMS if name == GROWING else ())]
            found.append(CellLanes(f"{name}, d {d}", theorem, [{"arm": arm} for arm in arms]))
            if name == GROWING:
                more = arguments | {"steps": list(config.steps), "rate": config.rate}
                cost = 8.0 * trained_draws(config.draws) * d * m * m * config.steps[-1]
                beyond = Calculation(more, cost, data, m)
                found.append(CellLanes(f"beyond, d {d}", beyond, [{"arm": arm} for arm in ARMS]))
    return found


def trained_draws(draws: int) -> int:
    """How many are trained in the arms beyond theory, where so many are taken one step."""
    return max(2, draws // ONE_STEP_PER_TRAINED)
