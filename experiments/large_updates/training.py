"""A residual network trained on images, with large first updates (Kosson, Messmer & Jaggi 2024, appendix A)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from lvp.errors import InputError
from lvp.experiments.large_updates import batches, dead_units
from lvp.experiments.large_updates.images import Images, load_images
from lvp.experiments.large_updates.resnet import DECLARATIONS, ResNetConfig, biases, resnet
from lvp.files import storage
from lvp.models.configs import OMITTED
from lvp.parametrization import uniform
from lvp.training.batches import ALL_STEPS, Feed
from lvp.training.program import PackedProgram
from lvp.training.setting import AnySetting, OptimizerConfig, check_positive, steps_of_parts
from lvp.training.tasks import Task


@dataclass(frozen=True)
class ImageDataConfig:
    """The images of a setting and their augmentation."""

    corpus: str  # as in `lvp.experiments.large_updates.images.load_images`
    pad: int = 4  # black pixels added on every side before a random crop
    flip: bool = True  # random horizontal flips


@dataclass(frozen=True)
class ImageSetting(AnySetting):
    """The part of a run that is compiled.

    An epoch is a permutation of the training images, without the last incomplete batch. The rate falls as a cosine from
    its peak to zero.
    """

    model: ResNetConfig  # shapes of the network
    data: ImageDataConfig  # the images and their augmentation
    batch: int  # images per step
    steps: int  # training steps
    optimizer: OptimizerConfig  # the static part of the optimizer
    first_phase: float  # fraction of the steps in which the run's factor multiplies the rate
    final_fraction: float = 0.1  # fraction of the steps, at the end, over which the final training loss is averaged
    measured_parts: tuple[
        float, ...
    ] = ()  # fractions of the steps after which dead units and stable ranks are measured

    def __post_init__(self):
        if any(not 0 <= part <= 1 for part in self.measured_parts):
            raise InputError(f"measured_parts must be fractions of the steps, from 0 to 1, got {self.measured_parts}")
        self.check_steps()
        if not 0 <= self.first_phase <= 1:
            raise InputError(f"first_phase must be a fraction of the steps in [0, 1], got {self.first_phase}")
        if self.data.pad < 0:
            raise InputError(f"pad must not be negative, got {self.data.pad}")

    def check(self, run: "ImageRun") -> None:
        """Accepts every run."""

    def task(self) -> "ImageTask":
        return ImageTask(self)

    def example_run(self) -> "ImageRun":
        return ImageRun(1.0, 1.0, False, False, 0.0, 0)

    @property
    def measured_steps(self) -> tuple[int, ...]:
        return steps_of_parts(self.measured_parts, self.steps)

    @property
    def tokens_per_step(self) -> int:
        """The number of images per step."""
        return self.batch

    @property
    def flops_per_run(self) -> float:
        """Model FLOPs of one run's training, without evaluation."""
        return self.tokens_per_run * self.model.flops_per_image()


@dataclass(frozen=True)
class ImageRun:
    """The traced numbers of one run."""

    learning_rate: float  # peak rate of all parameters
    first_scale: float  # factor on the rate in the first phase
    random: bool  # gradients have random directions in the first phase
    frozen: bool  # biases do not change in the first phase
    negative_slope: float  # of every ReLU below zero
    seed: int  # of init, order, augmentation and random directions
    first_images: int = field(default=0, metadata=OMITTED)  # training images of the first phase; 0 is all

    def __post_init__(self):
        if self.first_images < 0:
            raise InputError(f"first_images must not be negative, got {self.first_images}")
        check_positive("learning_rate", self.learning_rate)
        check_positive("first_scale", self.first_scale)
        check_positive("negative_slope", self.negative_slope, zero=True)

    def arrays(self) -> dict:
        """The run as the program takes it: scalars on the host."""
        floats = ("learning_rate", "first_scale", "negative_slope")
        return (
            {name: np.float32(getattr(self, name)) for name in floats}
            | {name: np.bool_(getattr(self, name)) for name in ("random", "frozen")}
            | {"seed": np.uint32(self.seed), "first_images": np.int32(self.first_images)}
        )


class ImageData(NamedTuple):
    """The program's data, on the host or the device. Test images come in k groups of G."""

    train_images: Any  # uint8 [n, H, W, C]
    train_labels: Any  # int32 [n]
    test_images: Any  # uint8 [k, G, H, W, C]
    test_labels: Any  # int32 [k, G]
    test_weights: Any  # float32 [k, G]: 0 for padding of the last group
    mean: Any  # float32 [C], of pixels divided by 255
    std: Any  # float32 [C], of pixels divided by 255

    @classmethod
    def from_arrays(cls, setting: ImageSetting, train: Any, test: Any, mean: Any, std: Any) -> "ImageData":
        """The data of `setting` from (images, labels) of both parts."""
        (train_images, train_labels), (test_images, test_labels) = train, test
        check_images(
            setting, train_images.shape, test_images.shape, int(max(train_labels.max(), test_labels.max())) + 1
        )
        size = min(len(test_images), 4 * setting.batch)
        weights = np.ones(len(test_images), np.float32)

        def grouped(x):
            pad = [(0, -len(x) % size)] + [(0, 0)] * (x.ndim - 1)
            # The padding repeats the first images, so that no further unit is active.
            return np.pad(x, pad, mode="wrap" if x is not weights else "constant").reshape(-1, size, *x.shape[1:])

        parts = (np.asarray(train_labels, np.int32), grouped(test_images), grouped(test_labels), grouped(weights))
        return cls(train_images, *parts, np.asarray(mean, np.float32), np.asarray(std, np.float32))

    def feed(self, step: int) -> tuple[int, "ImageData"]:
        """The same data for every step."""
        return ALL_STEPS, self


def image_shapes(setting: ImageSetting) -> ImageData:
    """The shapes of the program's data for as many training images as CIFAR-10 has, and one group of test images."""
    height, width, channels = setting.model.image
    shape = jax.ShapeDtypeStruct
    group = 4 * setting.batch
    return ImageData(
        train_images=shape((50_000, height, width, channels), jnp.uint8),
        train_labels=shape((50_000,), jnp.int32),
        test_images=shape((1, group, height, width, channels), jnp.uint8),
        test_labels=shape((1, group), jnp.int32),
        test_weights=shape((1, group), jnp.float32),
        mean=shape((channels,), jnp.float32),
        std=shape((channels,), jnp.float32),
    )


def check_images(setting: ImageSetting, train: tuple[int, ...], test: tuple[int, ...], classes: int) -> None:
    """Checks that images of these shapes [n, H, W, C], and the number of classes, fit the setting.

    Raises:
      InputError: the number of classes or the shape of an image differs, or there are fewer training images than a
        batch has.
    """
    if classes != setting.model.classes:
        raise InputError(f"model.classes must be {classes} for these images, got {setting.model.classes}")
    for name, shape in (("training", train), ("test", test)):
        if shape[1:] != setting.model.image:
            raise InputError(f"model.image must be {shape[1:]} for the {name} images, got {setting.model.image}")
    if train[0] < setting.batch:
        raise InputError(
            f"{train[0]} training images are fewer than a batch of {setting.batch}: reduce batch, or give more images"
        )


class ImageProgram(PackedProgram):
    """The program of an `ImageSetting`.

    States hold `params`, `stats` (running statistics), `opt`, `key`, `losses`, `diverged`, `valid_loss` and `accuracy`
    on the test images (NaN until the last step), and with measured parts `measures`.
    """

    def __init__(self, setting: ImageSetting, runs: int = 1):
        super().__init__(setting, runs)
        self.model = resnet(setting.model)

    @property
    def _first_steps(self) -> int:
        return round(self.setting.first_phase * self.setting.steps)

    def _rate(self, run):
        decay = optax.cosine_decay_schedule(1.0, self.setting.steps)

        def rate(count):
            scale = jnp.where(count < self._first_steps, run["first_scale"], 1.0)
            return run["learning_rate"] * scale * decay(count)

        return rate

    def _optimizer(self, run):
        # One rate for all parameters. The network draws its own init (He et al.).
        table = uniform(width=self.setting.model.channels, vocab=self.setting.model.classes)
        return self.setting.optimizer.transformation(table, self._rate(run), {}, declarations=DECLARATIONS)

    def _init(self, run, params=None):
        init_key, data_key = jax.random.split(jax.random.key(run["seed"]))
        params = self.model.init(init_key) if params is None else params
        state = self._initial_state(params, self._optimizer(run).init(params), data_key)
        state |= {"stats": self.model.init_stats(), "accuracy": jnp.float32(jnp.nan)}
        if not self.setting.measured_steps:
            return state
        image, channels = self.setting.model.image, jnp.ones(self.setting.model.image[2])
        data = ImageData(None, None, jnp.zeros((1, 1, *image), jnp.uint8), None, jnp.ones((1, 1)), channels, channels)
        return state | {"measures": self._empty_measures(lambda s: self._measures(s, run, data), state)}

    def _step(self, step, state, run, data):
        key = jax.random.wrap_key_data(state["key"])
        order_key, augment_key, random_key = (jax.random.fold_in(key, i) for i in range(3))
        first = step < self._first_steps
        chosen = batches.epoch_batch(order_key, step, len(data.train_labels), self.setting.batch)
        few = run["first_images"]
        chosen = jnp.where(first & (few > 0), chosen % jnp.maximum(few, 1), chosen)
        by_chance = jax.random.fold_in(augment_key, step)
        x = batches.augment(data.train_images[chosen], by_chance, self.setting.data.pad, flip=self.setting.data.flip)
        x = batches.normalise(x, data.mean, data.std)

        def loss_of(params):
            logits, stats = self.model.apply(params, state["stats"], x, run["negative_slope"], True)
            return _losses(logits, data.train_labels[chosen]).mean(), stats

        (loss, stats), gradient = jax.value_and_grad(loss_of, has_aux=True)(state["params"])
        pointed = _random_directions(gradient, jax.random.fold_in(random_key, step))
        gradient = jax.tree.map(lambda g, r: jnp.where(first & run["random"], r, g), gradient, pointed)
        updates, opt = self._optimizer(run).update(gradient, state["opt"], state["params"])
        held = first & run["frozen"]
        updates = jax.tree.map(lambda b, u: jnp.where(held, 0, u) if b else u, biases(updates), updates)
        return self._updated_state(step, state, loss, gradient, updates, opt) | {"stats": stats}

    def _measured_step(self, step, state, run, data):
        after = self._step(step, state, run, data)
        return self._with_measures(step, after, self._measures(after, run, data))

    def _measures(self, state, run, data) -> dict:
        """The fraction of units that no test image activates, and the stable rank of every matrix."""

        def of_group(group):
            x = batches.normalise(group, data.mean, data.std)
            arguments = state["params"], state["stats"], x, run["negative_slope"]
            return dead_units.unit_maxima(self.model.apply(*arguments, False, capture=True)[-1])

        maxima = jax.tree.map(lambda x: jnp.max(x, axis=0), jax.lax.map(of_group, data.test_images))
        ranks = dead_units.stable_ranks(state["params"], DECLARATIONS)
        return {"dead": dead_units.dead_fraction(maxima), "stable_rank": ranks}

    def _evaluated(self, state, run, data):
        def add(total, group):
            x, labels, weights = group
            x = batches.normalise(x, data.mean, data.std)
            logits, _ = self.model.apply(state["params"], state["stats"], x, run["negative_slope"], False)
            right = jnp.argmax(logits, axis=-1) == labels
            return total + jnp.stack([jnp.sum(_losses(logits, labels) * weights), jnp.sum(right * weights)]), None

        groups = (data.test_images, data.test_labels, data.test_weights)
        total, _ = jax.lax.scan(add, jnp.zeros(2), groups)
        loss, accuracy = total / jnp.sum(data.test_weights)
        return {"valid_loss": loss, "accuracy": accuracy}


_losses = optax.losses.softmax_cross_entropy_with_integer_labels


def _random_directions(gradient, key):
    """Normal random arrays with the norms of `gradient`. One draw serves all arrays: each draw compiles separately."""
    leaves, structure = jax.tree.flatten(gradient)
    ends = np.cumsum([g.size for g in leaves])
    parts = jnp.split(jax.random.normal(key, (int(ends[-1]),)), ends[:-1])
    scaled = [x * (jnp.linalg.norm(g) / jnp.linalg.norm(x)) for x, g in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, [x.reshape(g.shape) for x, g in zip(scaled, leaves, strict=True)])


class ImageTask(Task):
    """A residual network trained on labelled images."""

    dataset_class = Images
    setting: ImageSetting

    def prepare(self, cache: Path) -> Images:
        images = load_images(self.setting.data.corpus, cache=cache)
        train_shape, test_shape = (images.num_train, *images.shape), (images.num_test, *images.shape)
        check_images(self.setting, train_shape, test_shape, images.classes)
        return images

    def check_data(self, cache: Path) -> None:
        if self.setting.data.corpus != "cifar10":  # which is downloaded
            self.prepare(cache)

    def fingerprints(self, dataset: Images) -> dict[str, str | None]:
        return {"images": dataset.fingerprint}

    def steps(self, dataset: Images, epochs: float) -> float:
        return epochs * (dataset.num_train // self.setting.batch)  # an epoch drops an incomplete batch

    def load(self, dataset: Images, mesh: Mesh | None = None) -> Callable[[Sequence[ImageRun]], Feed]:
        train_files, test_files = (
            (dataset.train_images, dataset.train_labels),
            (dataset.test_images, dataset.test_labels),
        )
        train_arrays, test_arrays = ([storage.load_npy(path) for path in files] for files in (train_files, test_files))
        shared = jax.device_put(
            ImageData.from_arrays(self.setting, train_arrays, test_arrays, dataset.mean, dataset.std)
        )
        return lambda runs: shared

    def program(self, runs: int = 1, mesh: Mesh | None = None) -> ImageProgram:
        return ImageProgram(self.setting, runs)

    def data_shapes(self) -> ImageData:
        return image_shapes(self.setting)

    def check_mesh(self, sizes: Mapping[str, int]) -> None:
        raise InputError(f"mesh={dict(sizes)}: an image setting is trained on one device; omit the mesh")
