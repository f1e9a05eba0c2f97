"""The optimizers of `lvp.optim` in float64 NumPy, written from the papers' equations, one leaf after another.

"K" is Kosson, Messmer, Jaggi 2024 (warm-up), "H" Hayou & Liu 2025, "S" Stollenwerk & Stollenwerk 2025. In all functions
`params` is path → array, `gradients` is path → array [T, ...] and `rates` is η_t, t = 1 … T. The result is the
parameters after T steps. `fan_in` is path → axes over which one neuron sums, () for gains and biases.
"""

import numpy as np


def trapezoid(peak, total, warmup, cooldown):
    """Returns η_t = peak · min(1, (t + 1)/W, (T − t)/D), t = 0 … T − 1, with W and D the rounded fractions of T (K,
    section 3)."""
    t, rise, fall = np.arange(total), round(warmup * total), round(cooldown * total)
    rates = np.full(total, 1.0)
    if rise:
        rates = np.minimum(rates, (t + 1) / rise)
    if fall:
        rates = np.minimum(rates, (total - t) / fall)
    return peak * rates


def gamma(b, t, nesterov, inverse_bias_correction):
    """Returns the expected RMS of u for unit iid gradients: K 23 and algorithm 2 (t → ∞), or 24 and 25 (at step t)."""
    stationary = (1 - b) / (1 + b)
    if nesterov:
        left = 1 - b ** (2 * t - 2) if inverse_bias_correction else 1.0
        return np.sqrt((1 - b**2) ** 2 + left * b**4 * stationary)
    left = 1 - b ** (2 * t) if inverse_bias_correction else 1.0
    return np.sqrt(left * stationary)


def directions(gradients, b, nesterov):
    """Yields u_t of K's algorithms 2 and 3: m ← β m + (1 − β) g; u = m, or β m + (1 − β) g."""
    m = np.zeros(gradients.shape[1:])
    for g in gradients.astype(np.float64):
        m = b * m + (1 - b) * g
        yield b * m + (1 - b) * g if nesterov else m


def near_zero(gradients, b, nesterov, threshold):
    """Returns path → how often a coordinate's 0 < |u_t| is below `threshold` times the RMS of the leaf's u_t. The sign
    of u_t depends on rounding there. An exact zero is not counted: every gradient on which it depends is exactly
    zero."""
    counts = {}
    for path, leaf in gradients.items():
        counts[path] = np.zeros(leaf.shape[1:], int)
        for u in directions(leaf, b, nesterov):
            counts[path] += (np.abs(u) < threshold * np.sqrt(np.mean(u**2))) & (u != 0)
    return counts


def sign_sgd(params, gradients, rates, *, sign_of_zero):
    """θ ← θ − η_t S(g), S(z) = 1 for z ≥ 0 (H, section 3) or sign(z)."""
    after = {}
    for path, theta in params.items():
        for g, rate in zip(gradients[path], rates, strict=True):
            theta = theta - rate * np.where(g == 0, float(sign_of_zero), np.sign(g))
        after[path] = theta
    return after


def lion_a(params, gradients, rates, *, b, weight_decay, nesterov, inverse_bias_correction):
    """θ ← (1 − η_t λ) θ − η_t γ_t sign(u): K, algorithm 2."""
    after = {}
    for path, theta in params.items():
        for t, u in enumerate(directions(gradients[path], b, nesterov), 1):
            rate, scale = rates[t - 1], gamma(b, t, nesterov, inverse_bias_correction)
            theta = (1 - rate * weight_decay) * theta - rate * scale * np.sign(u)
        after[path] = theta
    return after


def adam_directions(gradients, b1, b2, eps, *, bias_correction_first=True, mean_axis=None):
    """Yields m̂/(√v̂ + ε), or m/(√v̂ + ε): K, algorithm 1. `mean_axis`: v is shared over it, the mean of g² (S)."""
    m = np.zeros(gradients.shape[1:])
    v = 0.0
    for t, g in enumerate(gradients.astype(np.float64), 1):
        square = g**2 if mean_axis is None else np.mean(g**2, axis=mean_axis, keepdims=True)
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * square
        corrected = m / (1 - b1**t) if bias_correction_first else m
        yield corrected / (np.sqrt(v / (1 - b2**t)) + eps)


def adamw(params, gradients, rates, *, b1, b2, eps, weight_decay, bias_correction_first=True, vocab_axis=None):
    """θ ← (1 − η_t λ) θ − η_t u: K, algorithm 1; Coupled Adam (S) where `vocab_axis` (path → axis) names the leaf."""
    after = {}
    for path, theta in params.items():
        us = adam_directions(
            gradients[path],
            b1,
            b2,
            eps,
            bias_correction_first=bias_correction_first,
            mean_axis=(vocab_axis or {}).get(path),
        )
        for rate, u in zip(rates, us, strict=True):
            theta = (1 - rate * weight_decay) * theta - rate * u
        after[path] = theta
    return after


def norm(x, axes):
    """Returns ℓ₂ norms over `axes`, kept as axes of length 1."""
    return np.sqrt(np.sum(x.astype(np.float64) ** 2, axis=axes, keepdims=True))


def project(theta, norms, axes):
    """Returns θ̂ ‖θ₀‖/‖θ̂‖: the end of K's algorithm 3."""
    now = norm(theta, axes)
    return theta * norms / np.where(now > 0, now, 1.0)


def lion_ar(
    params,
    gradients,
    rates,
    *,
    peak,
    fan_in,
    b,
    weight_decay,
    nesterov,
    inverse_bias_correction,
    update_multiplier=1.0,
):
    """K, algorithm 3: θ̂ = θ − (η_t/max η) √(2 max η λ) γ_t ‖θ₀‖/√C sign(u), projected to ‖θ₀‖.

    Gains, biases and neurons of zero norm: θ ← θ − η_t γ_t sign(u).
    """
    after = {}
    for path, theta in params.items():
        axes = fan_in[path]
        norms = norm(theta, axes)
        per_weight = norms / np.sqrt(np.prod([theta.shape[axis] for axis in axes]))  # ‖θ₀‖/√C
        for t, u in enumerate(directions(gradients[path], b, nesterov), 1):
            rate = update_multiplier * rates[t - 1]
            step = gamma(b, t, nesterov, inverse_bias_correction) * np.sign(u)
            as_vector = theta - rate * step
            if axes:
                turned = theta - rate / peak * np.sqrt(2 * peak * weight_decay) * per_weight * step
                theta = np.where(norms > 0, project(turned, norms, axes), as_vector)
            else:
                theta = as_vector
        after[path] = theta
    return after


def rotational_adamw(params, gradients, rates, *, fan_in, b1, b2, eps, weight_decay, norm_decay, update_multiplier=1.0):
    """θ̂ = θ − √(2 η_t λ (1 − β₁)/(1 + β₁)) ‖θ₀‖ u/√n̂, projected to ‖θ₀‖; n̂ the corrected average of ‖u‖².

    K, appendix A. Gains and biases: AdamW. Neurons of zero norm: θ ← θ − η_t √C u/√n̂. A neuron all of whose u are
    zero stays.
    """
    after = {}
    for path, theta in params.items():
        axes = fan_in[path]
        norms, n = norm(theta, axes), 0.0
        fan = np.prod([theta.shape[axis] for axis in axes])
        for t, u in enumerate(adam_directions(gradients[path], b1, b2, eps), 1):
            rate = rates[t - 1]
            if axes:
                n = norm_decay * n + (1 - norm_decay) * norm(u, axes) ** 2
                root = np.sqrt(n / (1 - norm_decay**t))
                unit = u / np.where(root > 0, root, 1.0)
                angle = update_multiplier * np.sqrt(2 * rate * weight_decay * (1 - b1) / (1 + b1))
                turned = project(theta - angle * norms * unit, norms, axes)
                theta = np.where(norms > 0, turned, theta - update_multiplier * rate * np.sqrt(fan) * unit)
            else:
                theta = theta - update_multiplier * rate * (u + weight_decay * theta)
        after[path] = theta
    return after


def representation_change(snr, batch, fan_in):
    """Returns E[Δy²]/E[y²] at η = ‖w‖ = 1: K 9."""
    phi, b, c = snr, batch, fan_in
    own, others = phi + 1, (b - 1) / c
    common = (b - 1) ** 2 * phi / (phi + 1) * (phi + 1 / c) + 2 * (b - 1) * phi
    return c / b**2 / (phi + 1 / b) * (own + others + common)
