"""Closed forms for the change of the linear network f(x) = xᵀ E W after one infinite-batch SignSGD step.

Hayou & Liu 2025, section 3 and appendix B. d is the width, m the vocabulary, α the token frequencies, η_E and η_W the
learning rates, σ_E and σ_W the init standard deviations, S the sign with S(0) = +1. For token i,

    E_{i,1} W_1 = E_{i,0} W_0 − δ_W^i − δ_E^i + δ_{W,E}^i,

and δ̄ = (m⁻¹ E‖δ‖²)^½ is a root mean square over the m logits, in logits. The forms hold under the paper's
Assumption 2: E W − Z is replaced by iid N(0, 1), independent of E and W.

All arguments except frequencies broadcast as in NumPy. The computation is in float64. Widths and vocabularies may be
any real numbers of at least 1, so that a form can be drawn as a curve. Only `power_law_mean_square` needs a whole
vocabulary.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import zeta

from lvp.errors import InputError
from lvp.parametrization import attenuation, check_frequencies, table


def sign_projection_variance(width: ArrayLike, vocab: ArrayLike) -> np.ndarray:
    """The variance c of Theorem 3: X = Σ_j S(⟨v, W_j⟩) W_j has Cov X = c I_m, with c = d + 2 d (d−1)/(π m).

    W is [d, m] with iid N(0, 1) entries and rows W_j. v ~ N(0, I_m) is independent of W. X has mean 0. The form is
    exact at every d and m.

    Args:
      width: d ≥ 1.
      vocab: m ≥ 1. It is broadcast with the width.

    Returns:
      float64 in their common shape; dimensionless.

    Raises:
      InputError: a width or vocab is below 1 or not finite.
    """
    d, m = _at_least("width", width, 1), _at_least("vocab", vocab, 1)
    return d + 2 * d * (d - 1) / (np.pi * m)


def sign_gaussian_variance(width: ArrayLike, frequencies: ArrayLike, *, exact: bool = True) -> np.ndarray:
    """The variance of Theorem 4: Var X_k = d + (2/π) d (d−1) κ_i, for token i's row X = E_i S(Eᵀ M).

    E is [m, d] with iid N(0, 1) entries. M is [m, m], independent of E, and centred Gaussian: row i has variance α_i².
    Cov X is diagonal. κ_i = I_i (`lvp.parametrization.attenuation`) is exact. The paper's κ_i = a_i = α_i²/(m ᾱ²)
    replaces the mean of a ratio by the ratio of the means. It is exact for equal frequencies. Under Zipf's law it is
    too large by a factor of 1.4 for the most frequent token.

    Args:
      width: d ≥ 1, any shape.
      frequencies: [m], m ≥ 2, non-negative, sum 1. Only their ratios matter.
      exact: use κ = I (default); False uses the paper's a.

    Returns:
      float64, the shape of width followed by [m]; dimensionless.

    Raises:
      InputError: a width is below 1 or not finite; a frequency is negative or not finite; there are fewer than two
        frequencies, or they do not sum to one.
    """
    d = _at_least("width", width, 1)[..., None]
    alpha = check_frequencies(frequencies)
    kappa = attenuation(alpha) if exact else alpha**2 / np.sum(alpha**2)
    return d + 2 / np.pi * d * (d - 1) * kappa


def sign_gaussian_mean(correlation: ArrayLike) -> np.ndarray:
    """Lemma 2 (Stein): E[sign(Z) G] = √(2/π) ρ for standard normals Z and G with correlation ρ.

    Args:
      correlation: ρ in [−1, 1], any shape.

    Returns:
      float64 in its shape; dimensionless.

    Raises:
      InputError: a correlation is outside [−1, 1] or not finite.
    """
    rho = _number("correlation", correlation)
    if np.any(np.abs(rho) > 1):
        raise InputError(f"correlation must lie in [-1, 1], got {correlation!r}")
    return np.sqrt(2 / np.pi) * rho


def embedding_component(
    width: ArrayLike, vocab: ArrayLike, learning_rate: ArrayLike, sigma_output: ArrayLike
) -> np.ndarray:
    """Theorem 1: δ̄_E = η_E σ_W √(d + 2 d (d−1)/(π m)), the change of the logits by the embedding's step.

    The form is exact under Assumption 2. It is the same for every token that occurs. A token of frequency 0 has
    gradient 0, so its row moves by S(0) = +1 in every entry and its component is η_E σ_W √d.

    Args:
      width: d ≥ 1. All arguments are broadcast together.
      vocab: m ≥ 1.
      learning_rate: η_E ≥ 0.
      sigma_output: σ_W ≥ 0, the standard deviation.

    Returns:
      float64 in their common shape; in logits.

    Raises:
      InputError: an argument is out of range or not finite.
    """
    rate, sigma = _at_least("learning_rate", learning_rate, 0), _at_least("sigma_output", sigma_output, 0)
    return rate * sigma * np.sqrt(sign_projection_variance(width, vocab))


def projection_component(
    width: ArrayLike,
    learning_rate: ArrayLike,
    sigma_embedding: ArrayLike,
    frequencies: ArrayLike,
    *,
    exact: bool = False,
) -> np.ndarray:
    """Theorem 1: δ̄_W^i = η_W σ_E √(d + (2/π) d (d−1) κ_i), the change of token i's logits by the projection's step.

    The default is the paper's κ_i = a_i = α_i²/(m ᾱ²), which has the right order in d and m. With `exact`, κ_i = I_i is
    exact under Assumption 2. `sign_gaussian_variance` explains the difference.

    Args:
      width: d ≥ 1. It is broadcast with the next two.
      learning_rate: η_W ≥ 0.
      sigma_embedding: σ_E ≥ 0, the standard deviation.
      frequencies: [m], m ≥ 2, non-negative, sum 1.
      exact: use κ = I; False (default) uses the paper's a.

    Returns:
      float64, the common shape of the first three followed by [m]; in logits.

    Raises:
      InputError: an argument is out of range or not finite; there are fewer than two frequencies, or they do not sum to
        one.
    """
    rate, sigma = _at_least("learning_rate", learning_rate, 0), _at_least("sigma_embedding", sigma_embedding, 0)
    variance = sign_gaussian_variance(width, frequencies, exact=exact)
    return (rate * sigma)[..., None] * np.sqrt(variance)


def product_component(
    width: ArrayLike, learning_rate_embedding: ArrayLike, learning_rate_output: ArrayLike
) -> np.ndarray:
    """δ̄_{W,E} = η_E η_W √d, the second-order component of the step. It is the same for every token.

    This form is not in the paper. Under Assumption 2 the signs of E's gradient depend on W, those of W's gradient
    depend on E, and both depend on the same Gaussian signal V. Given V, the d products in a logit are independent, with
    mean 0 and square 1. Components δ̄_E and δ̄_W of order one do not imply that δ̄_{W,E} has order one. For example,
    muP with m fixed has δ̄_{W,E} ∝ d^(−1/2).

    Args:
      width: d ≥ 1. All arguments are broadcast together.
      learning_rate_embedding, learning_rate_output: η_E, η_W ≥ 0.

    Returns:
      float64 in their common shape; in logits.

    Raises:
      InputError: an argument is out of range or not finite.
    """
    rates = [_at_least("learning_rate_embedding", learning_rate_embedding, 0)]
    rates.append(_at_least("learning_rate_output", learning_rate_output, 0))
    return rates[0] * rates[1] * np.sqrt(_at_least("width", width, 1))


def initial_output(width: ArrayLike, sigma_embedding: ArrayLike, sigma_output: ArrayLike) -> np.ndarray:
    """(m⁻¹ E‖E_{i,0} W_0‖²)^½ = σ_E σ_W √d: the root mean square of a logit before training.

    Args:
      width: d ≥ 1. All arguments are broadcast together.
      sigma_embedding, sigma_output: standard deviations ≥ 0.

    Returns:
      float64 in their common shape; in logits.

    Raises:
      InputError: an argument is out of range or not finite.
    """
    sigmas = _at_least("sigma_embedding", sigma_embedding, 0), _at_least("sigma_output", sigma_output, 0)
    return sigmas[0] * sigmas[1] * np.sqrt(_at_least("width", width, 1))


def mean_square_frequency(frequencies: ArrayLike) -> float:
    """The mean square frequency ᾱ² = m⁻¹ Σ_i α_i².

    Args:
      frequencies: [m], m ≥ 2, non-negative, sum 1.

    Raises:
      InputError: a frequency is negative or not finite; there are fewer than two, or they do not sum to one.
    """
    return float(np.mean(check_frequencies(frequencies) ** 2))


def power_law_mean_square(vocab: ArrayLike, exponent: ArrayLike) -> np.ndarray:
    """Lemma 1: m⁻¹ Σ_{i ≤ m} i^(−2a), which is Θ(1/m) for a > 1/2; times m it converges to ζ(2a).

    This is ᾱ² of α_i ∝ i^(−a) in units of the top token's α_1². The lemma prints it as ᾱ. With normalised frequencies
    ᾱ² has the additional factor (Σ i^(−a))^−2, which cancels in the components.

    Args:
      vocab: m, whole numbers ≥ 1.
      exponent: a > 1/2. It is broadcast with the vocabulary.

    Returns:
      float64 in their common shape. Relative error about 1e-16/(2a − 1).

    Raises:
      InputError: a vocab is below 1 or not whole; an exponent is 1/2 or less, where the lemma does not hold, or not
        finite.
    """
    m, a = _at_least("vocab", vocab, 1), _number("exponent", exponent)
    if np.any(m != np.floor(m)):
        raise InputError(f"vocab must be a whole number, got {vocab!r}")
    if np.any(a <= 0.5):
        raise InputError(f"exponent must be above 1/2, got {exponent!r}")
    return (zeta(2 * a) - zeta(2 * a, m + 1)) / m


class Exponents(NamedTuple):
    """Powers of the width d."""

    initial: float  # of the output at init
    embedding: float  # of δ̄_E
    projection: float  # of δ̄_W^i
    product: float  # of δ̄_{W,E}


_DOUBLINGS = 200  # lower-order terms in d are below float64's resolution there, and d² is still far from overflow


def predicted_exponents(rule: str, *, vocab_growth: float = 1.0, rarity: float = 0.0) -> Exponents:
    """The exponents of d that Theorems 1 and 2 predict for a parametrization, if m grows as d^γ.

    They are the slopes of this module's forms between d = 2^200 and d = 2^201, with m = 8 d^γ and with the init and
    rates of `lvp.parametrization.table`. At these widths the slopes have reached their limits, unless γ or γ β is near
    1 but not equal to 1.

    Args:
      rule: a name in `lvp.parametrization.RULES`; "interpolated" has κ = 1.
      vocab_growth: γ in [0, 4]: 0 is muP's regime (m fixed), 1 is m = 8d, above 1 is m ≫ d.
      rarity: β ≥ 0 of a token with κ_i = Θ(m^−β): 0 for the k most frequent (Theorem 2), 2a for the rarest under
        Zipf's law of exponent a > 1/2.

    Returns:
      `Exponents`, rounded to nine decimals.

    Raises:
      InputError: the rule is unknown; vocab_growth or rarity is out of range or not a scalar.
    """
    growth, beta = _at_least("vocab_growth", vocab_growth, 0), _at_least("rarity", rarity, 0)
    if growth.ndim or beta.ndim or growth > 4:
        raise InputError(
            f"vocab_growth must be a scalar in [0, 4] and rarity a scalar, got {vocab_growth!r} and {rarity!r}"
        )

    def sizes(doublings: int) -> np.ndarray:
        d, m = 2**doublings, 8 * round(2.0 ** (float(growth) * doublings))
        t = table(rule, width=d, vocab=m, base_width=1, base_vocab=8)
        rows = t["embedding"], t["output"]
        rate_e, rate_w = (row.forward_multiplier * row.lr_multiplier for row in rows)
        sigma_e, sigma_w = (row.forward_multiplier * row.init_std for row in rows)
        d = float(d)
        kappa = float(m) ** -float(beta)
        projection = rate_w * sigma_e * np.sqrt(d + 2 / np.pi * d * (d - 1) * kappa)
        embedding = embedding_component(d, m, rate_e, sigma_w)
        product = product_component(d, rate_e, rate_w)
        return np.array([initial_output(d, sigma_e, sigma_w), embedding, projection, product])

    slopes = np.log2(sizes(_DOUBLINGS + 1)) - np.log2(sizes(_DOUBLINGS))
    return Exponents(*(round(float(slope), 9) + 0.0 for slope in slopes))


def _number(name: str, value) -> np.ndarray:
    try:
        number = np.asarray(value, np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} must be numbers ({error})") from error
    if not np.all(np.isfinite(number)):
        raise InputError(f"{name} must be finite, got {value!r}")
    return number


def _at_least(name: str, value, least: float) -> np.ndarray:
    number = _number(name, value)
    if np.any(number < least):
        raise InputError(f"{name} must be at least {least}, got {value!r}")
    return number
