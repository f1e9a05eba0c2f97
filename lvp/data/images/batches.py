"""Batches of images inside a compiled step: which, cropped and mirrored at random, and as numbers about zero."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from lvp.errors import InputError


def epoch_batch(key: jax.Array, step: jax.Array | int, count: int, batch: int) -> jax.Array:
    """Which of `count` examples step `step` sees, int32 [batch], a pure function of (key, step).

    An epoch has ⌊count / batch⌋ steps, and in it no example comes twice: epoch e is a permutation drawn from
    `fold_in(key, e)`, cut into batches. What is left over, fewer than a batch, is dropped: in every epoch others. key a
    PRNG key, step any integer from 0 and both traced, so that a run resumed at a step sees what it would have seen;
    count and batch are constants. Raises InputError when tracing unless 1 ≤ batch ≤ count.
    """
    if not 1 <= batch <= count:
        raise InputError(f"batch must lie between 1 and the {count} examples, got {batch}")
    epoch, place = jnp.divmod(jnp.asarray(step, jnp.int32), count // batch)
    order = jax.random.permutation(jax.random.fold_in(key, epoch), count)
    return jax.lax.dynamic_slice(order, (place * batch,), (batch,))


def augment(images_BHWC: jax.Array, key: jax.Array, pad: int, *, flip: bool) -> jax.Array:
    """The usual augmentation (He et al. 2016, section 4.2), each image by its own chance, a pure function of `key`.

    `pad` pixels of zeros on every side, a crop of the old size at a uniformly random place, and with `flip` that
    mirrored left to right half of the time (not for digits or letters). Images of any dtype, which stays; zeros are
    black before `normalise` and the mean behind it. pad and flip are constants. Raises InputError for a negative pad.
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

    mean, std: [C], of pixels as numbers from 0 to 1, as `lvp.data.Images` has them. Raises InputError for another
    number of channels or for images that are not uint8.
    """
    channels = images.shape[-1]
    if images.dtype != jnp.uint8 or not len(mean) == len(std) == channels:
        raise InputError(
            f"images must be uint8 with a mean and a std per channel, got {images.dtype} with {channels} channels, "
            f"{len(mean)} means, {len(std)} stds"
        )
    per_channel = [jnp.asarray(x, jnp.float32).reshape((1,) * (images.ndim - 1) + (-1,)) for x in (mean, std)]
    return (images.astype(jnp.float32) / 255 - per_channel[0]) / per_channel[1]
