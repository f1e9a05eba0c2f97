"""Every optimizer against its equations in float64 NumPy (oracle.py): the displacement of every leaf after 200 steps.

The gradients do not depend on the parameters, so a difference means a different term and not a diverging trajectory.
"""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from lvp import optim
from lvp.roles import Declaration
from tests.lvp.optim import oracle
from tests.marking import all_slow_but, slow

STEPS = 200
RATE = 3e-2  # float32 gains near one round every step of η γ by 1e-5 of it, always in the same direction
TOLERANCE = {"float64": 1e-12, "float32": 2e-5}
# Float32 moments are accurate to about 1e-7 of their RMS. Below ten times this, rounding may determine the sign.
DOUBTFUL, DOUBTFUL_SHARE = 1e-6, 1e-5

# path → shape, fan-in axes, vocabulary axis; fan-ins are at least 16.
LEAVES = {
    "embedding/embedding": ((48, 32), (1,), 0),
    "position/embedding": ((16, 32), (1,), None),
    "block_0/attention/qkv/kernel": ((32, 96), (0,), None),
    "block_0/attention/out/kernel": ((4, 8, 32), (0, 1), None),
    "block_0/mlp/up/kernel": ((32, 64), (0,), None),
    "block_0/mlp/up/bias": ((64,), (), None),
    "block_0/norm_mlp/scale": ((32,), (), None),
    "blocks/mlp/down/kernel": ((2, 24, 16), (1,), None),
    "stem/kernel": ((3, 3, 4, 8), (0, 1, 2), None),
    "tied_embedding/embedding": ((40, 32), (1,), 0),
    "head/kernel": ((32, 48), (0,), 1),
}
FAN_IN = {path: fan_in for path, (_, fan_in, _) in LEAVES.items()}
STEM = (Declaration("stem/kernel", "hidden", fan_in=(0, 1, 2)),)
ZERO_NORM = ("block_0/mlp/up/kernel", (slice(None), 3))
OUTPUT = {"head/kernel": 1, "tied_embedding/embedding": 0}
VOCABULARY = {**OUTPUT, "embedding/embedding": 0}


@functools.cache
def problem():
    """Returns (params, gradients), path → float32 arrays. Both precisions and the oracle start from the same
    numbers."""
    rng = np.random.default_rng(0)
    params, gradients = {}, {}
    for path, (shape, _, _) in LEAVES.items():
        params[path] = rng.normal(0.0, 0.2, shape)
        if path.endswith("scale"):
            params[path] += 1.0
        # A nonzero mean, so that the displacement is more than a random walk.
        gradients[path] = 0.2 * rng.standard_normal(shape) + rng.standard_normal((STEPS, *shape))
        gradients[path][rng.random((STEPS, *shape)) < 0.01] = 0.0
    # Some tokens are absent from a batch. Token 5 is absent from all, so that its moments stay exactly zero.
    present = rng.random((STEPS, LEAVES["embedding/embedding"][0][0], 1)) < 0.5
    present[:, 5] = False
    gradients["embedding/embedding"] *= present
    gradients["block_0/norm_mlp/scale"] *= 1e-7  # small enough for Adam's ε to matter
    gradients["block_0/mlp/up/kernel"] *= 30.0
    params[ZERO_NORM[0]][ZERO_NORM[1]] = 0.0
    single = lambda tree: {path: leaf.astype(np.float32) for path, leaf in tree.items()}  # noqa: E731
    return single(params), single(gradients)


@dataclass(frozen=True)
class Case:
    """One configuration of `factory` (ours) and `oracle`.

    Attributes:
      constant: the rate is constant; otherwise it is the trapezoid.
      numbers: numeric arguments of both sides. They and `constant` are traced unless `plain`, so that cases which
        differ only in them are compiled once. Compilation takes most of the tests' time.
      flags: other arguments of both sides. `ours`, `theirs`: arguments of one side.
      signs: (β, Nesterov) of the u whose sign is the update, if any.
    """

    name: str
    factory: Callable
    oracle: Callable
    constant: bool
    numbers: dict
    flags: dict
    ours: dict
    theirs: dict
    signs: tuple | None = None
    plain: bool = False


RATES = {True: np.full(STEPS, RATE), False: oracle.trapezoid(RATE, STEPS, 0.1, 0.5)}


def case(name, constant, numbers, flags=None, ours=None, theirs=None, **other):
    """Returns the Case of the optimizer that the name begins with. The oracle's function has the same name, except
    AdamW's for Coupled Adam."""
    factory = name.split("-")[0]
    reference = getattr(oracle, "adamw" if factory == "coupled_adam" else factory)
    label = f"{name}-{'constant' if constant else 'trapezoid'}"
    factory = getattr(optim, factory)
    return Case(label, factory, reference, bool(constant), numbers, flags or {}, ours or {}, theirs or {}, **other)


def cases():
    """Yields every optimizer with every combination of its flags. Decay and a schedule alternate with none."""
    for zero in (0, 1):
        yield case(f"sign_sgd-zero{zero}", zero, {}, {"sign_of_zero": zero}, signs=(0, False))
    adam = {"b1": 0.9, "b2": 0.95, "eps": 1e-8}
    for first, decay in itertools.product((True, False), (0.0, 0.1)):
        name, flags = f"adamw-first{first}-decay{decay}", {"bias_correction_first": first}
        yield case(name, not decay, {**adam, "weight_decay": decay}, flags)
    stem, turns = {"declarations": STEM}, {"peak": RATE, "fan_in": FAN_IN}
    for nesterov, inverse in itertools.product((False, True), repeat=2):
        flags = {"nesterov": nesterov, "inverse_bias_correction": inverse}
        name, signs = f"nesterov{nesterov}-inverse{inverse}", (0.9, nesterov)
        for decay in (0.0, 0.1):
            numbers = {"b": 0.9, "weight_decay": decay}
            yield case(f"lion_a-{name}-decay{decay}", not decay, numbers, flags, signs=signs)
        for constant in (True, False):
            numbers = {"b": 0.9, "weight_decay": 0.1, "update_multiplier": 1.0 if constant else 0.5}
            yield case(f"lion_ar-{name}", constant, numbers, flags, stem, turns, signs=signs)
    numbers, flags = {"b": 0.9, "weight_decay": 0.1}, {"nesterov": True, "inverse_bias_correction": True}
    yield case("lion_ar-plain", True, numbers, flags, stem, turns, signs=(0.9, True), plain=True)
    for constant in (True, False):
        varied = {"norm_decay": 0.9 if constant else 0.8, "update_multiplier": 1.0 if constant else 0.5}
        numbers = {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.01, **varied}
        yield case("rotational_adamw", constant, numbers, {}, stem, {"fan_in": FAN_IN})
    for couple, axes, decay in ((("output",), OUTPUT, 0.0), (("output", "embedding"), VOCABULARY, 0.1)):
        ours, theirs = {"couple": couple, **stem}, {"vocab_axis": axes}
        name = f"coupled_adam-{'+'.join(couple)}-decay{decay}"
        yield case(name, not decay, {**adam, "weight_decay": decay}, {}, ours, theirs)


CASES = {case.name: case for case in cases()}


def nested(flat):
    """Returns {"a": {"b": x}} for {"a/b": x}."""
    tree = {}
    for path, leaf in flat.items():
        *parents, name = path.split("/")
        functools.reduce(lambda node, key: node.setdefault(key, {}), parents, tree)[name] = leaf
    return tree


def flat(tree):
    """Returns the inverse of `nested`, in float64 NumPy."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(keys, simple=True, separator="/"): np.asarray(x, np.float64) for keys, x in leaves}


def schedule(constant):
    """Returns the trapezoid, or its peak at every step if `constant`, a traced bool. It has `.peak`, which `lion_ar`
    needs."""
    trapezoid = optim.trapezoid(RATE, STEPS, warmup=0.1, cooldown=0.5)
    chosen = lambda count: jnp.where(constant, trapezoid.peak, trapezoid(count))  # noqa: E731
    chosen.peak = trapezoid.peak
    return chosen


def run(make, params, gradients):
    """Returns the parameters after a step of `make()` for each of the gradients."""
    tx = make()

    def step(carry, gradient):
        updates, state = tx.update(gradient, carry[1], carry[0])
        return (optax.apply_updates(carry[0], updates), state), None

    return jax.lax.scan(step, (params, tx.init(params)), gradients)[0][0]


COMPILED = {}


@functools.cache
def ours(name, dtype):
    """Returns path → parameters after all steps of our optimizer, in one compiled scan."""
    case = CASES[name]
    make = functools.partial(case.factory, **case.flags, **case.ours)
    with jax.enable_x64(dtype == "float64"):
        params, gradients = (jax.tree.map(lambda x: jnp.asarray(x, dtype), nested(tree)) for tree in problem())
        if case.plain:
            after = jax.jit(functools.partial(run, lambda: make(RATE, **case.numbers)))(params, gradients)
        else:
            traced = lambda p, g, constant, numbers: run(lambda: make(schedule(constant), **numbers), p, g)  # noqa: E731
            # LLVM's optimizations take longer than they save; the plain case keeps them.
            options = {"xla_backend_optimization_level": 0}
            key = (str(make), dtype)
            COMPILED.setdefault(key, jax.jit(traced, compiler_options=options))
            after = COMPILED[key](params, gradients, case.constant, case.numbers)
        assert all(leaf.dtype == dtype for leaf in jax.tree.leaves(after))
    return flat(after)


@functools.cache
def doubtful(signs):
    return oracle.near_zero(problem()[1], *signs, DOUBTFUL)


def counted(name):
    """Returns path → the coordinates that are compared. For signed updates, coordinates (whole neurons if rotated)
    whose sign was ever determined by rounding are left out."""
    shapes = {path: leaf.shape for path, leaf in problem()[0].items()}
    if CASES[name].signs is None:
        return {path: np.ones(shape, bool) for path, shape in shapes.items()}
    masks = {path: counts > 0 for path, counts in doubtful(CASES[name].signs).items()}
    if name.startswith("lion_ar"):  # the projection spreads the sign of one coordinate over its neuron
        masks = {
            path: np.broadcast_to(mask.any(FAN_IN[path], keepdims=True) if FAN_IN[path] else mask, shapes[path])
            for path, mask in masks.items()
        }
    return {path: ~mask for path, mask in masks.items()}


def reference(name, **altered):
    """Returns path → parameters after all steps of the oracle."""
    case = CASES[name]
    params, gradients = problem()
    wide = {path: leaf.astype(np.float64) for path, leaf in params.items()}
    arguments = {"rates": RATES[case.constant], **case.numbers, **case.flags, **case.theirs, **altered}
    return case.oracle(wide, gradients, **arguments)


def errors(name, after, expected):
    """Returns path → (relative error of the displacement's norm, of the displacement)."""
    out = {}
    for path, keep in counted(name).items():
        start = problem()[0][path].astype(np.float64)
        moved, should = (tree[path][keep] - start[keep] for tree in (after, expected))
        size = np.linalg.norm(should)
        assert size > 0, path
        out[path] = (abs(np.linalg.norm(moved) / size - 1), np.linalg.norm(moved - should) / size)
    return out


def worst(errors_by_path):
    return max(max(pair) for pair in errors_by_path.values())


QUICK = [name for name in CASES if name.endswith("trapezoid")]


@pytest.mark.parametrize("name", all_slow_but(QUICK, CASES))
@pytest.mark.parametrize("dtype", ["float32", slow("float64")])
def test_displacement_equals_the_equations(name, dtype, record_property):
    deviations = errors(name, ours(name, dtype), reference(name))
    record_property(dtype, float(worst(deviations)))
    assert worst(deviations) <= TOLERANCE[dtype], deviations


@pytest.mark.parametrize("signs", sorted({case.signs for case in CASES.values() if case.signs}))
def test_signs_determined_by_rounding_are_rare(signs):
    total = STEPS * sum(leaf.size for leaf in problem()[0].values())
    assert total > 1e6  # a fraction of 1e-5 is then at least ten coordinates and steps
    assert sum(counts.sum() for counts in doubtful(signs).values()) <= DOUBTFUL_SHARE * total


def test_the_problem_exercises_every_convention():
    params, gradients = problem()
    assert all((gradient == 0).any() for gradient in gradients.values())
    assert not params[ZERO_NORM[0]][ZERO_NORM[1]].any()
    assert not gradients["embedding/embedding"][:, 5].any()


def other_variant(b, t, nesterov, inverse_bias_correction, exact=oracle.gamma):
    return exact(b, t, not nesterov, inverse_bias_correction)


def one_step_later(b, t, nesterov, inverse_bias_correction, exact=oracle.gamma):
    return exact(b, t + 1, nesterov, inverse_bias_correction)


OUT_BY_HEAD = {**FAN_IN, "block_0/attention/out/kernel": (1,)}
# Case, altered arguments of the oracle, altered functions of the oracle.
CONTROLS = {
    "sign of zero": ("sign_sgd-zero1-constant", {"sign_of_zero": 0}, {}),
    "first moment corrected": ("adamw-firstFalse-decay0.1-trapezoid", {"bias_correction_first": True}, {}),
    "epsilon": ("adamw-firstTrue-decay0.0-constant", {"eps": 1.01e-8}, {}),
    "decay": ("adamw-firstTrue-decay0.1-trapezoid", {"weight_decay": 0.099}, {}),
    "schedule late": ("adamw-firstTrue-decay0.1-trapezoid", {"rates": np.append(0.0, RATES[False][:-1])}, {}),
    "LionA's gamma": ("lion_a-nesterovTrue-inverseFalse-decay0.0-constant", {}, {"gamma": other_variant}),
    "LionA's gamma late": ("lion_a-nesterovFalse-inverseTrue-decay0.1-trapezoid", {}, {"gamma": one_step_later}),
    "LionAR's gamma": ("lion_ar-nesterovFalse-inverseFalse-constant", {}, {"gamma": other_variant}),
    "LionAR's gamma late": ("lion_ar-nesterovTrue-inverseTrue-trapezoid", {}, {"gamma": one_step_later}),
    "LionAR's peak": ("lion_ar-nesterovTrue-inverseTrue-trapezoid", {"peak": 1.001 * RATE}, {}),
    "LionAR's fan-in": ("lion_ar-nesterovFalse-inverseFalse-constant", {"fan_in": OUT_BY_HEAD}, {}),
    "LionAR unprojected": ("lion_ar-nesterovFalse-inverseFalse-constant", {}, {"project": lambda x, norms, axes: x}),
    "average of norms": ("rotational_adamw-constant", {"norm_decay": 0.89}, {}),
    "rotational fan-in": ("rotational_adamw-trapezoid", {"fan_in": OUT_BY_HEAD}, {}),
    "rotational unprojected": ("rotational_adamw-constant", {}, {"project": lambda x, norms, axes: x}),
    "uncoupled embedding": ("coupled_adam-output+embedding-decay0.1-trapezoid", {"vocab_axis": OUTPUT}, {}),
    "wrong axis": ("coupled_adam-output-decay0.0-constant", {"vocab_axis": {**OUTPUT, "head/kernel": 0}}, {}),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_one_altered_term_fails_the_comparison(control, monkeypatch):
    name, arguments, functions = CONTROLS[control]
    for function, altered in functions.items():
        monkeypatch.setattr(oracle, function, altered)
    assert worst(errors(name, ours(name, "float32"), reference(name, **arguments))) > 2 * TOLERANCE["float32"]
