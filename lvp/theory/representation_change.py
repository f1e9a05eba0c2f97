"""Change of a neuron's outputs in one step of normalised gradient descent: closed form and simulation.

Kosson et al. 2024, section 6.1: y = wᵀx with x in R^C. Sequence b's gradient g_b = ḡ + g̃_b is parallel to x_b (P1).
φ = ‖ḡ‖²/E‖g̃_b‖². The step is Δw = −η g/√(E‖g‖²), with g the mean gradient of B sequences (equation 7). Equation 9
follows from assumption A1 except in the term of the common mean: it uses E⟨ḡ, g_b⟩²/E‖g_b‖² for E[⟨ḡ, g_b⟩²/‖g_b‖²].
With Gaussian noise this ratio of means is too large, by a relative error of about 2/((1 + 1/(φC)) (1 + φ)² C): at most
2 % at C = 64 and 10 % at C = 8.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy.special import hyp1f1

from lvp.errors import InputError
from lvp.optim.representation_change import amplification
from lvp.parametrization import check_whole
from lvp.theory.simulation import Estimate

FORMS = ("paper", "exact", "limit")
_CHUNK_ELEMENTS = 2**22  # random numbers drawn at a time


def squared_representation_change(
    snr: ArrayLike,
    batch_size: ArrayLike,
    fan_in: ArrayLike,
    *,
    learning_rate: ArrayLike = 1.0,
    weight_norm: ArrayLike = 1.0,
    form: str = "paper",
) -> np.ndarray:
    """E[Δy²]/E[y²], the expected *squared* relative representation change of a step (equation 9).

    - "paper": η² C/(B² ‖w‖²) (φ + 1/B)⁻¹ ((φ+1) + (B−1)/C + (B−1)² φ/(φ+1) (φ + 1/C) + 2 (B−1) φ), equation 9.
    - "exact": uses E cos²(ḡ, g_b) in place of the ratio of means (φ + 1/C)/(φ+1). For isotropic Gaussian noise it is 1
      − (1 − 1/C) ₁F₁(1; C/2 + 1; −φC/2), because ‖g_b‖² is noncentral χ².
    - "limit": η² C/(B ‖w‖²) (1 + Bφ)/(1 + φ), the limit of equation 9 for C ≫ B, or for Cφ ≫ 1 and Bφ ≫ 1.

    All arguments broadcast as in NumPy. B and C need not be whole numbers, so that a form can be drawn as a curve.

    Args:
      snr: φ ≥ 0, per sequence.
      batch_size: B ≥ 1, sequences.
      fan_in: C ≥ 1.
      learning_rate: η ≥ 0, the root mean square length of the step.
      weight_norm: ‖w‖ > 0.
      form: one of `FORMS`.

    Returns:
      float64, dimensionless. Its root is the root mean square of the paper's RRC, ‖Δy‖/‖y‖ of equation 6.

    Raises:
      InputError: an argument is out of range or not finite; the form is unknown.
    """
    if form not in FORMS:
        raise InputError(f"form must be one of {', '.join(FORMS)}, not {form!r}")
    phi, batch = _numbers("snr", snr, 0), _numbers("batch_size", batch_size, 1)
    inputs, scale = _numbers("fan_in", fan_in, 1), _scale(learning_rate, weight_norm)
    alignment = 1 - (1 - 1 / inputs) * hyp1f1(1, inputs / 2 + 1, -phi * inputs / 2) if form == "exact" else None
    bracket = amplification(phi / (1 + phi), batch, None if form == "limit" else inputs, alignment)
    return scale**2 * inputs / batch * bracket


def simulated_representation_change(
    key: jax.Array,
    snr: ArrayLike,
    batch_size: int,
    fan_in: int,
    *,
    learning_rate: ArrayLike = 1.0,
    weight_norm: ArrayLike = 1.0,
    draws: int = 1000,
) -> Estimate:
    """Simulates E[Δy²]/E[y²]: g̃_b is iid normal with E‖g̃_b‖² = 1, ḡ is fixed, x_b = ±g_b/‖g_b‖ has length 1.

    Each draw averages Δy_b² over its batch. Two expectations are exact: the length of the step, E‖g‖² = φ + 1/B, and E
    y² = ‖w‖²/C, the mean over all directions of w (under A1, w is independent of x). All φ share one draw of the noise,
    so the errors of their estimates are correlated. The sign of x_b cancels.

    Args:
      key: a `jax.random.key`.
      snr: φ ≥ 0, a list [S].
      batch_size: B.
      fan_in: C.
      learning_rate, weight_norm: scalars; otherwise as in `squared_representation_change`.
      draws: number of batches, at least 2. Up to 2²² random numbers are drawn at a time.

    Returns:
      `Estimate` of arrays [S]. The simulation is in float32.

    Raises:
      InputError: an argument is out of range.
    """
    phi = _numbers("snr", snr, 0)
    if phi.ndim != 1 or phi.size == 0:
        raise InputError(f"snr must be a non-empty list of numbers, got {snr!r}")
    batch, inputs = check_whole("batch_size", batch_size, 1), check_whole("fan_in", fan_in, 1)
    draws, scale = check_whole("draws", draws, 2), _scale(learning_rate, weight_norm)
    chunk = max(1, min(draws, _CHUNK_ELEMENTS // (batch * inputs)))
    squares = _squared_changes(jax.random.split(key, draws), jnp.asarray(phi, jnp.float32), batch, inputs, chunk)
    squares = np.asarray(squares, np.float64) * float(scale) ** 2 * inputs
    return Estimate(squares.mean(axis=0), squares.std(axis=0, ddof=1) / np.sqrt(draws))


@partial(jax.jit, static_argnums=(2, 3, 4))
def _squared_changes(keys, phi, batch: int, inputs: int, chunk: int):
    """Mean Δy_b² over each batch at η = 1 and ‖x_b‖ = 1: [draws, S]."""
    phi = phi[:, None]
    length = jnp.sqrt(phi)  # ‖ḡ‖; ḡ is parallel to (1, …, 1)

    def draw(key):
        noise = jax.random.normal(key, (batch, inputs)) * inputs**-0.5
        along, mean = jnp.sum(noise, axis=1)[None] * inputs**-0.5, jnp.mean(noise, axis=0)
        products = phi + length * (along + jnp.mean(along)) + (noise @ mean)[None]  # ⟨g, g_b⟩
        squares = phi + 2 * length * along + jnp.sum(noise**2, axis=1)[None]  # ‖g_b‖²
        return jnp.mean(products**2 / squares, axis=1) / (phi[:, 0] + 1 / batch)

    return jax.lax.map(draw, keys, batch_size=chunk)


def _scale(learning_rate, weight_norm) -> np.ndarray:
    """η/‖w‖."""
    norm = _numbers("weight_norm", weight_norm, 0)
    if np.any(norm == 0):
        raise InputError(f"weight_norm must be above zero, got {weight_norm!r}")
    return _numbers("learning_rate", learning_rate, 0) / norm


def _numbers(name: str, value: Any, least: float) -> np.ndarray:
    try:
        numbers = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers ({error})") from None
    if not np.all(np.isfinite(numbers)) or np.any(numbers < least):
        raise InputError(f"{name} must be finite and at least {least}, got {value!r}")
    return numbers
