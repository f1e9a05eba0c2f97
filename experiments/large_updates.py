"""What do updates that are too large at first leave behind: dead ReLUs, matrices of few directions, or nothing?

Kosson, Messmer & Jaggi 2024 (paper C), appendix A: ResNet-20 on CIFAR-10 under rotational AdamW (weight decay 0.01,
rate 0.05, cosine), whose rate is × 1, 8 or 128 in the first 5 of 205 epochs (the rotation × 1, √8, √128). Final
accuracy falls with the scale, along with a growing fraction of dead ReLUs (figure 7); less so for random directions and
for leaky ReLUs; and not at all where biases are frozen meanwhile. Stable ranks do not explain it (figure 8).

    python -m sweeps run large_updates --tier laptop      2 CPU cores, 20 minutes; scikit-learn's digits at 16 × 16
    python -m sweeps run large_updates --tier paper --corpus cifar10:DIR
"""

from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from experiments.checks import check_count, check_names, check_points, check_seeds, sorted_values
from experiments.decoder_runs import where
from experiments.experiment import CellLanes, Experiment
from lvp.analysis.claims import ABOVE_ZERO, Claim, of_values
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series
from lvp.errors import InputError
from lvp.models.resnet import ResNetConfig
from lvp.training import ImageCell, ImageDataConfig, ImageLane, OptimizerConfig, check_positive, steps_of_parts

PAPER_C = "Kosson, Messmer & Jaggi 2024, appendix A"


class Arm(NamedTuple):
    """Whether gradients point at random and biases are frozen in the first phase, and whether ReLUs leak; the paper's
    final accuracies (%) by scale."""

    random: bool
    leaky: bool
    frozen: bool
    paper: dict[float, float]


ARMS = {
    "standard": Arm(False, False, False, {1: 92.13, 8: 89.48, 128: 88.22}),
    "standard, frozen biases": Arm(False, False, True, {1: 92.30, 8: 92.08, 128: 92.30}),
    "random": Arm(True, False, False, {1: 92.05, 8: 91.74, 128: 89.54}),
    "random, frozen biases": Arm(True, False, True, {1: 92.27, 8: 92.12, 128: 92.20}),
    "leaky": Arm(False, True, False, {1: 92.16, 8: 91.48, 128: 91.82}),
    "leaky, frozen biases": Arm(False, True, True, {1: 92.46, 8: 92.49, 128: 92.35}),
}


@dataclass(frozen=True)
class Config:
    """Defaults are the paper's, which does not say the batch (128 is usual) nor how long biases are frozen."""

    corpus: str = "cifar10"
    image: int = 32  # side
    image_channels: int = 3
    classes: int = 10
    train_images: int = 50_000  # of which the steps are made; another count changes the epochs, not the steps
    pad: int = 4
    flip: bool = True
    depth: int = 20
    channels: int = 16
    batch: int = 128
    epochs: float = 205.0
    first_epochs: float = 5.0
    rate: float = 0.05
    weight_decay: float = 0.01
    leak: float = 0.1
    scales: tuple[float, ...] = (1.0, 8.0, 128.0)
    seeds: tuple[int, ...] = (0, 1, 2)
    points: int = 20  # measured steps, evenly over the logarithm from a quarter of the first phase on
    arms: tuple[str, ...] = tuple(ARMS)

    def __post_init__(self):
        for name in ("rate", "weight_decay", "leak", "epochs"):
            check_positive(name, getattr(self, name))
        if not 0 < self.first_epochs < self.epochs:
            raise InputError(f"first_epochs must lie between 0 and epochs ({self.epochs:g}), got {self.first_epochs:g}")
        if self.first_epochs / self.epochs < 1e-6:
            raise InputError(f"first_epochs must be more than a millionth of epochs, got {self.first_epochs:g}")
        check_count(self, "batch")
        check_seeds(self, "seeds")
        sorted_values(self, "scales", least=2, positive=True)
        if self.scales[0] != 1:
            raise InputError(f"scales must hold 1 and larger ones, got {', '.join(f'{x:g}' for x in self.scales)}")
        check_points(self)
        check_names("arms", self.arms, ARMS)

    @property
    def measured_parts(self) -> tuple[float, ...]:
        first = self.first_epochs / self.epochs
        return tuple(sorted({first, 1.0, *np.geomspace(first / 4, 1.0, self.points).round(4).tolist()}))

    @property
    def largest(self) -> float:
        return max(self.scales)


TIERS = {
    "smoke": Config(
        corpus="digits",
        image=16,
        image_channels=1,
        train_images=1438,
        pad=2,
        flip=False,
        depth=8,
        channels=4,
        batch=128,
        epochs=1.0,
        first_epochs=0.3,
        scales=(1.0, 128.0),
        seeds=(0,),
        points=3,
        arms=("standard", "standard, frozen biases"),
    ),
    "laptop": Config(
        corpus="digits",
        image=16,
        image_channels=1,
        train_images=1438,
        pad=2,
        flip=False,
        batch=64,
        epochs=20.0,
        first_epochs=2.0,
        seeds=(0, 1, 2, 3),
    ),
    "gpu": Config(epochs=40.0),
    "paper": Config(),
}


def cells(config: Config) -> list[CellLanes]:
    """One program: all that differs between arms is traced."""
    decay = dict.fromkeys(("hidden", "output"), config.weight_decay)  # of gains and biases as usual none
    cell = ImageCell(
        ResNetConfig(
            config.classes, (config.image, config.image, config.image_channels), config.depth, config.channels
        ),
        ImageDataConfig(config.corpus, config.pad, config.flip),
        config.batch,
        max(1, round(config.epochs * (config.train_images // config.batch))),
        OptimizerConfig("rotational_adamw", {"b1": 0.9, "b2": 0.999, "weight_decay": decay}),
        first_phase=config.first_epochs / config.epochs,
        measured_parts=config.measured_parts,
    )
    lanes = [_lane(config, *each) for each in product(config.arms, config.scales, config.seeds)]
    return [CellLanes("ResNet", cell, lanes, config.epochs)]


def _lane(config: Config, name: str, scale: float, seed: int) -> ImageLane:
    arm = ARMS[name]
    return ImageLane(config.rate, scale, arm.random, arm.frozen, config.leak if arm.leaky else 0.0, seed)


# --- what the records say ---------------------------------------------------------------------------------------------


def rows(table, config: Config, name: str, scale: float):
    """The lanes of an arm at a scale, a row a seed; nothing but NaN in the row of one that is missing or diverged."""
    lane = _lane(config, name, scale, 0)
    columns = {f"lane.{k}": getattr(lane, k) for k in ("first_scale", "random", "frozen", "negative_slope")}
    return where(table, columns | {"status": "finished"}).set_index("lane.seed").reindex(list(config.seeds))


def accuracy(table, config: Config, name: str, scale: float) -> np.ndarray:
    """Of the test images, in % [seeds]."""
    return 100 * rows(table, config, name, scale)["accuracy"].to_numpy(float)


def course(table, config: Config, name: str, scale: float, what: str) -> np.ndarray:
    """A measure at `measured_epochs` [seeds, epochs]; NaN where there is none."""
    empty = [np.nan] * len(measured_epochs(table, config))
    found = rows(table, config, name, scale).get(f"measures.{what}", [empty] * len(config.seeds))
    return np.array([x if isinstance(x, list) else empty for x in found], float)


def measured_epochs(table, config: Config) -> np.ndarray:
    """When the lanes were measured."""
    steps = int(table["cell.steps"].iloc[0])
    return config.epochs * (np.array(steps_of_parts(config.measured_parts, steps)) + 1) / steps


def dead(table, config: Config, name: str, scale: float) -> np.ndarray:
    """Fraction of dead ReLUs at the end [seeds]."""
    return course(table, config, name, scale, "dead.all")[:, -1]


def summary(table, config: Config) -> str:
    """Final accuracy and dead ReLUs of every arm by scale."""
    heads = "".join(f"{f'× {scale:g}: accuracy':>22} {'(paper)':>8} {'dead':>7}" for scale in config.scales)
    lines = [f"{'arm':<24}{heads}"]
    for name in config.arms:
        line = f"{name:<24}"
        for scale in config.scales:
            values = accuracy(table, config, name, scale)
            spread = f"±{np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
            paper = f"({ARMS[name].paper[scale]:.1f})" if scale in ARMS[name].paper else ""
            line += f"{f'{values.mean():.1f}{spread}':>22} {paper:>8} {dead(table, config, name, scale).mean():>7.1%}"
        lines.append(line)
    lines += [
        "",
        "× scale of the rate in the first phase. Accuracy on the test images in %, ± standard deviation over seeds; "
        "paper: CIFAR-10, 205 epochs. dead: units (channels of a ReLU) that no test image activates, at the end",
    ]
    return "\n".join(lines).replace("nan%", "–").replace("nan±nan", "–").replace("nan", "–")


def figure(table, config: Config, *, tier: str, corpus: str, partial):
    """Final accuracy by arm and scale; dead ReLUs and stable rank over training."""
    series = []
    for name in config.arms:
        values = [accuracy(table, config, name, scale) for scale in config.scales]
        means, spread = ([of(x) for x in values] for of in (np.mean, np.ptp))
        series.append(Series(name, config.scales, means, error=np.array(spread) / 2, fitted=means))
    words = "scale of the rate in the first phase"
    panels = [Panel("final accuracy", words, "accuracy on the test images (%)", series, yscale="linear")]
    plain = [name for name in config.arms if not ARMS[name].leaky]
    for names, what, ylabel in (
        (config.arms, "dead.all", "dead ReLUs (fraction)"),
        (plain, "stable_rank.mean", "mean stable rank"),
    ):
        of_all = [course(table, config, name, scale, what) for name in names for scale in config.scales]
        highest = np.nanmax(np.where(np.isfinite(of_all), of_all, 0.0), initial=0.0)
        limits = (-0.03 * highest, 1.05 * highest) if highest else None  # one for all, so that they compare
        panels += [_course(table, config, name, what, ylabel, limits) for name in names]
    return sheet(
        panels,
        title="What large first updates leave behind in a ResNet",
        tier=tier,
        corpus=corpus,
        partial=partial,
        words=[
            "Means over seeds; the length of a bar is what lies between seeds. Dead: no test image activates the unit. "
            f"The first phase ends at epoch {config.first_epochs:g}."
        ],
        size=(4.8, 3.9),
    )


def _course(table, config: Config, name: str, what: str, ylabel: str, limits) -> Panel:
    epochs, series = measured_epochs(table, config), []
    for scale in config.scales:
        values = course(table, config, name, scale, what)
        if np.isfinite(values).all():
            means, spread = values.mean(axis=0), np.ptp(values, axis=0) / 2
            series.append(Series(f"× {scale:g}", epochs, means, error=spread, fitted=means))
    style = dict(legend="first phase", ordered=True, named_ticks=False, yscale="linear", ylim=limits)
    return Panel(f"{name}: {ylabel}", "epoch", ylabel, series, **style)


DIED = "difference in the fraction of dead ReLUs at the end"
LOST = "difference in final accuracy, %"
PREVENTED = 0.01  # of all units: what counts as none more


def _claimed(table, config: Config):
    """Statement, paper's value, values by seed, claimed region, note."""
    top = config.largest
    loss = lambda name: accuracy(table, config, name, 1.0) - accuracy(table, config, name, top)  # noqa: E731
    has = lambda *names: set(names) <= set(config.arms)  # noqa: E731
    for name in (n for n in ("standard", "random") if has(n)):
        unfrozen, frozen = (dead(table, config, name, scale) for scale in (top, 1.0))
        statement = f"first updates at × {top:g} leave dead ReLUs ({name})"
        yield statement, "> 0", unfrozen - frozen, ABOVE_ZERO, f"{DIED} between × {top:g} and × 1"
        if has(f"{name}, frozen biases"):
            held = [dead(table, config, f"{name}, frozen biases", scale) for scale in (top, 1.0)]
            statement = f"with frozen biases they leave fewer ({name}, × {top:g})"
            yield statement, "> 0", unfrozen - held[0], ABOVE_ZERO, f"{DIED}, unfrozen less frozen"
            statement = f"frozen biases prevent dead ReLUs ({name}, × {top:g})"
            note = f"{DIED} between × {top:g} and × 1, at most {PREVENTED:g}"
            yield statement, "≤ 0", held[0] - held[1], (-np.inf, PREVENTED), note
    if has("standard"):
        statement = f"first updates at × {top:g} cost accuracy"
        yield statement, _paper_loss(top, "standard"), loss("standard"), ABOVE_ZERO, LOST
    for other, words in (("random", "in random directions cost less"), ("leaky", "cost a leaky ReLU less")):
        if has("standard", other):
            statement = f"first updates at × {top:g} {words} accuracy"
            yield statement, _paper_loss(top, "standard", other), loss("standard") - loss(other), ABOVE_ZERO, LOST
    if has("standard, frozen biases"):
        values = loss("standard, frozen biases")
        statement = f"with frozen biases first updates at × {top:g} cost no accuracy"
        note = f"{LOST}, at most 0.5"
        yield statement, _paper_loss(top, "standard, frozen biases"), values, (-np.inf, 0.5), note


def _paper_loss(top: float, name: str, less: str | None = None) -> str:
    """What the paper's accuracies lose from × 1 to × top, in %; less what another arm's do."""
    lost = [ARMS[n].paper[1] - ARMS[n].paper[top] for n in (name, less) if n and top in ARMS[n].paper]
    return f"{lost[0] - sum(lost[1:]):.1f}" if lost else "–"


def claims(table, config: Config, context) -> list[Claim]:
    """Those of appendix A whose arms were run."""
    made = []
    for statement, paper_value, values, claimed, note in _claimed(table, config):
        note = f"{note}; t interval over {len(values)} seeds"
        parts = dict(statement=statement, source=PAPER_C, paper_value=paper_value, note=note)
        made.append(of_values(values, claimed=claimed, **parts, **dict(context)))
    return made


EXPERIMENT = Experiment(
    name="large_updates",
    question="what do updates that are too large at first leave behind in a ResNet: dead ReLUs, matrices of few "
    "directions, or nothing?",
    tiers=TIERS,
    cells=cells,
    summary=summary,
    figure=figure,
    claims=claims,
    paper="Kosson, Messmer & Jaggi 2024",
    answers=("figure 7", "figure 8", "table of appendix A"),
    undrawn={"figure 6": "800 epochs on CIFAR-10, for an accelerator: `--tier paper --set epochs=800`"},
)
