"""Closed forms of the papers, each held against its Monte Carlo: most of Hayou & Liu 2025 on the linear network.

- `components`: what one SignSGD step changes, and what of it a parametrization makes grow with width;
- `zipf`: the Zipf–Mandelbrot law of token frequencies, fitted with an honest interval;
- `head`: the updates that optimizers make of an LM head's gradient (Stollenwerk & Stollenwerk 2025);
- `simulation`: the Monte Carlo of the forms, and the same quantities where no theorem speaks;
- `representation_change`: how far a step moves a neuron's outputs, form and Monte Carlo (Kosson et al. 2024).

The last two import jax (the form's bracket is `lvp.optim`'s) and are asked for by name; the rest of the room does not.
Where a paper's form is not exact (Theorem 4, Theorem 1's projection component, equation 9), both are here: `exact` or
`form` chooses.
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
