"""Closed forms of the papers, and simulations that test them.

Most forms are those of Hayou & Liu 2025 for the linear network.

- `components`: the change after one SignSGD step, and its powers of the width;
- `zipf`: the Zipf–Mandelbrot law of token frequencies, fitted with a confidence interval;
- `head`: the updates of an LM head by SGD and Adam (Stollenwerk & Stollenwerk 2025);
- `simulation`: simulations of these forms, and of settings that no theorem covers;
- `representation_change`: the change of a neuron's outputs in one step, and its simulation (Kosson et al. 2024).

The last two modules import jax and are not imported here. Three forms of the papers are not exact:
Theorem 4, the projection component of Theorem 1, and equation 9. Their functions also offer the exact form, through the
arguments `exact` and `form`.
"""

from lvp.theory.components import (
    Exponents,
    embedding_component,
    initial_output,
    mean_square_frequency,
    power_law_mean_square,
    predicted_exponents,
    product_component,
    projection_component,
    sign_gaussian_mean,
    sign_gaussian_variance,
    sign_projection_variance,
)
from lvp.theory.head import head_updates
from lvp.theory.zipf import ZipfMandelbrot, zipf_mandelbrot_fit

__all__ = [
    "Exponents",
    "ZipfMandelbrot",
    "embedding_component",
    "head_updates",
    "initial_output",
    "mean_square_frequency",
    "power_law_mean_square",
    "predicted_exponents",
    "product_component",
    "projection_component",
    "sign_gaussian_mean",
    "sign_gaussian_variance",
    "sign_projection_variance",
    "zipf_mandelbrot_fit",
]
