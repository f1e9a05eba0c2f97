"""Batches of images inside a compiled step: selection, random crops and flips, normalisation."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from lvp.errors import InputError


def epoch_batch(key: jax.Array, step: jax.Array | int, count: int, batch: int) -> jax.Array:
    """Indices of the examples of step `step` among `count`, int32 [batch], a pure function of (key, step).

    An epoch has ⌊count / batch⌋ steps without repeated examples: epoch e is a permutation drawn from
    `fold_in(key, e)`, cut into batches. The remainder, fewer than a batch, is dropped; it differs between epochs. A
    resumed run sees the same batches.

    Args:
      key: a PRNG key, which may be traced.
      step: an integer from 0, which may be traced.
      count: the number of examples, a constant.
      batch: the number of examples per step, a constant.

    Raises:
      InputError: `batch` is below 1 or above `count`.
    """
    if not 1 <= batch <= count:
        raise InputError(f"batch must lie between 1 and the {count} examples, got {batch}")
    epoch, place = jnp.divmod(jnp.asarray(step, jnp.int32), count // batch)
    order = jax.random.permutation(jax.random.fold_in(key, epoch), count)
    return jax.lax.dynamic_slice(order, (place * batch,), (batch,))


def augment(images_BHWC: jax.Array, key: jax.Array, pad: int, *, flip: bool) -> jax.Array:
    """The augmentation of He et al. 2016, section 4.2, random per image, a pure function of `key`.

    Each image is padded with zeros and cropped to its old size at a uniformly random place. Zeros are black before
    `normalise` and the mean after it. The dtype is kept.

    Args:
      pad: the pixels of zeros on every side, a constant.
      flip: whether images are mirrored left to right with probability 1/2, a constant. Do not mirror digits or letters.

    Raises:
      InputError: `pad` is negative.
    """
    if pad < 0:
        raise InputError(f"pad must be 0 or more pixels, got {pad}")
    crop_key, flip_key = jax.random.split(key)
    count, *shape = images_BHWC.shape
    padded = jnp.pad(images_BHWC, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    corners = jax.random.randint(crop_key, (count, 2), 0, 2 * pad + 1)
    cropped = jax.vmap(lambda image, corner: jax.lax.dynamic_slice(image, (*corner, 0), shape))(padded, corners)
    if not flip:
        return cropped
    mirrored = jax.random.bernoulli(flip_key, 0.5, (count, 1, 1, 1))
    return jnp.where(mirrored, cropped[:, :, ::-1], cropped)


def normalise(images: jax.Array, mean: Sequence[float], std: Sequence[float]) -> jax.Array:
    """(x / 255 − mean) / std per channel: uint8 [..., C] → float32 [..., C].

    Args:
      mean, std: [C], of pixels as numbers from 0 to 1, as in `images.Images`.

    Raises:
      InputError: the images are not uint8, or have another number of channels than `mean` and `std`.
    """
    channels = images.shape[-1]
    if images.dtype != jnp.uint8 or not len(mean) == len(std) == channels:
        raise InputError(
            f"images must be uint8 with a mean and a std per channel, got {images.dtype} with {channels} channels, "
            f"{len(mean)} means, {len(std)} stds"
        )
    per_channel = [jnp.asarray(x, jnp.float32).reshape((1,) * (images.ndim - 1) + (-1,)) for x in (mean, std)]
    return (images.astype(jnp.float32) / 255 - per_channel[0]) / per_channel[1]
