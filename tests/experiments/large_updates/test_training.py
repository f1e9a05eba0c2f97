"""The training of images: the outcome of a run, the effect of its first phase, and reproducibility."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim, training
from lvp.errors import InputError
from lvp.experiments.large_updates import batches
from lvp.experiments.large_updates.resnet import DECLARATIONS, ResNetConfig, biases, resnet
from lvp.experiments.large_updates.training import ImageData, ImageDataConfig, ImageProgram, ImageRun, ImageSetting
from lvp.training import OptimizerConfig

SETTING = ImageSetting(
    ResNetConfig(classes=3, image=(8, 8, 1), depth=8, channels=4),
    ImageDataConfig("none", pad=1, flip=False),
    batch=8,
    steps=10,
    optimizer=OptimizerConfig("rotational_adamw", {"weight_decay": 0.01}),
    first_phase=0.3,
    measured_parts=(0.3, 1.0),
)
PLAIN = ImageRun(learning_rate=0.05, first_scale=1.0, random=False, frozen=False, negative_slope=0.0, seed=0)
LARGE = dataclasses.replace(PLAIN, first_scale=128.0)


@pytest.fixture(scope="module")
def arrays():
    """Returns separable classes: each has its own bright row, with noise."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60).astype(np.int32)
    images = rng.integers(0, 100, (60, 8, 8, 1))
    images[np.arange(60), 2 * labels + 1] += 120
    return images.astype(np.uint8), labels


@pytest.fixture(scope="module")
def data(arrays):
    images, labels = arrays
    return ImageData.from_arrays(SETTING, (images[:40], labels[:40]), (images[40:], labels[40:]), [0.3], [0.2])


@pytest.fixture(scope="module")
def program():
    return ImageProgram(SETTING)


def states(program, run, data):
    """Returns the outcome of a run, and its states on the host after every step."""
    kept = []
    keep = lambda step, state: kept.append(jax.tree.map(np.array, state))  # noqa: E731
    (result,) = training.run(program, [run], data, chunk_seconds=0, on_chunk=keep)
    return result, kept


@pytest.mark.slow
@pytest.mark.parametrize(
    "run",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(dataclasses.replace(LARGE, negative_slope=0.1, seed=3), id="large"),
    ],
)
def test_training_equals_a_plain_loop(run, program, data):
    """The loop is reimplemented with one dispatch per step."""
    model = resnet(SETTING.model)
    init_key, data_key = jax.random.split(jax.random.key(run.seed))
    params, stats = jax.jit(model.init)(init_key), model.init_stats()

    def rate(count):
        scale = jnp.where(count < 3, run.first_scale, 1.0)
        return 0.05 * scale * optax.cosine_decay_schedule(1.0, 10)(count)

    decay = {"weight_decay": {"hidden": 0.01, "output": 0.01}}
    tx = optim.by_role(
        optim.rotational_adamw, dict.fromkeys(("hidden", "output", "vector"), rate), declarations=DECLARATIONS, **decay
    )
    state, losses = tx.init(params), []

    @jax.jit
    def step_of(params, stats, state, x, labels):
        def loss_of(params):
            logits, after = model.apply(params, stats, x, run.negative_slope, True)
            return -jax.nn.log_softmax(logits)[np.arange(8), labels].mean(), after

        (loss, after), gradient = jax.value_and_grad(loss_of, has_aux=True)(params)
        updates, state = tx.update(gradient, state, params)
        return optax.apply_updates(params, updates), after, state, loss

    order, crop, _ = (jax.random.fold_in(data_key, i) for i in range(3))
    for step in range(SETTING.steps):
        chosen = batches.epoch_batch(order, step, 40, 8)
        x = jnp.asarray(data.train_images[np.asarray(chosen)])
        x = batches.augment(x, jax.random.fold_in(crop, step), 1, flip=False)
        x = batches.normalise(x, data.mean, data.std)

        params, stats, state, loss = step_of(params, stats, state, x, data.train_labels[np.asarray(chosen)])
        losses.append(float(loss))
    (result,) = training.run(program, [run], data)
    np.testing.assert_allclose(result.curve_losses, losses, rtol=2e-3)
    logits, _ = jax.jit(model.apply, static_argnums=4)(
        params,
        stats,
        batches.normalise(jnp.asarray(data.test_images[0]), data.mean, data.std),
        run.negative_slope,
        False,
    )
    assert result.accuracy == pytest.approx(float(np.mean(np.argmax(logits, 1) == data.test_labels[0])), abs=0.06)


@pytest.mark.slow
def test_only_frozen_biases_are_constant(program, data):
    for frozen in (True, False):
        _, kept = states(program, dataclasses.replace(LARGE, frozen=frozen), data)
        for step, state in enumerate(kept[:5]):
            is_bias_of_leaves = jax.tree.leaves(biases(state["params"]))
            leaves = zip(jax.tree.leaves(state["params"]), is_bias_of_leaves, strict=True)
            values = [x for x, is_bias in leaves if is_bias]
            moved = any(np.abs(x).max() > 0 for x in values)  # biases start at zero
            assert moved == (not frozen or step >= 3)
        gains = [s["params"]["stem"]["norm"]["scale"] for s in kept[:2]]
        assert not np.array_equal(*gains)  # gains are not biases


@pytest.mark.slow
def test_few_images_end_with_the_first_phase(program, data):
    """Other images change nothing in the first phase (3 steps) and change the training afterwards."""
    few = dataclasses.replace(PLAIN, first_images=8)
    others = data._replace(train_images=np.concatenate([data.train_images[:8], 255 - data.train_images[8:]]))
    (_, a), (_, b), (_, whole) = (
        states(program, few, data),
        states(program, few, others),
        states(program, PLAIN, others),
    )
    assert np.array_equal(a[-1]["losses"][:3], b[-1]["losses"][:3])
    assert np.all(a[-1]["losses"][3:] != b[-1]["losses"][3:])
    assert np.all(whole[-1]["losses"][:3] != b[-1]["losses"][:3])  # control: all images
    with pytest.raises(InputError, match="first_images must not be negative, got -1"):
        dataclasses.replace(PLAIN, first_images=-1)


@pytest.mark.slow
def test_random_directions_end_with_the_first_phase(data):
    """During the first phase the parameters move as far as otherwise, but in random directions, and nothing is learnt.
    Afterwards the network learns; without random directions it learns from the start."""
    setting = dataclasses.replace(SETTING, steps=60, first_phase=0.5, measured_parts=())
    program, random = ImageProgram(setting), dataclasses.replace(PLAIN, random=True)
    (plain, a), (result, b) = states(program, PLAIN, data), states(program, random, data)
    start = resnet(SETTING.model).init(jax.random.split(jax.random.key(0))[0])["stem"]["conv"]["kernel"]
    turned = [np.asarray(s[0]["params"]["stem"]["conv"]["kernel"] - start).ravel() for s in (a, b)]
    sizes = [np.linalg.norm(x) for x in turned]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)
    assert abs(turned[0] @ turned[1]) / np.prod(sizes) < 0.8
    losses = {name: s[-1]["losses"] for name, s in (("plain", a), ("random", b))}
    guess = np.log(3)
    assert losses["plain"][20:30].mean() < 0.7 * guess < 0.9 * guess < losses["random"][20:30].mean()
    assert losses["random"][50:].mean() < 0.85 * guess and result.accuracy > 0.6
    assert losses["plain"][50:].mean() < 0.5 * guess and plain.accuracy > 0.9


@pytest.mark.slow
def test_measures_equal_a_direct_calculation(program, data):
    result, kept = states(program, LARGE, data)
    model = resnet(SETTING.model)
    state = kept[-1]
    x = batches.normalise(jnp.asarray(data.test_images.reshape(-1, 8, 8, 1)), data.mean, data.std)
    capturing = jax.jit(functools.partial(model.apply, capture=True), static_argnums=4)
    *_, inputs = capturing(state["params"], state["stats"], x, 0.0, False)
    dead = [np.asarray(a).max(axis=(0, 1, 2)) <= 0 for a in inputs.values()]
    measured = result.measures
    assert measured["dead"]["all"][-1] == pytest.approx(np.concatenate(dead).mean(), abs=1e-6)
    kernel = np.asarray(state["params"]["stem"]["conv"]["kernel"]).reshape(-1, 4)
    singular = np.linalg.svd(kernel, compute_uv=False)
    rank = measured["stable_rank"]["matrices"]["stem/conv/kernel"][-1]
    assert rank == pytest.approx((singular**2).sum() / singular[0] ** 2, rel=1e-4)
    # Updates 128 times as large leave dead units.
    assert measured["dead"]["all"][0] > 0


@pytest.mark.slow
def test_chunks_and_resumption_change_no_bit(program, data):
    (whole,) = training.run(program, [LARGE], data, chunk_seconds=1e9)
    cut, kept = states(program, LARGE, data)
    (resumed,) = training.run(program, [LARGE], data, state=kept[3], step=4)
    assert whole == cut == resumed


@pytest.mark.slow
def test_groups_share_one_compilation(program, data):
    program.compile(data)
    compiled = program.advance
    for changes in (
        {"random": True},
        {"frozen": True},
        {"first_images": 8},
        {"negative_slope": 0.1},
        {"first_scale": 8.0, "seed": 5},
    ):
        assert training.run(program, [dataclasses.replace(PLAIN, **changes)], data)[0].status == "finished"
    assert program.advance is compiled


def test_padding_of_the_last_group_does_not_count(arrays):
    images, labels = arrays
    train = images[:40], labels[:40]
    part, whole = (ImageData.from_arrays(SETTING, train, (images[40:n], labels[40:n]), [0.3], [0.2]) for n in (51, 60))
    assert part.test_weights.sum() == 11 and whole.test_weights.sum() == 20
    assert {a.tobytes() for a in part.test_images.reshape(-1, 64)} == {
        a.tobytes() for a in images[40:51].reshape(-1, 64)
    }


@pytest.mark.parametrize(
    "setting, named",
    [
        (
            dataclasses.replace(SETTING, model=dataclasses.replace(SETTING.model, image=(16, 16, 1))),
            r"must be \(8, 8, 1\)",
        ),
        (
            dataclasses.replace(SETTING, model=dataclasses.replace(SETTING.model, classes=5)),
            "classes must be 3 for these images, got 5",
        ),
        (dataclasses.replace(SETTING, batch=64), "fewer than a batch of 64"),
    ],
)
def test_images_of_another_shape_are_named(setting, named, arrays):
    images, labels = arrays
    with pytest.raises(InputError, match=named):
        ImageData.from_arrays(setting, (images[:40], labels[:40]), (images[40:], labels[40:]), [0.3], [0.2])


@pytest.mark.parametrize("changes, named", [({"first_phase": 1.5}, "first_phase"), ({"batch": 0}, "batch")])
def test_impossible_settings_are_named(changes, named):
    with pytest.raises(InputError, match=named):
        dataclasses.replace(SETTING, **changes)
    with pytest.raises(InputError, match="first_scale"):
        dataclasses.replace(PLAIN, first_scale=0.0)
