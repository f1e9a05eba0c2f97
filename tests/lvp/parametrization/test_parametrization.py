"""Every number of every table in closed form; the attenuation against its definition and independent quadratures."""

import functools
import math
import tracemalloc

import numpy as np
import pytest
from scipy import integrate

from lvp.errors import InputError
from lvp.parametrization import Row, Table, attenuation, embedding_ratio, table
from lvp.parametrization.rules import PAPER_RULES

SHAPES = [(1, 2), (32, 256), (100, 800), (256, 32768), (2048, 32064), (4096, 64)]
RULES = ("sp", "mup", "lvp", "interpolated")


def expected(rule: str, d: int, m: int) -> dict[str, tuple[float, float]]:
    """Returns (init variance, learning rate in units of η): Tables 1 and 2 of Hayou & Liu 2025 as printed."""
    ratio = math.sqrt((1 + (2 / math.pi) * (d - 1)) / (1 + 2 * (d - 1) / (math.pi * m)))
    rows = {
        "sp": {"embedding": (1, 1), "output": (1 / d, 1), "hidden": (1 / d, 1), "vector": (0, 1)},
        "mup": {"embedding": (1, 1), "output": (d**-2, 1 / d), "hidden": (1 / d, 1 / d), "vector": (0, 1)},
        "lvp": {"embedding": (1 / d, d**-0.5), "output": (1 / d, 1 / d), "hidden": (1 / d, 1 / d)},
        "interpolated": {"embedding": (1 / d, ratio / d), "output": (1 / d, 1 / d), "hidden": (1 / d, 1 / d)},
    }[rule]
    rows.setdefault("vector", (0, 1 / d))
    return {**rows, "position": rows["embedding"]}


def zipf(m: int, exponent: float = 1.0) -> np.ndarray:
    weights = np.arange(1, m + 1) ** -float(exponent)
    return weights / weights.sum()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("d", "m"), SHAPES)
def test_every_number_in_closed_form(rule, d, m):
    t = table(rule, width=d, vocab=m)
    rows = expected(rule, d, m)
    assert set(t) == set(rows) and len(t) == 5
    for role, (variance, rate) in rows.items():
        assert t[role].init_std ** 2 == pytest.approx(variance, rel=1e-14)
        assert t[role].lr_multiplier == pytest.approx(rate / rows["hidden"][1], rel=1e-14)
        assert t[role].decay == (role != "vector")
        assert PAPER_RULES[rule].rows(d, m, 1.0)[role][1] == pytest.approx(rate, rel=1e-14)


@pytest.mark.parametrize(("d", "m"), SHAPES)
def test_the_root_d_rule(d, m):
    t = table("lvp", width=d, vocab=m)
    assert t["embedding"].lr_multiplier == pytest.approx(math.sqrt(d), rel=1e-14)
    t = table("mup", width=d, vocab=m)
    assert t["embedding"].lr_multiplier == pytest.approx(d, rel=1e-14)


@pytest.mark.parametrize("rule", RULES)
def test_the_learning_rate_is_the_hidden_rate_at_the_base_width(rule):
    """Every role moves from the base as the rule's absolute rates do."""
    at_base = table(rule, width=128, vocab=1024, base_width=128)
    assert at_base.rows == table(rule, width=128, vocab=1024).rows
    away = table(rule, width=512, vocab=1024, base_width=128)
    here, there = (expected(rule, d, 1024) for d in (128, 512))
    for role in away:
        assert away[role].lr_multiplier == pytest.approx(there[role][1] / here["hidden"][1], rel=1e-14)
        assert away[role].init_std == table(rule, width=512, vocab=1024)[role].init_std


@pytest.mark.parametrize("rule", RULES)
def test_equal_rates_at_the_base_leave_the_moves_alone(rule):
    assert {row.lr_multiplier for row in table(rule, width=128, vocab=1024, ratios=1).rows} == {1.0}
    away = table(rule, width=512, vocab=1024, base_width=128, ratios=1)
    here, there = (expected(rule, d, 1024) for d in (128, 512))
    for role in away:
        assert away[role].lr_multiplier == pytest.approx(there[role][1] / here[role][1], rel=1e-14)


def test_the_base_vocabulary_moves_only_interpolated():
    for rule in RULES:
        same, other = (
            table(rule, width=512, vocab=4096, base_width=128, base_vocab=v, ratios=1)["embedding"].lr_multiplier
            for v in (None, 1024)
        )
        assert (same != other) == (rule == "interpolated")


def test_limits_of_interpolated():
    big = 10**9
    assert embedding_ratio(4096, big) == pytest.approx(math.sqrt(2 / math.pi * 4096), rel=1e-3)
    assert embedding_ratio(4096, big, 0.44) == pytest.approx(math.sqrt(0.88 / math.pi * 4096), rel=1e-3)
    assert embedding_ratio(big, 64, 0.5) == pytest.approx(math.sqrt(0.5 * 64), rel=1e-6)
    assert embedding_ratio(4096, big, 0.0) == pytest.approx(1.0, rel=1e-5)
    assert embedding_ratio(1, 2) == 1.0


def test_interpolated_takes_the_frequency_weighted_attenuation():
    alpha = zipf(512)
    t = table("interpolated", width=64, vocab=512, frequencies=alpha)
    kappa = float(alpha @ attenuation(alpha))
    assert t.kappa == pytest.approx(kappa, rel=1e-14) and 0 < kappa < 0.44
    ratio = t["embedding"].lr_multiplier / t["output"].lr_multiplier
    assert ratio == pytest.approx(embedding_ratio(64, 512, kappa), rel=1e-14)
    # For equal frequencies every κ_i and their mean are 1/m.
    uniform = table("interpolated", width=64, vocab=512, frequencies=np.full(512, 1 / 512))
    assert uniform.kappa == pytest.approx(1 / 512, rel=1e-11)
    for rule in ("sp", "mup", "lvp"):
        assert table(rule, width=64, vocab=512, frequencies=alpha) == table(rule, width=64, vocab=512)
    one_token = table("interpolated", width=64, vocab=2, frequencies=[1 + 5e-7, 0.0])
    assert one_token.kappa == pytest.approx(1.0) and one_token.kappa <= 1


def test_kappa_may_be_given_directly():
    alpha = zipf(512)
    of_frequencies = table("interpolated", width=64, vocab=512, frequencies=alpha)
    assert table("interpolated", width=64, vocab=512, kappa=of_frequencies.kappa) == of_frequencies
    assert table("lvp", width=64, vocab=512, kappa=0.3) == table("lvp", width=64, vocab=512)


def test_a_tuned_ratio_takes_the_place_of_the_rules():
    t = table("lvp", width=64, vocab=512)
    own = table("lvp", width=64, vocab=512, ratios={"embedding": 3.0})
    assert own["embedding"].lr_multiplier == 3.0 and own["embedding"].init_std == t["embedding"].init_std
    assert [own[role] for role in own if role != "embedding"] == [t[role] for role in t if role != "embedding"]
    wider = table("lvp", width=256, vocab=512, base_width=64, ratios={"embedding": 3.0})
    assert wider["embedding"].lr_multiplier == pytest.approx(3 / 2) and wider["hidden"].lr_multiplier == 1 / 4
    for bad in (
        {"embeding": 1.0},
        {"embedding": 0.0},
        {"embedding": math.inf},
        {"embedding": "1"},
        {"embedding": True},
    ):
        with pytest.raises(InputError, match="embed"):
            table("lvp", width=64, vocab=512, ratios=bad)


def test_further_rows_and_other_rows():
    t = table("lvp", width=64, vocab=512)
    router = Row("router", 0.1, 2.0, True)
    own = t.with_rows(router, Row("output", 0.0, 1.0, True))
    assert own["router"] == router and own["output"].init_std == 0.0
    assert [own[role] for role in t if role != "output"] == [t[role] for role in t if role != "output"]
    for bad in (("router", 1.0), Row("router", 1.0, 0.0, True), Row("router", -1.0, 1.0, True)):
        with pytest.raises(InputError, match="rows"):
            t.with_rows(bad)


def quadrature(alpha: np.ndarray, i: int) -> float:
    """Returns I_i by adaptive quadrature of the printed integral in s = t/(1 + t), with no code shared."""
    a = alpha**2 / np.sum(alpha**2)

    def integrand(s):
        t = s / (1 - s)
        return a[i] / (1 + 2 * t * a[i]) / np.sqrt(np.prod(1 + 2 * t * a)) / (1 - s) ** 2

    return integrate.quad(integrand, 0, 1, epsabs=0, epsrel=1e-11, limit=500)[0]


@pytest.mark.parametrize(
    "alpha", [zipf(64), zipf(40, 0.6), zipf(30, 2.5), np.array([0.7, 0.2, 0.1]), np.full(16, 1 / 16)]
)
def test_attenuation_equals_an_independent_quadrature(alpha):
    exact = attenuation(alpha)
    for i in {0, 1, len(alpha) // 2, len(alpha) - 1}:
        assert exact[i] == pytest.approx(quadrature(alpha, i), rel=1e-9)


@pytest.mark.parametrize(
    "alpha",
    [
        zipf(2),
        zipf(32768),
        np.full(32768, 1 / 32768),
        np.array([1.0, 0.0]),
        np.array([1 - 1e-9, 1e-9]),
        np.array([0.5, 0.5, 0.0]),
    ],
)
def test_attenuations_sum_to_one_and_absent_tokens_have_none(alpha):
    kappa = attenuation(alpha)
    assert kappa.shape == alpha.shape and abs(kappa.sum() - 1) < 1e-11
    assert np.all(kappa[alpha == 0] == 0) and np.all(kappa[alpha > 0] > 0)
    assert np.all(np.diff(kappa) <= 1e-15)  # in order of frequency


def test_attenuation_allocates_no_nodes_by_tokens_array():
    alpha = zipf(32768)
    tracemalloc.start()
    attenuation(alpha)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20  # all nodes at once would take 150 MiB per array


def test_two_tokens_in_closed_form():
    # For α = (α₁, α₂): E[α₁² z₁² / (α₁² z₁² + α₂² z₂²)] = α₁ / (α₁ + α₂).
    for p in (0.5, 0.9, 1 - 1e-6, 1 - 1e-12):
        kappa = attenuation([p, 1 - p])
        np.testing.assert_allclose(kappa, [p, 1 - p], rtol=1e-11)


@pytest.mark.parametrize("m", [64, 128, 256, 512])
def test_the_table_of_the_notes_for_zipf(m):
    alpha = zipf(m)
    ratio = attenuation(alpha) / (alpha**2 / np.sum(alpha**2))
    for rank, value in {1: 0.72, 2: 1.17, 3: 1.41, 4: 1.54, 10: 1.75, m: 1.81}.items():
        assert ratio[rank - 1] == pytest.approx(value, abs=0.02)
    assert attenuation(alpha)[0] == pytest.approx(0.44, abs=0.005)


def test_attenuation_equals_its_expectation():
    rng = np.random.default_rng(0)
    alpha = zipf(32)
    z = (alpha * rng.standard_normal((200_000, 32))) ** 2
    share = z / z.sum(axis=1, keepdims=True)
    error = share.std(axis=0) / math.sqrt(len(z))
    assert np.all(np.abs(share.mean(axis=0) - attenuation(alpha)) < 4.5 * error)


@pytest.mark.parametrize(
    ("frequencies", "message"),
    [
        ([0.5, 0.6], "divide them by their sum"),
        ([1.5, -0.5], "not negative"),
        ([math.nan, 1.0], "finite"),
        ([1.0], "at least 2"),
        ([[0.5, 0.5]], "shape"),
        (["a", "b"], "numbers"),
        (None, "numbers|at least 2"),
    ],
)
def test_bad_frequencies(frequencies, message):
    with pytest.raises(InputError, match=message):
        attenuation(frequencies)
    if frequencies is not None:
        with pytest.raises(InputError):
            table("lvp", width=8, vocab=2, frequencies=frequencies)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rule": "muP"}, "unknown rule 'muP'; did you mean mup?"),
        ({"rule": ["lvp"]}, "unknown rule"),
        ({"kappa": 1.5}, "kappa must be a number from 0 to 1"),
        ({"kappa": 0.5, "vocab": 2, "frequencies": [0.5, 0.5]}, "kappa and frequencies"),
        ({"width": 0}, "width"),
        ({"width": 64.0}, "width"),
        ({"width": True}, "width"),
        ({"vocab": 1}, "vocab"),
        ({"vocab": None}, "vocab"),
        ({"base_width": 0}, "base_width"),
        ({"ratios": 0}, "ratio of embedding must be a finite number above zero, got 0"),
        ({"ratios": {"head": 1.0}}, "unknown role of ratios 'head'"),
        ({"base_vocab": 32}, "base_vocab needs base_width"),
        ({"base_width": 32, "base_vocab": 0}, "base_vocab"),
        ({"frequencies": [0.5, 0.5]}, "frequencies has 2 tokens, vocab is 512"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(InputError, match=message) as error:
        table(**{"rule": "lvp", "width": 64, "vocab": 512, **arguments})
    assert "\n" not in str(error.value)


def test_bad_ratio_and_role():
    for arguments in [(0, 2), (2, 0), (2, 2, -0.1), (2, 2, 1.1), (2, 2, math.nan)]:
        with pytest.raises(InputError):
            embedding_ratio(*arguments)
    with pytest.raises(InputError, match="role must be one of"):
        table("lvp", width=64, vocab=512)["bias"]


def test_the_printed_table():
    text = str(table("mup", width=64, vocab=512))
    assert text.splitlines() == [
        "mup: width 64, vocab 512",
        "learning_rate: the rate of the hidden matrices",
        "role       init std     LR multiplier  decay  forward multiplier",
        "embedding  1            64             yes    1",
        "position   1            64             yes    1",
        "hidden     0.125        1              yes    1",
        "output     0.015625     1              yes    1",
        "vector     0 (gains 1)  64             no     1",
    ]
    assert "tuned at width 32, vocab 512" in str(table("lvp", width=64, vocab=512, base_width=32))
    assert "κ 1" in str(table("interpolated", width=64, vocab=512))


def test_tables_are_immutable_values():
    t = table("lvp", width=64, vocab=512)
    assert t == table("lvp", width=np.int64(64), vocab=512) and hash(t) == hash(table("lvp", width=64, vocab=512))
    assert isinstance(t, Table) and isinstance(t["hidden"], Row)
    with pytest.raises(AttributeError):
        t.width = 3


def flat(width, vocab):
    """A user rule with SP's numbers."""
    return {row.role: (row.init_std, row.lr_multiplier) for row in table("sp", width=width, vocab=vocab).rows}


def of_power(width, vocab, power=-0.5):
    del vocab
    return dict.fromkeys(("vector", "output", "hidden", "position", "embedding"), (0.5, width**power))


def test_a_function_is_accepted_as_a_rule():
    for options in ({}, {"ratios": 1.0}, {"base_width": 16}, {"base_width": 16, "base_vocab": 99}):
        ours, sp = (table(rule, width=64, vocab=256, **options) for rule in (flat, "sp"))
        assert ours.rows == sp.rows and (ours.rule, sp.rule) == ("flat", "sp")
    moved = table(functools.partial(of_power, power=-1.0), width=64, vocab=256, base_width=16)
    assert [row.lr_multiplier for row in moved.rows] == [0.25] * 5 and moved.rule == "of_power"
    assert list(moved) == list(table("lvp", width=64, vocab=256))  # roles in their fixed order


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ({}, "a row for each of embedding"),
        (3, "got 3"),
        ({role: row for role, row in flat(8, 16).items() if role != "hidden"} | {"head": (1, 1)}, "a row for each"),
        (flat(8, 16) | {"head": (1, 0)}, "head needs"),
        (flat(8, 16) | {"hidden": (1.0,)}, "hidden needs"),
        (flat(8, 16) | {"hidden": ("a", 1.0)}, "hidden needs"),
        (flat(8, 16) | {"hidden": (1.0, 0.0)}, "hidden needs"),
        (flat(8, 16) | {"output": (-1.0, 1.0)}, "output needs"),
        (flat(8, 16) | {"output": (1.0, math.nan)}, "output needs"),
    ],
)
def test_a_rule_that_returns_no_table_is_one_line(rows, says):
    def rule(width, vocab):
        return rows

    with pytest.raises(InputError, match=says) as caught:
        table(rule, width=8, vocab=16)
    assert "rule rule" in str(caught.value) and "\n" not in str(caught.value)


def test_a_function_with_the_name_of_a_rule_is_refused():
    def lvp(width, vocab):
        return flat(width, vocab)

    with pytest.raises(InputError, match="lvp has a rule of this name"):
        table(lvp, width=8, vocab=16)
