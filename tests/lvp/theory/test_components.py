"""The closed forms against hand-written values, identities between them, limits, and each other."""

import math
import subprocess
import sys

import numpy as np
import pytest

from lvp import theory
from lvp.errors import InputError
from lvp.parametrization import attenuation, embedding_ratio, table


def zipf(m: int, exponent: float = 1.0) -> np.ndarray:
    weights = np.arange(1.0, m + 1) ** -exponent
    return weights / weights.sum()


ALPHAS = [zipf(64), zipf(300, 0.6), zipf(50, 2.0), np.array([0.7, 0.2, 0.1]), np.array([0.5, 0.5, 0.0])]
SHAPES = [(1, 1), (1, 5), (64, 256), (256, 8), (4096, 32768)]


@pytest.mark.parametrize(("d", "m"), SHAPES)
def test_theorems_1_and_3_as_printed(d, m):
    variance = d + 2 * d * (d - 1) / (math.pi * m)
    assert theory.sign_projection_variance(d, m) == pytest.approx(variance, rel=1e-15)
    assert theory.embedding_component(d, m, 0.3, 0.02) == pytest.approx(0.3 * 0.02 * math.sqrt(variance), rel=1e-15)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_theorems_1_and_4_as_printed_and_exact(alpha):
    d, m = 48, len(alpha)
    mean_square = sum(a * a for a in alpha) / m
    assert theory.mean_square_frequency(alpha) == pytest.approx(mean_square, rel=1e-14)
    printed = [d + a * a / mean_square * 2 * d * (d - 1) / (math.pi * m) for a in alpha]
    exact = [d + 2 / math.pi * d * (d - 1) * i for i in attenuation(alpha)]
    np.testing.assert_allclose(theory.sign_gaussian_variance(d, alpha, exact=False), printed, rtol=1e-14)
    np.testing.assert_allclose(theory.sign_gaussian_variance(d, alpha), exact, rtol=1e-14)
    for form, values in ((False, printed), (True, exact)):
        got = theory.projection_component(d, 0.3, 0.02, alpha, exact=form)
        np.testing.assert_allclose(got, 0.3 * 0.02 * np.sqrt(values), rtol=1e-14)
    np.testing.assert_array_equal(
        theory.projection_component(d, 0.3, 0.02, alpha),
        theory.projection_component(d, 0.3, 0.02, alpha, exact=False),
    )


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("exact", [True, False])
def test_projection_and_embedding_change_alike(alpha, exact):
    """Σ κ_i = 1, so the mean of δ̄_W² over tokens is Theorem 3's variance for any frequencies."""
    d, m = 96, len(alpha)
    overall = np.mean(theory.projection_component(d, 0.1, 0.5, alpha, exact=exact) ** 2)
    assert overall == pytest.approx(float(theory.embedding_component(d, m, 0.1, 0.5)) ** 2, rel=1e-11)


@pytest.mark.parametrize("alpha", ALPHAS[:4])
def test_the_components_are_equal_at_the_parametrizations_ratio(alpha):
    d, m = 128, len(alpha)
    projection = theory.projection_component(d, 1.0, 0.1, alpha, exact=True)
    for token in (0, 1, m - 1):
        ratio = embedding_ratio(d, m, attenuation(alpha)[token])
        assert theory.embedding_component(d, m, ratio, 0.1) == pytest.approx(projection[token], rel=1e-13)


def test_equal_frequencies_reduce_both_forms_to_theorem_3():
    for d, m in ((64, 256), (300, 7)):
        alpha = np.full(m, 1 / m)
        for exact in (True, False):
            np.testing.assert_allclose(
                theory.sign_gaussian_variance(d, alpha, exact=exact), theory.sign_projection_variance(d, m), rtol=1e-11
            )


def test_limits():
    # For m ≫ d, signs are independent: √d. For fixed m: d.
    assert theory.embedding_component(256, 1e12, 2.0, 3.0) == pytest.approx(6 * math.sqrt(256), rel=1e-9)
    assert theory.embedding_component(1e12, 4, 1.0, 1.0) == pytest.approx(1e12 * math.sqrt(2 / (math.pi * 4)), rel=1e-9)
    # One dominant token: κ = 1, the constant of Theorem 2. All others: √d.
    top, rest = theory.projection_component(512, 1.0, 1.0, [1 - 1e-12, 1e-12], exact=True)
    assert top == pytest.approx(math.sqrt(512 + 2 / math.pi * 512 * 511), rel=1e-9)
    assert rest == pytest.approx(math.sqrt(512), rel=1e-9)
    # A sum over one neuron.
    assert theory.embedding_component(1, 2, 1.0, 1.0) == 1
    np.testing.assert_array_equal(theory.sign_gaussian_variance(1, zipf(16)), np.ones(16))


def test_the_example_of_the_notes():
    """m 256, d 64, rank 1 of Zipf's law: the simulation (test_simulation.py) supports 1195."""
    assert round(float(theory.sign_gaussian_variance(64, zipf(256))[0])) == 1195
    assert round(float(theory.sign_gaussian_variance(64, zipf(256), exact=False)[0])) == 1628


@pytest.mark.parametrize("m", [64, 512, 4096, 32768])
def test_the_papers_form_has_the_right_order(m):
    alpha = zipf(m)
    exact, printed = (theory.sign_gaussian_variance(4096, alpha, exact=e) for e in (True, False))
    assert 0.70 < exact[0] / printed[0] < 0.73
    assert np.all((exact / printed > 0.7) & (exact / printed < 1.82))


def test_product_and_initial_output():
    assert theory.product_component(49, 0.2, 0.5) == pytest.approx(0.7, rel=1e-15)
    assert theory.initial_output(49, 0.2, 0.5) == pytest.approx(0.7, rel=1e-15)


def test_broadcasting_equals_a_loop_in_float64():
    widths, vocabs, rates = np.array([16, 64, 256]), np.array([[8], [512]]), np.float32(0.5)
    together = theory.embedding_component(widths, vocabs, rates, 0.1)
    assert together.shape == (2, 3) and together.dtype == np.float64
    for i, m in enumerate((8, 512)):
        for j, d in enumerate((16, 64, 256)):
            assert together[i, j] == theory.embedding_component(d, m, 0.5, 0.1)
    alpha = zipf(32)
    for exact in (True, False):
        together = theory.projection_component(widths, [[0.1], [0.2]], 1.0, alpha, exact=exact)
        assert together.shape == (2, 3, 32) and together.dtype == np.float64
        single = theory.projection_component(64, 0.2, 1.0, alpha, exact=exact)
        assert single.shape == (32,)
        np.testing.assert_array_equal(together[1, 1], single)
    # The squares of these integers would overflow.
    big = theory.sign_projection_variance(np.int32(2**20), 1)
    assert big == pytest.approx(2**20 + 2 / math.pi * 2**20 * (2**20 - 1), rel=1e-15)


def test_a_permutation_of_tokens_permutes_their_components():
    alpha = zipf(40)
    order = np.random.default_rng(0).permutation(40)
    for exact in (True, False):
        shuffled = theory.projection_component(64, 1.0, 1.0, alpha[order], exact=exact)
        ordered = theory.projection_component(64, 1.0, 1.0, alpha, exact=exact)
        np.testing.assert_allclose(shuffled, ordered[order], rtol=1e-13)


@pytest.mark.parametrize("rho", [-1.0, -0.4, 0.0, 0.3, 0.9, 1.0])
def test_steins_lemma_by_simulation(rho):
    rng = np.random.default_rng(1)
    z, other = rng.standard_normal((2, 400_000))
    products = np.sign(z) * (rho * z + math.sqrt(1 - rho**2) * other)
    error = products.std() / math.sqrt(len(z))
    assert error < 0.002 and abs(products.mean() - theory.sign_gaussian_mean(rho)) < 3 * error


@pytest.mark.parametrize("a", [0.51, 0.75, 1.0, 1.3, 2.5])
@pytest.mark.parametrize("m", [1, 2, 1000, 32768])
def test_lemma_1_equals_its_sum(m, a):
    direct = math.fsum(i ** (-2 * a) for i in range(1, m + 1)) / m
    assert theory.power_law_mean_square(m, a) == pytest.approx(direct, rel=1e-13)
    if m > 1:
        alpha = zipf(m, a)
        scaled = theory.mean_square_frequency(alpha) / alpha[0] ** 2
        assert theory.power_law_mean_square(m, a) == pytest.approx(scaled, rel=1e-12)


def test_lemma_1_is_of_order_one_over_m():
    for m in (10, 1000, 10**6):  # the remainder of ζ(2) lies between 1/(m+1) and 1/m
        missing = math.pi**2 / 6 - m * theory.power_law_mean_square(m, 1.0)
        assert 1 / (m + 1) < missing < 1 / m
    # The refused case does not converge: at a = 0.4, m times the sum keeps growing.
    tails = [math.fsum(i**-0.8 for i in range(1, n + 1)) for n in (1000, 100_000)]
    assert tails[1] / tails[0] > 2
    with pytest.raises(InputError, match="exponent"):
        theory.power_law_mean_square(1000, 0.4)


# By hand from Tables 1 and 2 and Theorems 1 and 2: √d σ_E σ_W; η_E σ_W √(d or d²); η_W σ_E √(d or d²) for a frequent
# token; η_E η_W √d.
EXPONENTS = {
    ("sp", 0): (0, 0.5, 1, 0.5),
    ("sp", 1): (0, 0, 1, 0.5),
    ("sp", 2): (0, 0, 1, 0.5),
    ("mup", 0): (-0.5, 0, 0, -0.5),
    ("mup", 1): (-0.5, -0.5, 0, -0.5),
    ("mup", 2): (-0.5, -0.5, 0, -0.5),
    ("lvp", 0): (-0.5, 0, -0.5, -1),
    ("lvp", 1): (-0.5, -0.5, -0.5, -1),
    ("lvp", 2): (-0.5, -0.5, -0.5, -1),
    ("interpolated", 0): (-0.5, -0.5, -0.5, -1.5),
    ("interpolated", 1): (-0.5, -0.5, -0.5, -1),
    ("interpolated", 2): (-0.5, -0.5, -0.5, -1),
}


@pytest.mark.parametrize(("rule", "growth"), EXPONENTS)
def test_predicted_exponents(rule, growth):
    assert theory.predicted_exponents(rule, vocab_growth=growth) == EXPONENTS[rule, growth]


def test_a_forward_multiplier_counts_in_init_and_rate():
    """CompleteP's head is muP's with a forward multiplier of 1/d. They train the same network."""
    assert table("completep", width=64, vocab=512)["output"].forward_multiplier == 1 / 64
    for growth in (0, 1, 2):
        completep, mup = (theory.predicted_exponents(rule, vocab_growth=growth) for rule in ("completep", "mup"))
        assert completep == mup


def test_exponents_of_rare_tokens_and_between_the_regimes():
    for rule in ("sp", "mup", "lvp"):
        frequent, rare = (theory.predicted_exponents(rule, rarity=beta) for beta in (0, 2))
        assert rare.projection == frequent.projection - 0.5 and rare[:2] == frequent[:2]
    # With fixed m no token is rare. Halfway, m = d^(1/2), the root of δ̄_E grows as d^(3/4).
    assert theory.predicted_exponents("mup", vocab_growth=0, rarity=2) == theory.predicted_exponents(
        "mup", vocab_growth=0
    )
    assert theory.predicted_exponents("mup", vocab_growth=0.5).embedding == -0.25


@pytest.mark.parametrize("rule", ["sp", "mup", "lvp"])
def test_exponents_equal_the_slopes_of_the_forms(rule):
    widths = np.array([256, 512, 1024, 2048, 4096])
    measured = {"embedding": [], "projection": []}
    for d in widths.tolist():
        rows, alpha = table(rule, width=d, vocab=8 * d, base_width=1), zipf(8 * d)
        embedding, output = rows["embedding"], rows["output"]
        measured["embedding"].append(theory.embedding_component(d, 8 * d, embedding.lr_multiplier, output.init_std))
        projection = theory.projection_component(d, output.lr_multiplier, embedding.init_std, alpha, exact=True)
        measured["projection"].append(projection[0])
    predicted = theory.predicted_exponents(rule)
    for name, values in measured.items():
        slope = np.polyfit(np.log(widths), np.log(values), 1)[0]
        assert slope == pytest.approx(getattr(predicted, name), abs=0.003)


BAD_FREQUENCIES = [[0.5, 0.6], [1.5, -0.5], [math.nan, 1.0], [1.0], [0.0, 0.0], [[0.5, 0.5]], "ab", None]


@pytest.mark.parametrize("frequencies", BAD_FREQUENCIES)
def test_bad_frequencies(frequencies):
    for call in (
        lambda: theory.sign_gaussian_variance(8, frequencies),
        lambda: theory.projection_component(8, 1.0, 1.0, frequencies),
        lambda: theory.mean_square_frequency(frequencies),
    ):
        with pytest.raises(InputError, match="frequencies"):
            call()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: theory.sign_projection_variance(0, 8), "width"),
        (lambda: theory.sign_projection_variance(8, 0.5), "vocab"),
        (lambda: theory.sign_projection_variance([8, math.inf], 8), "width"),
        (lambda: theory.embedding_component("a", 8, 1, 1), "width"),
        (lambda: theory.embedding_component(8, 8, -1, 1), "learning_rate"),
        (lambda: theory.embedding_component(8, 8, 1, math.nan), "sigma_output"),
        (lambda: theory.projection_component(0, 1, 1, [0.5, 0.5]), "width"),
        (lambda: theory.projection_component(8, -1, 1, [0.5, 0.5]), "learning_rate"),
        (lambda: theory.projection_component(8, 1, -1, [0.5, 0.5]), "sigma_embedding"),
        (lambda: theory.product_component(8, -1, 1), "learning_rate_embedding"),
        (lambda: theory.initial_output(8, 1, -1), "sigma_output"),
        (lambda: theory.sign_gaussian_mean(1.1), "correlation"),
        (lambda: theory.power_law_mean_square(0, 1), "vocab"),
        (lambda: theory.power_law_mean_square(1.5, 1), "vocab"),
        (lambda: theory.power_law_mean_square(8, 0.5), "exponent"),
        (lambda: theory.predicted_exponents("muP"), "rule"),
        (lambda: theory.predicted_exponents("mup", vocab_growth=5), "vocab_growth"),
        (lambda: theory.predicted_exponents("mup", rarity=-1), "rarity"),
    ],
)
def test_bad_arguments_are_named(call, name):
    with pytest.raises(InputError, match=name):
        call()


@pytest.mark.slow
def test_the_closed_forms_import_no_jax_and_the_package_no_flax():
    code = (
        "import sys, lvp.theory; print('jax' in sys.modules); import lvp.theory.simulation; print(sorted(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = run.stdout.splitlines()
    assert before == "False" and "'optax'" in after and "'flax'" not in after and "'ray'" not in after
