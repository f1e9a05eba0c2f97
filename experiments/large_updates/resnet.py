"""Residual networks for small images: He et al. 2016, section 4.2 (arXiv:1512.03385), parameter-free shortcuts (A).

Other modules use only `ResNetConfig`, `resnet`, `DECLARATIONS` and `biases`. Shapes in names: B images, H rows, W
columns, C channels, K classes. Activations are [C, H, W, B], and a convolution is one matrix product of the kernel with
shifted copies of the image. XLA's own convolution is tens of times slower in a loop on CPU. With the batch last, copies
move contiguous runs. A pack of runs becomes a batched product instead of a grouped convolution.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from lvp import roles
from lvp.errors import InputError

SMALLEST_IMAGE = 8  # the last stage then has 2 × 2 positions

DECLARATIONS: tuple[roles.Declaration, ...] = (
    roles.Declaration(r"(?:params/)?(?:stem|block_\d+/(?:first|second))/conv/kernel", "hidden", fan_in=(0, 1, 2)),
    roles.Declaration(r"(?:params/)?head/kernel", "output", fan_in=(0,), vocab_axis=1),
)
"""Roles of the matrices: a filter is a neuron, the dense layer the head. Gains and biases are vectors by default."""


DEEPEST = 1202  # the deepest network of He et al. 2016; every block is compiled separately


@dataclass(frozen=True)
class ResNetConfig:
    """Shapes of a residual network: everything that changes the compiled program.

    Raises:
      InputError: the depth is not 6n + 2 from 8 to 1202, the image is not square, has sides below 8 or no channel,
        there are fewer than two classes or no channels, or the momentum is outside [0, 1).
    """

    classes: int = 10
    image: tuple[int, int, int] = (32, 32, 3)  # (height, width, channels), square
    depth: int = 20  # 6n + 2: n blocks of two 3 × 3 convolutions in each of three stages
    channels: int = 16  # of the first stage; twice and four times as many at 1/2 and 1/4 of the resolution
    norm_momentum: float = 0.9  # decay of the running statistics per step
    norm_epsilon: float = 1e-5  # added to the variance

    def __post_init__(self):
        object.__setattr__(self, "image", tuple(self.image))  # JSON gives a list
        for name, least in (("classes", 2), ("channels", 1)):
            if getattr(self, name) < least:
                raise InputError(f"resnet: {name} must be at least {least}, got {getattr(self, name)}")
        if not 8 <= self.depth <= DEEPEST or self.depth % 6 != 2:
            raise InputError(f"resnet: depth must be 6n + 2 (8, 14, 20, … up to {DEEPEST}), got {self.depth}")
        if len(self.image) != 3 or self.image[0] != self.image[1] or self.image[2] < 1:
            raise InputError(f"resnet: image must be (side, side, channels), got {self.image}")
        if self.image[0] < SMALLEST_IMAGE:
            raise InputError(f"resnet: image must have sides of at least {SMALLEST_IMAGE}, got {self.image}")
        if not 0 <= self.norm_momentum < 1:
            raise InputError(f"resnet: norm_momentum must lie in [0, 1), got {self.norm_momentum}")

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """(channels, stride) of every block, in order."""
        per_stage = (self.depth - 2) // 6
        stages = ((self.channels, 1), (2 * self.channels, 2), (4 * self.channels, 2))
        return tuple((out, stride if i == 0 else 1) for out, stride in stages for i in range(per_stage))

    def _convolutions(self) -> Iterator[tuple[int, int, int]]:
        """(channels in, channels out, side of the output) of every convolution."""
        side, _, channels = self.image
        yield channels, self.channels, side
        channels = self.channels
        for out, stride in self.blocks:
            side = -(-side // stride)
            yield channels, out, side
            yield out, out, side
            channels = out

    @property
    def num_params(self) -> int:
        """The number of parameters: 9 · in · out per convolution, a gain and a bias per channel, head and bias."""
        head = (4 * self.channels + 1) * self.classes
        return head + sum(9 * channels * out + 2 * out for channels, out, _ in self._convolutions())

    def flops_per_image(self) -> float:
        """Model FLOPs of a training step per image.

        2 per multiply-add of every convolution (with its zero padding) and of the head; the backward pass counts twice.
        """
        head = 4 * self.channels * self.classes
        return 6.0 * (head + sum(9 * channels * out * side**2 for channels, out, side in self._convolutions()))


def convolution(x_CHWB: jax.Array, kernel: jax.Array, stride: int) -> jax.Array:
    """A 3 × 3 convolution with one pixel of zeros around the image.

    [C, H, W, B], kernel [3, 3, C, out] → [out, H', W', B] with H' = ⌈H / stride⌉. Output (i, j) is centred at input
    (stride · i, stride · j).
    """
    _, height, width, images = x_CHWB.shape
    rows, columns = (-(-size // stride) for size in (height, width))
    padded = jnp.pad(x_CHWB, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [
        padded[:, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(3)
        for j in range(3)
    ]
    patches = jnp.concatenate(shifted).reshape(-1, rows * columns * images)
    product = kernel.reshape(patches.shape[0], -1).T @ patches
    return product.reshape(-1, rows, columns, images)


def shortcut(x_CHWB: jax.Array, out: int, stride: int) -> jax.Array:
    """He et al.'s option A: every `stride`-th row and column, with zeros for new channels."""
    x_CHWB = x_CHWB[:, ::stride, ::stride]
    return jnp.pad(x_CHWB, ((0, out - x_CHWB.shape[0]), (0, 0), (0, 0), (0, 0)))


class Conv(nn.Module):
    """A trained `convolution`."""

    out: int
    stride: int

    @nn.compact
    def __call__(self, x_CHWB):
        # `ResNet.init` draws the kernels.
        kernel = self.param("kernel", nn.initializers.zeros, (3, 3, x_CHWB.shape[0], self.out), jnp.float32)
        return convolution(x_CHWB, kernel, self.stride)


class ConvNorm(nn.Module):
    """A convolution followed by batch normalisation."""

    config: ResNetConfig
    out: int
    stride: int = 1

    @nn.compact
    def __call__(self, x_CHWB, train: bool):
        x_CHWB = Conv(self.out, self.stride, name="conv")(x_CHWB)
        # The fast variance, E[x²] − E[x]², would cancel after large updates have moved the mean.
        norm = nn.BatchNorm(
            use_running_average=not train,
            axis=0,
            momentum=self.config.norm_momentum,
            epsilon=self.config.norm_epsilon,
            use_fast_variance=False,
            name="norm",
        )
        return norm(x_CHWB)


def _activation(module: nn.Module, name: str, x_CHWB, negative_slope):
    """max(x, 0) + negative_slope · min(x, 0). The input is sown as a pre-activation."""
    module.sow("pre_activations", name, x_CHWB.transpose(3, 1, 2, 0), reduce_fn=lambda _, x: x)
    return jnp.where(x_CHWB > 0, x_CHWB, negative_slope * x_CHWB)


class Block(nn.Module):
    """Two convolutions and a `shortcut` around them."""

    config: ResNetConfig
    out: int
    stride: int

    @nn.compact
    def __call__(self, x_CHWB, negative_slope, train: bool):
        y_CHWB = ConvNorm(self.config, self.out, self.stride, name="first")(x_CHWB, train)
        y_CHWB = _activation(self, "relu_0", y_CHWB, negative_slope)
        y_CHWB = ConvNorm(self.config, self.out, name="second")(y_CHWB, train)
        y_CHWB = y_CHWB + shortcut(x_CHWB, self.out, self.stride)
        return _activation(self, "relu_1", y_CHWB, negative_slope)


class ResNetModule(nn.Module):
    """The Flax module of a `ResNet`: images [B, H, W, C] → logits [B, K]."""

    config: ResNetConfig

    @nn.compact
    def __call__(self, images_BHWC, negative_slope, train: bool):
        c = self.config
        x_CHWB = images_BHWC.astype(jnp.float32).transpose(3, 1, 2, 0)
        x_CHWB = ConvNorm(c, c.channels, name="stem")(x_CHWB, train)
        x_CHWB = _activation(self, "relu_stem", x_CHWB, negative_slope)
        for i, (out, stride) in enumerate(c.blocks):
            x_CHWB = Block(c, out, stride, name=f"block_{i}")(x_CHWB, negative_slope, train)
        pooled_BC = jnp.mean(x_CHWB, axis=(1, 2)).T
        return nn.Dense(c.classes, kernel_init=nn.initializers.zeros, name="head")(pooled_BC)


class ResNet(NamedTuple):
    """The functions of a residual network.

    init(key) → params: a nested dict of float32 arrays. Kernels of convolutions are normal with variance 2 / (9 · in)
      (He et al. 2015), the head's with variance 1 / in; gains start at one, biases at zero.
    init_stats() → stats: a nested dict like params of the running "mean" (zeros) and "var" (ones) of every
      normalisation.
    apply(params, stats, images_BHWC, negative_slope, train, capture=False) → (logits_BK, stats). With `train`, the
      batch's mean and (biased) variance normalise, and the running statistics move towards them. Without `train`, the
      running statistics normalise and are returned unchanged. `negative_slope` is that of every ReLU, a number or a
      traced scalar: 0 is a ReLU, 0.1 a leaky ReLU. With `capture`, the result is (logits_BK, stats, pre_activations),
      where pre_activations maps the path of every ReLU to its input, [B, H, W, C] of its stage.
    """

    config: ResNetConfig
    init: Callable
    init_stats: Callable
    apply: Callable


def resnet(config: ResNetConfig) -> ResNet:
    """The `ResNet` of a configuration."""
    module = ResNetModule(config)

    def shapes(collection):
        image = jax.ShapeDtypeStruct((1, *config.image), jnp.float32)
        return jax.eval_shape(lambda x: module.init(jax.random.key(0), x, 0.0, True), image)[collection]

    def init(key):
        leaves, treedef = jax.tree.flatten(roles.classify(shapes("params"), extra=DECLARATIONS))
        ends = np.cumsum([0 if leaf.role == "vector" else math.prod(leaf.shape) for leaf in leaves])
        # One draw for all kernels: one draw per kernel takes seconds to compile.
        draws = jnp.split(jax.random.normal(key, (ends[-1],), jnp.float32), ends[:-1])
        return jax.tree.unflatten(treedef, [_start(leaf, draw) for leaf, draw in zip(leaves, draws, strict=True)])

    def init_stats():
        return jax.tree_util.tree_map_with_path(_start_of_statistic, shapes("batch_stats"))

    def apply(params, stats, images_BHWC, negative_slope, train: bool, capture: bool = False):
        mutable = ["batch_stats"] * train + ["pre_activations"] * capture
        logits_BK, collections = module.apply(
            {"params": params, "batch_stats": stats}, images_BHWC, negative_slope, train, mutable=mutable
        )
        stats = collections.get("batch_stats", stats)
        if not capture:
            return logits_BK, stats
        return logits_BK, stats, dict(_by_path(collections["pre_activations"]))

    return ResNet(config, init, init_stats, apply)


def _start(leaf: roles.Leaf, draw: jax.Array) -> jax.Array:
    """A parameter from unit normal draws; gains and biases are constant."""
    if leaf.role == "vector":
        return jnp.full(leaf.shape, leaf.path.endswith("/scale"), jnp.float32)
    fan_in = math.prod(leaf.shape[axis] for axis in leaf.fan_in)
    return draw.reshape(leaf.shape) * math.sqrt((1 if leaf.role == "output" else 2) / fan_in)


def _start_of_statistic(path, x) -> jax.Array:
    return jnp.full(x.shape, path[-1].key == "var", x.dtype)


def biases(params: Any) -> Any:
    """A tree of bools like params: True for biases of normalisations and of the head."""
    return jax.tree.unflatten(jax.tree.structure(params), [path.endswith("/bias") for path, _ in _by_path(params)])


def _by_path(tree: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="/"), x) for path, x in leaves]
