"""The residual network against XLA's convolutions and plain NumPy: its counts, statistics and slope. Compiled, and
shallow where depth does not matter, for speed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp import optim, roles
from lvp.errors import InputError
from lvp.experiments.large_updates.resnet import DECLARATIONS, ResNetConfig, biases, convolution, resnet, shortcut

TINY = ResNetConfig(classes=5, image=(9, 9, 2), depth=8, channels=4)  # 9, 5 and 3 positions: odd sides throughout


@functools.cache
def built(seed=0):
    """Returns (params, stats) of TINY, with gains, biases and statistics that differ from their initial values."""
    model, rng = resnet(TINY), np.random.default_rng(seed)
    params, stats = jax.jit(model.init)(jax.random.key(seed)), model.init_stats()
    params = jax.tree.map(lambda x: x + np.float32(0.1 * rng.random(x.shape)), params)
    return params, jax.tree.map(lambda x: x + np.float32(0.5 * rng.random(x.shape)), stats)


def some_images(seed=3):
    return jnp.asarray(np.random.default_rng(seed).standard_normal((6, *TINY.image)), jnp.float32)


_compiled = jax.jit(resnet(TINY).apply, static_argnames=("train", "capture"))


def forward(params, stats, images, slope, train):
    """Returns (logits, stats, inputs of the ReLUs), always for the same shapes, so that only two programs are
    compiled."""
    return _compiled(params, stats, images, jnp.float32(slope), train=train, capture=True)


def reference(params, stats, images, slope, train):
    """Computes the network of the paper on [B, H, W, C] in NumPy with XLA's convolution. Returns logits and ReLU
    inputs."""
    params, stats, seen = *jax.tree.map(np.asarray, (params, stats)), {}

    def conv_norm(x, path, stride):
        p, s = params, stats
        for name in path:
            p, s = p[name], s.get(name)
        x = jax.lax.conv_general_dilated(
            x, p["conv"]["kernel"], (stride, stride), [(1, 1), (1, 1)], dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = np.asarray(x, np.float64)
        mean, var = (x.mean((0, 1, 2)), x.var((0, 1, 2))) if train else (s["norm"]["mean"], s["norm"]["var"])
        return (x - mean) / np.sqrt(var + 1e-5) * p["norm"]["scale"] + p["norm"]["bias"]

    def relu(x, path):
        seen[path] = x
        return np.maximum(x, 0) + slope * np.minimum(x, 0)

    def single(x):
        return np.asarray(x, np.float32)

    x = relu(conv_norm(images, ("stem",), 1), "relu_stem")
    width = x.shape[-1]
    for i in range(sum(name.startswith("block_") for name in params)):
        out = params[f"block_{i}"]["first"]["conv"]["kernel"].shape[-1]
        stride = 2 if out > width else 1
        y = relu(conv_norm(single(x), (f"block_{i}", "first"), stride), f"block_{i}/relu_0")
        y = conv_norm(single(y), (f"block_{i}", "second"), 1)
        x = np.pad(x[:, ::stride, ::stride], [(0, 0)] * 3 + [(0, out - width)])
        x, width = relu(x + y, f"block_{i}/relu_1"), out
    return x.mean((1, 2)) @ params["head"]["kernel"] + params["head"]["bias"], seen


@pytest.mark.parametrize("side, stride", [(8, 2), (9, 1), (9, 2)])
def test_convolution_and_its_gradients_equal_xla(side, stride):
    x, kernel, weights = (
        np.random.default_rng(i).standard_normal(shape).astype(np.float32)
        for i, shape in enumerate([(3, side, side, 2), (3, 3, 3, 4), (4, 1, 1, 1)])
    )

    def plain(x, kernel):
        return jax.lax.conv_general_dilated(
            x, kernel, (stride, stride), [(1, 1), (1, 1)], dimension_numbers=("CHWN", "HWIO", "CHWN")
        )

    @functools.partial(jax.jit, static_argnums=0)
    def value_and_gradients(f, x, kernel):
        def total(x, kernel):
            out = f(x, kernel)
            return jnp.sum(weights * jnp.sin(out)), out

        return jax.grad(total, (0, 1), has_aux=True)(x, kernel)

    ours, convolved = value_and_gradients(lambda x, k: convolution(x, k, stride), x, kernel)
    theirs, expected = value_and_gradients(plain, x, kernel)
    assert convolved.shape == (4, -(-side // stride), -(-side // stride), 2)
    np.testing.assert_allclose(convolved, expected, atol=1e-5)
    for our_gradient, xla_gradient in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(our_gradient, xla_gradient, atol=3e-5)


def test_shortcut_takes_every_other_pixel():
    x = jnp.arange(2 * 5 * 5 * 3, dtype=jnp.float32).reshape(2, 5, 5, 3)
    shortened = shortcut(x, 4, 2)
    np.testing.assert_array_equal(shortened[:2], x[:, ::2, ::2])
    assert shortened.shape == (4, 3, 3, 3) and not shortened[2:].any()
    np.testing.assert_array_equal(shortcut(x, 2, 1), x)


@pytest.mark.parametrize("train", [True, False])
def test_the_network_equals_the_papers(train):
    params, stats = built()
    images = some_images()
    logits, _, seen = forward(params, stats, images, 0.1, train)
    expected, expected_seen = reference(params, stats, images, 0.1, train)
    np.testing.assert_allclose(logits, expected, rtol=2e-6, atol=3e-5)
    assert set(seen) == set(expected_seen) and len(seen) == TINY.depth - 1
    for path, x in seen.items():
        np.testing.assert_allclose(x, expected_seen[path], rtol=2e-6, atol=3e-5, err_msg=path)
    for other in (reference(params, stats, images, 0.1, not train), reference(params, stats, images, 0.0, train)):
        assert np.abs(logits - other[0]).max() > 1e-2


def test_running_statistics_move_by_a_tenth_towards_the_batch():
    params, stats = built()
    for images, tolerance in ((some_images(), 1e-5), (1e-3 * some_images() + 10, 1e-3)):
        moved = forward(params, stats, images, 0.0, True)[1]["stem"]["norm"]
        inside = convolution(images.transpose(3, 1, 2, 0), params["stem"]["conv"]["kernel"], 1)
        inside = np.asarray(inside, np.float64).reshape(4, -1)
        # The second batch's variance would be lost in a mean of squares minus the squared mean.
        for name, value in (("mean", inside.mean(1)), ("var", inside.var(1))):
            statistic = (moved[name] - 0.9 * stats["stem"]["norm"][name]) / 0.1
            np.testing.assert_allclose(statistic, value, rtol=tolerance, atol=tolerance)
    kept = forward(params, stats, some_images(), 0.0, False)[1]
    jax.tree.map(np.testing.assert_array_equal, kept, stats)


def test_runs_under_vmap_equal_single_runs():
    runs, images, slopes = [built(0), built(10)], [some_images(), some_images(seed=7)], jnp.array([0.0, 0.1])
    params, stats = (jax.tree.map(lambda *xs: jnp.stack(xs), *trees) for trees in zip(*runs, strict=True))
    mapped = jax.jit(jax.vmap(lambda p, s, x, a: resnet(TINY).apply(p, s, x, a, True)))
    together = mapped(params, stats, jnp.stack(images), slopes)
    for i, (p, s) in enumerate(runs):  # these also capture, which changes nothing
        alone = forward(p, s, images[i], slopes[i], True)[:2]
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x[i], y, atol=2e-5), together, alone)  # noqa: B023


def test_resnet_20_on_cifar_10_has_the_papers_size():
    config = ResNetConfig()
    assert config.num_params == 269_722  # 0.27 M in He et al. 2016, table 6
    assert config.flops_per_image() / 6 == pytest.approx(40.6e6, rel=2e-3)  # multiply-adds


@pytest.mark.parametrize("depth, channels, image", [(20, 16, (32, 32, 3)), (8, 5, (16, 16, 1)), (14, 3, (9, 9, 4))])
def test_hand_count_of_parameters(depth, channels, image):
    config = ResNetConfig(classes=7, image=image, depth=depth, channels=channels)
    model = resnet(config)
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert sum(x.size for x in jax.tree.leaves(params)) == config.num_params
    kernels = [x for x in jax.tree.leaves(params) if x.ndim == 4]
    assert len(kernels) == depth - 1
    channels_seen = sum(x.shape[-1] for x in kernels)
    assert sum(x.size for x in jax.tree.leaves(model.init_stats())) == 2 * channels_seen


def test_flops_count_the_matrix_products():
    """Compares with XLA's count of the forward pass, a third of training. XLA also counts operations other than matrix
    products."""
    config = ResNetConfig(image=(17, 17, 1), depth=8)
    model = resnet(config)
    params, stats = jax.eval_shape(model.init, jax.random.key(0)), jax.eval_shape(model.init_stats)
    images = jax.ShapeDtypeStruct((4, *config.image), jnp.float32)
    evaluate = jax.jit(lambda p, s, x, slope: model.apply(p, s, x, slope, False)[0])
    counted = evaluate.lower(params, stats, images, 0.0).compile().cost_analysis()["flops"]
    assert 1.0 <= counted / (config.flops_per_image() / 3 * 4) < 1.1


def test_initial_parameters_and_statistics():
    config = ResNetConfig(channels=32)
    model = resnet(config)
    params = by_path(jax.jit(model.init)(jax.random.key(0)))
    assert jnp.std(params["block_8/second/conv/kernel"]) == pytest.approx((2 / (9 * 128)) ** 0.5, rel=0.01)
    assert jnp.std(params["block_3/first/conv/kernel"]) == pytest.approx((2 / (9 * 32)) ** 0.5, rel=0.02)
    assert jnp.std(params["stem/conv/kernel"]) == pytest.approx((2 / 27) ** 0.5, rel=0.1)
    assert jnp.std(params["head/kernel"]) == pytest.approx(128**-0.5, rel=0.06)
    kernels = [np.ravel(x)[:500] for path, x in params.items() if path.endswith("conv/kernel")]
    assert np.abs(np.corrcoef(kernels) - np.eye(len(kernels))).max() < 0.25  # no random number is used twice
    for path, x in params.items():
        assert path.endswith("kernel") or jnp.all(x == path.endswith("scale")), path
    stats = by_path(model.init_stats())
    assert all(jnp.all(x == path.endswith("var")) for path, x in stats.items()) and len(stats) == 2 * 19


def described(params):
    return roles.classify(params, extra=DECLARATIONS)


def by_path(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


def test_every_parameter_has_the_role_of_its_path():
    leaves = {leaf.path: leaf for leaf in jax.tree.leaves(described(built()[0]))}
    kernels = [leaf for leaf in leaves.values() if leaf.path.endswith("conv/kernel")]
    assert len(kernels) == 7 and {(leaf.role, leaf.fan_in) for leaf in kernels} == {("hidden", (0, 1, 2))}
    head = leaves["head/kernel"]
    assert (head.role, head.fan_in, head.vocab_axis) == ("output", (0,), 1)
    rest = {leaf.role for leaf in leaves.values() if not leaf.path.endswith("kernel")}
    assert rest == {"vector"} and len(leaves) == 7 * 3 + 2
    with pytest.raises(InputError, match="conv/kernel"):
        roles.classify(built()[0])  # a kernel of four axes has no role by default


@pytest.mark.slow
def test_rotational_adamw_keeps_the_norm_of_filters():
    params, stats = built()
    rates = dict.fromkeys(("hidden", "output", "vector"), 0.05)
    tx = optim.by_role(optim.rotational_adamw, rates, weight_decay=0.01, declarations=DECLARATIONS)

    @jax.jit
    def step(params):
        def loss(params):
            return -jnp.mean(jax.nn.log_softmax(resnet(TINY).apply(params, stats, some_images(), 0.0, True)[0])[:, 0])

        updates, _ = tx.update(jax.grad(loss)(params), tx.init(params), params)
        return jax.tree.map(jnp.add, params, updates)

    before, after = by_path(params), by_path(step(params))
    for leaf in jax.tree.leaves(described(params)):
        old, new = before[leaf.path], after[leaf.path]
        assert jnp.abs(new - old).max() > 1e-3, leaf.path
        norms = [jnp.linalg.norm(x.reshape(-1, x.shape[-1]), axis=0) for x in (old, new)]
        if leaf.role == "vector":
            assert not np.allclose(*norms, rtol=1e-3)
        else:
            np.testing.assert_allclose(*norms, rtol=1e-6)


def test_biases_are_those_of_norms_and_of_the_head():
    chosen = by_path(biases(built()[0]))
    assert {path for path, x in chosen.items() if x} == {path for path in chosen if path.split("/")[-1] == "bias"}
    assert sum(chosen.values()) == 7 + 1 and not chosen["stem/norm/scale"] and chosen["head/bias"] is True


@pytest.mark.parametrize(
    "wrong, word",
    [
        ({"depth": 18}, "depth must be 6n"),
        ({"depth": 2}, "depth"),
        ({"image": (32, 16, 3)}, "image must be"),
        ({"image": (32, 32)}, "image must be"),
        ({"image": (32, 32, 0)}, "image must be"),
        ({"image": (7, 7, 1)}, "at least 8"),
        ({"classes": 1}, "classes"),
        ({"channels": 0}, "channels"),
        ({"norm_momentum": 1.0}, "norm_momentum"),
    ],
)
def test_bad_shapes_are_named(wrong, word):
    with pytest.raises(InputError, match=word):
        ResNetConfig(**wrong)
