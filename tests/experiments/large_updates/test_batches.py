"""Batches of images: every image once per epoch, crops of the padded image, and dependence on key and step only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp.errors import InputError
from lvp.experiments.large_updates.batches import augment, epoch_batch, normalise

KEY = jax.random.key(7)
draw = jax.jit(epoch_batch, static_argnums=(2, 3))
crop = jax.jit(augment, static_argnums=2, static_argnames="flip")
# All pixels of all images have distinct values other than 0, the value of the padding.
IMAGES = np.arange(1, 40 * 6 * 6 * 2 + 1, dtype=np.float32).reshape(40, 6, 6, 2)


@pytest.mark.parametrize("count, batch", [(1, 1), (10, 10), (37, 8)])
def test_an_epoch_repeats_no_example(count, batch):
    steps = count // batch
    drawn = np.stack([draw(KEY, step, count, batch) for step in range(2 * steps)])
    assert drawn.dtype == np.int32 and drawn.shape == (2 * steps, batch)
    for epoch in (drawn[:steps], drawn[steps:]):
        assert len(np.unique(epoch)) == epoch.size > count - batch
        assert epoch.min() >= 0 and epoch.max() < count


def test_epochs_have_distinct_orders_and_drop_distinct_examples():
    epochs = np.stack([draw(KEY, step, 100, 30) for step in range(60)]).reshape(20, 90)
    assert len({epoch.tobytes() for epoch in epochs}) == 20
    counts = np.bincount(epochs.ravel(), minlength=100)
    assert counts.min() >= 12 and counts.max() == 20  # mean 18: no example is dropped in many of the 20 epochs


def test_batches_depend_only_on_key_and_step():
    first = [draw(KEY, step, 50, 16) for step in range(5)]
    again = [draw(KEY, step, 50, 16) for step in reversed(range(5))][::-1]
    keys = jnp.stack([KEY, jax.random.key(8)])
    # Two runs in a scan that starts at step 3.
    _, scanned = jax.lax.scan(
        lambda carry, step: (carry, jax.vmap(lambda key: epoch_batch(key, step, 50, 16))(keys)), 0, jnp.arange(3, 5)
    )
    for step in range(5):
        np.testing.assert_array_equal(first[step], again[step])
    for step in (3, 4):
        np.testing.assert_array_equal(scanned[step - 3, 0], first[step])
        np.testing.assert_array_equal(scanned[step - 3, 1], draw(keys[1], step, 50, 16))
    assert len({np.asarray(x).tobytes() for x in [*first, scanned[0, 1]]}) == 6


@pytest.mark.parametrize("batch", [0, 51])
def test_a_batch_must_fit_the_data_set(batch):
    with pytest.raises(InputError, match="between 1 and the 50 examples"):
        draw(KEY, 0, 50, batch)


def placements(augmented, pad, images=IMAGES):
    """Returns (row, column, mirrored) of each image's crop. Fails if the crop is not unique."""
    padded = np.pad(images, [(0, 0), (pad, pad), (pad, pad), (0, 0)])
    side, matches = images.shape[1], []
    for whole, part in zip(padded, np.asarray(augmented), strict=True):
        matches.append(
            [
                (row, column, mirrored)
                for row in range(2 * pad + 1)
                for column in range(2 * pad + 1)
                for mirrored, oriented in enumerate((part, part[:, ::-1]))
                if np.array_equal(oriented, whole[row : row + side, column : column + side])
            ]
        )
        assert len(matches[-1]) == 1
    return [match for (match,) in matches]


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("pad", [0, 2])
def test_an_augmented_image_is_a_crop_of_the_padded_one(pad, flip):
    augmented = [crop(IMAGES, jax.random.fold_in(KEY, i), pad, flip=flip) for i in range(4)]
    drawn = [placement for images in augmented for placement in placements(images, pad)]
    rows, columns, mirrored = zip(*drawn, strict=True)
    for axis in (rows, columns):
        assert set(axis) == set(range(2 * pad + 1))
        counts = np.bincount(axis)
        assert np.abs(counts - 160 / (2 * pad + 1)).max() < 5 * np.sqrt(160 / (2 * pad + 1))
    assert (50 < sum(mirrored) < 110) if flip else not any(mirrored)
    if pad:  # rows, columns and mirroring are independent
        correlations = np.corrcoef([rows, columns, mirrored][: 3 if flip else 2])
        assert np.abs(correlations - np.eye(len(correlations))).max() < 5 / np.sqrt(160)


def test_without_padding_and_flips_images_are_unchanged():
    np.testing.assert_array_equal(crop(IMAGES, KEY, 0, flip=False), IMAGES)


def test_a_negative_pad_is_refused():
    with pytest.raises(InputError, match="pad must be 0 or more"):
        augment(IMAGES, KEY, -1, flip=False)


def test_normalised_images_have_mean_zero_and_deviation_one():
    images = np.random.default_rng(0).integers(0, 256, (50, 5, 5, 3), dtype=np.uint8)
    mean, std = (tuple(f((images / 255), (0, 1, 2))) for f in (np.mean, np.std))
    normalised = jax.jit(lambda x: normalise(x, mean, std))(images)
    assert normalised.dtype == jnp.float32
    np.testing.assert_allclose(normalised, (images / 255 - np.array(mean)) / np.array(std), atol=1e-6)
    np.testing.assert_allclose(np.mean(np.float64(normalised), (0, 1, 2)), 0, atol=1e-6)
    np.testing.assert_allclose(np.std(np.float64(normalised), (0, 1, 2)), 1, atol=1e-6)
    np.testing.assert_allclose(normalised[3], normalise(images[3], mean, std), atol=1e-6)


@pytest.mark.parametrize("images, mean, std", [(IMAGES, (0, 0), (1, 1)), (np.uint8(IMAGES % 9), (0,), (1, 1))])
def test_images_of_the_wrong_dtype_or_channels_are_refused(images, mean, std):
    with pytest.raises(InputError, match="uint8 with a mean and a std per channel"):
        normalise(jnp.asarray(images), mean, std)
