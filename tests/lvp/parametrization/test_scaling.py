"""Axes of transfer: the sources' tables as closed forms, identities, abc-equivalence, and refusals."""

import math
import re

import pytest

from lvp.errors import InputError
from lvp.parametrization import AXES, RULES, Shape
from lvp.parametrization.scaling import scale

BASE = Shape(width=64, vocab=1024, depth=3, batch=4096, tokens=10**7)
TARGET = Shape(width=512, vocab=4096, depth=12, batch=2048, tokens=4 * 10**7)
M_N, M_L, M_B, M_D = 8.0, 4.0, 0.5, 4.0
BLOCKS = ("hidden", "vector")
NONE = {"depth": "none", "batch": "none"}
HEADS_OF_MUP = ("mup", "completep", "umup")


def numbers(scaling, name):
    return {role.role: getattr(role, name) for role in scaling.roles}


# Table 1 of Dey et al. 2025, by hand at m_N 8 and m_L 4. Branches are multiplied by m_L^−α.
@pytest.mark.parametrize(("name", "alpha"), [("completep", 1.0), ("depth_mup", 0.5)])
def test_completep_by_hand(name, alpha):
    axes = {"depth": name, "batch": "none", "epsilon": "completep"}
    made = scale(BASE, TARGET, "completep", axes=axes)
    correction = {1.0: 1.0, 0.5: 0.5}[alpha]
    assert made.branch_multiplier == {1.0: 0.25, 0.5: 0.5}[alpha] == made.table.branch_multiplier
    rates = {"embedding": 1, "position": 1, "hidden": correction / 8, "output": 1, "vector": correction}
    assert numbers(made, "rate") == pytest.approx(rates)
    epsilons = dict.fromkeys(BLOCKS, 4**-alpha / 8)
    assert numbers(made, "epsilon") == pytest.approx(dict.fromkeys(("embedding", "position", "output"), 1) | epsilons)
    # The head's forward multiplier falls as 1/m_N, and the init variance of hidden matrices too.
    start = scale(BASE, BASE, "completep", axes=axes)
    assert made["output"].forward_multiplier / start["output"].forward_multiplier == pytest.approx(1 / 8)
    assert (made["hidden"].init_std / start["hidden"].init_std) ** 2 == pytest.approx(1 / 8)
    # λ of hidden matrices is m_N λ_base at α = 1: the same timescale.
    kept = scale(BASE, Shape(512, 4096, 12), "completep", axes=axes | {"decay": "constant_timescale"})
    if alpha == 1.0:
        assert numbers(kept, "decay") == pytest.approx(dict.fromkeys(kept.table, 1) | {"hidden": 8})


def test_completed_p_by_hand():
    """Table 1 of Mlodozeniec et al. 2025 at α = 1, with its head's multiplier in init and rate."""
    axes = {"depth": "completep", "batch": "sqrt", "horizon": "completed"}
    axes |= {"decay": "constant_timescale", "epsilon": "completed"}
    made = scale(BASE, TARGET, "mup", axes=axes)
    noise = math.sqrt(M_B / M_D)
    rates = dict.fromkeys(("embedding", "position", "vector"), noise) | dict.fromkeys(("hidden", "output"), noise / M_N)
    assert numbers(made, "rate") == pytest.approx(rates)
    epsilons = dict.fromkeys(("embedding", "position"), 1 / M_N) | dict.fromkeys(BLOCKS, 1 / (M_N * M_L))
    assert numbers(made, "epsilon") == pytest.approx({r: e / noise for r, e in (epsilons | {"output": 1.0}).items()})
    decays = dict.fromkeys(("embedding", "position", "vector"), noise)
    decays |= dict.fromkeys(("hidden", "output"), noise * M_N)
    assert numbers(made, "decay") == pytest.approx(decays)
    assert made.beta == pytest.approx(M_B / M_D) and made.branch_multiplier == 1 / M_L
    assert made.betas(0.9, 0.95) == pytest.approx((1 - 0.1 / 8, 1 - 0.05 / 8))
    start = scale(BASE, BASE, "mup")
    assert (made["output"].init_std / start["output"].init_std) ** 2 == pytest.approx(M_N**-2)


def test_batch_and_horizon_by_hand():
    one = {"width": 64, "vocab": 1024}
    grown = Shape(**one, batch=4 * 4096, tokens=4 * 10**7)
    small = Shape(**one, batch=4096, tokens=10**7)
    adam = scale(small, grown, "lvp", axes={"batch": "sqrt"})  # Malladi et al. 2022 with κ = 4
    assert set(numbers(adam, "rate").values()) == {2.0} and set(numbers(adam, "epsilon").values()) == {0.5}
    assert adam.betas(0.9, 0.999) == pytest.approx((0.6, 0.996))
    alone = scale(small, grown, "lvp", axes={"batch": "sqrt_rate"})
    assert set(numbers(alone, "rate").values()) == {2.0} and alone.beta == 1.0
    # nanochat, base_train.py: λ √(B/B₀) D₀/D with rates ∝ √B.
    kept = scale(small, grown, "lvp", axes={"batch": "sqrt_rate", "decay": "constant_timescale"})
    assert numbers(kept, "decay") == pytest.approx(dict.fromkeys(kept.table, math.sqrt(4) / 4))
    for name, exponent in {"marin": -0.2813, "marin_2": -0.395, "completed": -0.5, "none": 0.0}.items():
        longer = scale(small, grown, "lvp", axes={"batch": "none", "horizon": name})
        assert numbers(longer, "rate") == pytest.approx(dict.fromkeys(longer.table, 4**exponent))


def test_decay_by_hand():
    wide = scale(BASE, TARGET, "lvp", axes=NONE | {"decay": "sqrt_width"})  # Fan et al. 2025
    assert numbers(wide, "decay") == {r: math.sqrt(8) if r == "hidden" else 0.0 for r in wide.table}
    assert not wide.independent
    apart = scale(BASE, TARGET, "lvp", axes=NONE | {"decay": "independent_inverse_width"})  # Qiu et al. 2025
    assert set(numbers(apart, "decay").values()) == {1 / 8} and apart.independent


def compatible(rule, axes):
    head = axes.get("epsilon", "none") == "none" or rule in HEADS_OF_MUP
    return head and (axes.get("decay") != "sqrt_width" or not rule.startswith("sp"))


# Every rule of every axis alone, and two combinations of all axes.
COMBINATIONS = [{axis: name} for axis, rules in AXES.items() for name in rules]
COMBINATIONS += [dict(zip(AXES, (list(rules)[i] for rules in AXES.values()), strict=True)) for i in (0, 1)]


@pytest.mark.parametrize("rule", RULES)
def test_every_combination_is_a_group(rule):
    middle = Shape(width=128, vocab=2048, depth=6, batch=8192, tokens=3 * 10**7)
    factors = ("rate", "decay", "epsilon")
    for axes in COMBINATIONS:
        if not compatible(rule, axes):
            with pytest.raises(InputError, match="1/width"):
                scale(BASE, TARGET, rule, axes=axes)
            continue
        direct = scale(BASE, TARGET, rule, axes=axes)
        there, onward = scale(BASE, middle, rule, axes=axes), scale(middle, TARGET, rule, axes=axes)
        same, back = scale(BASE, BASE, rule, axes=axes), scale(TARGET, BASE, rule, axes=axes)
        for role in direct.table:
            for name in factors:
                of = lambda scaling: getattr(scaling[role], name)  # noqa: B023, E731
                assert of(there) * of(onward) == pytest.approx(of(direct))
                if of(direct):  # sqrt_width switches decay off
                    assert of(same) == pytest.approx(1) and of(direct) * of(back) == pytest.approx(1)
        for name in ("beta", "branch_multiplier"):
            assert getattr(there, name) * getattr(onward, name) == pytest.approx(getattr(direct, name))
            assert getattr(same, name) == 1
    # Control: the axes move something.
    moved = scale(BASE, TARGET, rule, axes={"batch": "sqrt_rate"})
    assert numbers(moved, "rate") != numbers(scale(BASE, BASE, rule), "rate")


@pytest.mark.parametrize("decay", ["constant_timescale", "sqrt_width"])
def test_a_forward_multiplier_shifts_every_setting(decay):
    """(A · forward, init/A, rate/A, ε · A, λ · A) trains the same network, with A a power of the width."""

    def shifted(width, vocab):
        a = width**0.3
        roles = ("embedding", "position", "hidden", "vector")
        rows = {"embedding": (1.0, 1.0), "position": (1.0, 1.0), "hidden": (width**-0.5, 1 / width), "vector": (0, 1.0)}
        rows = {role: (rows[role][0] / a, rows[role][1] / a, a) for role in roles}
        return rows | {"output": (1 / width / a, 1 / width / a, a)}

    axes = {"epsilon": "completed", "decay": decay, "batch": "sqrt", "horizon": "completed"}
    plain, moved = scale(BASE, TARGET, "mup", axes=axes), scale(BASE, TARGET, shifted, axes=axes)
    for role in plain.table:
        a = M_N**0.3
        assert moved[role].rate * a == pytest.approx(plain[role].rate)
        assert moved[role].epsilon / a == pytest.approx(plain[role].epsilon)
        assert moved[role].decay / a == pytest.approx(plain[role].decay)


def test_a_role_of_its_own_moves_with_the_batch():
    def with_router(width, vocab):
        rows = dict.fromkeys(("embedding", "position", "hidden", "output", "vector"), (1.0, 1 / width))
        return rows | {"router": (1.0, 1.0)}

    axes = {"depth": "completep", "batch": "sqrt", "horizon": "completed", "decay": "constant_timescale"}
    made = scale(BASE, TARGET, with_router, axes=axes)
    noise = math.sqrt(M_B / M_D)
    assert list(made.table)[-1] == "router" and made["router"].rate == pytest.approx(noise)
    assert made["router"].epsilon == pytest.approx(1 / noise)
    assert made["router"].decay == pytest.approx(noise)  # 1 / (rate · steps), steps m_D / m_B


def test_tuned_settings_are_taken_along():
    made = scale(BASE, TARGET, "lvp", ratios={"embedding": 3.0}, init_std={"embedding": 0.02}, axes=NONE)
    assert made["embedding"].lr_multiplier == pytest.approx(3.0 / math.sqrt(8))
    assert made["position"].lr_multiplier == scale(BASE, TARGET, "lvp", axes=NONE)["position"].lr_multiplier
    assert made["embedding"].init_std == pytest.approx(0.02 / math.sqrt(8))
    assert made["hidden"].init_std == 512**-0.5 and made.table["hidden"].lr_multiplier == pytest.approx(1 / 8)
    assert made.table["embedding"].init_std == made["embedding"].init_std
    text = str(made)
    assert "width 64, vocab 1024, depth 3, batch 4096, tokens 10000000" in text and "residual branches × 1" in text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"axes": {"colour": "red"}}, "unknown axis 'colour'"),
        ({"axes": {"depth": "completeP"}}, "did you mean completep?"),
        ({"axes": ["depth"]}, "axes must map"),
        ({"target": Shape(512, 4096, 12), "axes": {"batch": "sqrt"}}, "batch rule 'sqrt' needs target.batch"),
        ({"base": Shape(64, 1024, batch=1, tokens=1)}, "depth rule 'completep' needs base.depth"),
        (
            {"base": Shape(64, 1024), "target": Shape(512, 4096), "axes": {"horizon": "marin"}},
            "horizon rule 'marin' needs base.tokens",
        ),
        ({"rule": "lpv"}, "did you mean lvp?"),
        ({"ratios": {"embedding": 0.0}}, "ratio of embedding must be a finite number above zero, got 0.0"),
        ({"init_std": {"vector": 1.0}}, "role of init_std 'vector'"),
        ({"init_std": {"hidden": -1}}, "init_std of hidden"),
        ({"axes": {"epsilon": "completed"}}, "epsilon rule 'completed' assumes a head"),
        ({"rule": "sp", "axes": {"decay": "sqrt_width"}}, "decay rule 'sqrt_width' assumes a hidden rate"),
    ],
)
def test_bad_input_is_refused(settings, message):
    given = {"base": BASE, "target": TARGET, "rule": "lvp"} | settings
    with pytest.raises(InputError, match=re.escape(message)) as error:
        scale(given.pop("base"), given.pop("target"), given.pop("rule"), **given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["width", "vocab", "depth", "batch", "tokens"])
@pytest.mark.parametrize("size", [0, -1, 1.5, True])
def test_sizes_are_whole_numbers(name, size):
    with pytest.raises(InputError, match=f"{name} must be a whole number"):
        Shape(**({"width": 64, "vocab": 100} | {name: size}))


def test_a_batch_that_outgrows_beta_is_refused():
    made = scale(Shape(64, 100, batch=1024), Shape(64, 100, batch=16 * 1024), "lvp", axes={"batch": "sqrt"})
    with pytest.raises(InputError, match=r"b1 0.9 becomes -0.6.*'sqrt_rate'"):
        made.betas(0.9, 0.999)
    assert made.betas(0.95, 0.999) == pytest.approx((0.2, 0.984))
    with pytest.raises(InputError, match="b2 must lie"):
        made.betas(0.95, 1.0)
