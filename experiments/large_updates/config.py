"""The configuration of `large_updates` at every preset, and its settings."""

from dataclasses import asdict, dataclass
from itertools import product
from typing import NamedTuple

import numpy as np

from lvp.errors import InputError
from lvp.experiments.common.checks import check_count, check_names, check_points, check_seeds, sorted_values
from lvp.experiments.common.experiment import Calculation, SettingRuns
from lvp.experiments.large_updates import scale_invariance
from lvp.experiments.large_updates.resnet import ResNetConfig
from lvp.experiments.large_updates.training import ImageDataConfig, ImageRun, ImageSetting
from lvp.training import OptimizerConfig, check_positive


class FirstPhaseGroup(NamedTuple):
    """A ResNet and the training of its first phase."""

    random: bool  # gradients point in random directions in the first phase
    leaky: bool  # ReLUs are leaky
    frozen: bool  # biases are frozen in the first phase
    paper_accuracy: dict[float, float]  # scale → final accuracy of the paper, in %
    few: bool = False  # the first phase trains on few images


GROUPS = {
    "standard": FirstPhaseGroup(False, False, False, {1: 92.13, 8: 89.48, 128: 88.22}),
    "standard, frozen biases": FirstPhaseGroup(False, False, True, {1: 92.30, 8: 92.08, 128: 92.30}),
    "random": FirstPhaseGroup(True, False, False, {1: 92.05, 8: 91.74, 128: 89.54}),
    "random, frozen biases": FirstPhaseGroup(True, False, True, {1: 92.27, 8: 92.12, 128: 92.20}),
    "leaky": FirstPhaseGroup(False, True, False, {1: 92.16, 8: 91.48, 128: 91.82}),
    "leaky, frozen biases": FirstPhaseGroup(False, True, True, {1: 92.46, 8: 92.49, 128: 92.35}),
    "few images": FirstPhaseGroup(False, False, False, {1: 92.1}, few=True),
}


@dataclass(frozen=True)
class Config:
    """Defaults are those of the paper.

    It does not state the batch (128 is usual), how long biases are frozen, or on how few images the first phase trains.
    """

    corpus: str = "cifar10"  # as in `images.load_images`
    image: int = 32  # pixels of a side
    image_channels: int = 3  # 1 for grey, 3 for colour
    classes: int = 10  # of the images
    train_images: int = 50_000  # gives the number of steps; a corpus of another size changes the epochs only
    pad: int = 4  # pixels of the random crops
    flip: bool = True  # random horizontal flips
    depth: int = 20  # of the ResNet
    channels: int = 16  # of its first stage
    batch: int = 128  # images per step
    epochs: float = 205.0  # passes through the training images
    first_epochs: float = 5.0  # passes in the first phase
    first_images: int = 128  # training images of the first phase in the group "few images"
    rate: float = 0.05  # peak rate of all parameters
    weight_decay: float = 0.01  # sets the angle of the updates
    leak: float = 0.1  # slope of leaky ReLUs below zero
    scales: tuple[float, ...] = (1.0, 8.0, 128.0)  # factors on the rate in the first phase
    seeds: tuple[int, ...] = (0, 1, 2)  # of init, order and augmentation
    points: int = 20  # measured steps, at equal ratios from a quarter of the first phase on
    groups: tuple[str, ...] = tuple(GROUPS)  # keys of `GROUPS`

    def __post_init__(self):
        for name in ("rate", "weight_decay", "leak", "epochs"):
            check_positive(name, getattr(self, name))
        if not 0 < self.first_epochs < self.epochs:
            raise InputError(f"first_epochs must lie between 0 and epochs ({self.epochs:g}), got {self.first_epochs:g}")
        if self.first_epochs / self.epochs < 1e-6:
            raise InputError(
                f"first_epochs must be at least 1e-6 times epochs ({self.epochs:g}), got {self.first_epochs:g}"
            )
        check_count(self, "batch")
        check_count(self, "first_images")
        check_seeds(self, "seeds")
        sorted_values(self, "scales", least=2, positive=True)
        if self.scales[0] != 1:
            raise InputError(f"the smallest of scales must be 1, got {', '.join(f'{x:g}' for x in self.scales)}")
        check_points(self)
        check_names("groups", self.groups, GROUPS)

    @property
    def measured_parts(self) -> tuple[float, ...]:
        """The fractions of the training at which runs are measured."""
        first = self.first_epochs / self.epochs
        return tuple(sorted({first, 1.0, *np.geomspace(first / 4, 1.0, self.points).round(4).tolist()}))

    @property
    def largest(self) -> float:
        """The largest scale."""
        return max(self.scales)


PRESETS = {
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
        groups=("standard", "standard, frozen biases"),
    ),
    "laptop": Config(
        corpus="digits",
        image=16,
        image_channels=1,
        train_images=1438,
        pad=2,
        flip=False,
        batch=64,
        first_images=64,
        epochs=20.0,
        first_epochs=2.0,
        seeds=(0, 1, 2, 3),
    ),
    "gpu": Config(epochs=40.0),
    "paper": Config(),
}


def settings(config: Config) -> list[SettingRuns]:
    """The trained setting, and a calculation of scale invariance in the same network."""
    return [trained(config), calculated(config)]


def trained(config: Config) -> SettingRuns:
    """One setting: groups, scales and seeds differ in traced numbers only."""
    setting = ImageSetting(
        network(config),
        ImageDataConfig(config.corpus, config.pad, config.flip),
        config.batch,
        max(1, round(config.epochs * (config.train_images // config.batch))),
        OptimizerConfig("rotational_adamw", {"b1": 0.9, "b2": 0.999, "weight_decay": config.weight_decay}),
        first_phase=config.first_epochs / config.epochs,
        measured_parts=config.measured_parts,
    )
    runs = [run_of(config, *each) for each in product(config.groups, config.scales, config.seeds)]
    return SettingRuns("ResNet", setting, runs, config.epochs)


def calculated(config: Config) -> SettingRuns:
    """One setting with a run per seed."""
    model, arguments = asdict(network(config)), scale_invariance.ARGUMENTS
    arguments = {**arguments, "model": model | {"image": list(model["image"])}}
    passes = arguments["images"] * len(arguments["factors"]) * config.depth  # a derivative along each kernel
    setting = Calculation(arguments, passes * network(config).flops_per_image())
    return SettingRuns("scale invariance", setting, [{"seed": seed} for seed in config.seeds])


def network(config: Config) -> ResNetConfig:
    """The network of all runs."""
    image = config.image, config.image, config.image_channels
    return ResNetConfig(config.classes, image, config.depth, config.channels)


def run_of(config: Config, name: str, scale: float, seed: int) -> ImageRun:
    """The run of a group at a scale of the rate in the first phase."""
    group = GROUPS[name]
    slope, few = config.leak if group.leaky else 0.0, config.first_images if group.few else 0
    return ImageRun(config.rate, scale, group.random, group.frozen, slope, seed, first_images=few)
