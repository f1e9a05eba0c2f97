"""Simulations of the linear network: the theorems' quantities from their definitions, and settings without a theorem.

No function here uses a closed form, so the simulations test the closed forms independently. [m, m] matrices are made in
chunks. Their norms come from Gram matrices [d, d], since ‖r M‖² = r (M Mᵀ) rᵀ for a row r and M [d, m].
"""

from functools import partial
from numbers import Real
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import ArrayLike

from lvp.errors import InputError
from lvp.models import linear
from lvp.optim.elementwise import scale_by_sign, sign
from lvp.parametrization import check_frequencies, check_whole

_CHUNK_ELEMENTS = 2**22  # random numbers drawn at a time


class Estimate(NamedTuple):
    """A mean over independent draws and its standard error, both float64 in the same unit.

    In `Component` it is a root mean square.
    """

    mean: np.ndarray  # over draws
    standard_error: np.ndarray  # of the mean; nan for one draw


class Component(NamedTuple):
    """Root mean squares over the m logits and over draws, (m⁻¹ E‖δ^i‖²)^½, in logits.

    Attributes:
      per_token: [..., T], for the tokens given.
      overall: [...], root mean square over all tokens of frequency above 0, each counted once. Theorem 1's δ̄_E is
        defined for these tokens only.
    """

    per_token: Estimate
    overall: Estimate


class Components(NamedTuple):
    """The components of E_1 W_1 = E_0 W_0 − δ_W − δ_E + δ_{W,E}."""

    embedding: Component  # δ_E
    projection: Component  # δ_W
    product: Component  # δ_{W,E}
    initial: Component  # E_0 W_0, for relative values


class Moments(NamedTuple):
    """Moments of a random vector X with exchangeable coordinates: E X_k, Var X_k, Cov(X_k, X_l) for k ≠ l.

    Exchangeable coordinates have the same mean and variance, and all pairs have the same covariance. Averages over
    coordinates therefore estimate these moments.
    """

    mean: Estimate
    variance: Estimate
    covariance: Estimate


def one_step_components(
    key: jax.Array,
    width: int,
    frequencies: ArrayLike,
    *,
    learning_rate_embedding: float = 1.0,
    learning_rate_output: float = 1.0,
    sigma_embedding: float = 1.0,
    sigma_output: float = 1.0,
    draws: int = 100,
    tokens: ArrayLike | None = None,
    chunk: int | None = None,
) -> Components:
    """Simulates Theorem 1: the components after one infinite-batch SignSGD step under Assumption 2.

    Each draw has new E, W and signal V (iid N(0, 1), in place of E W − Z). The gradients are m⁻¹ D_α V Wᵀ and m⁻¹ Eᵀ
    D_α V. Both matrices move by their rate times S(gradient), with S(0) = +1.

    Args:
      key: a `jax.random.key`.
      width: d ≥ 1.
      frequencies: α [m], m ≥ 2, non-negative, sum 1.
      learning_rate_embedding, learning_rate_output: η_E, η_W.
      sigma_embedding, sigma_output: standard deviations.
      draws: at least 2.
      tokens: [T] indices into frequencies; None is all tokens.
      chunk: number of tokens at a time (`lvp.models.linear.gradients`).

    Returns:
      `Components` of arrays [T] (per token) and scalars (overall). The simulation is in float32.

    Raises:
      InputError: an argument is out of range.
    """
    width, draws = check_whole("width", width, 1), check_whole("draws", draws, 2)
    alpha = check_frequencies(frequencies)
    tokens = _tokens(tokens, alpha.size)
    rates = _numbers(learning_rate_embedding=learning_rate_embedding, learning_rate_output=learning_rate_output)
    sigmas = _numbers(sigma_embedding=sigma_embedding, sigma_output=sigma_output)
    keys = jax.random.split(key, draws)
    squares = _one_step(keys, jnp.asarray(alpha, jnp.float32), tokens, rates, sigmas, width, chunk)
    return _components(squares)


@partial(jax.jit, static_argnums=(5, 6))
def _one_step(keys, alpha, tokens, rates, sigmas, width, chunk):
    def draw(key):
        key_params, key_signal = jax.random.split(key)
        params = linear.init(key_params, width, alpha.size, *sigmas)
        gradients = linear.random_signal_gradients(params, alpha, key_signal, chunk=chunk)
        embedding, output = (rate * sign(g) for rate, g in zip(rates, linear.matrices(gradients), strict=True))
        return _squares(params, embedding, output, alpha, tokens)

    return jax.lax.map(draw, keys)


def feature_components(
    key: jax.Array,
    width: int,
    frequencies: ArrayLike,
    *,
    learning_rate_embedding: float,
    learning_rate_output: float,
    sigma_embedding: float,
    sigma_output: float,
    targets: ArrayLike | None = None,
    steps: tuple[int, ...] = (1, 2, 5, 20),
    optimizer: str = "sign",
    loss: str = "square",
    eps: float = 1e-8,
    draws: int = 1,
    tokens: ArrayLike | None = None,
    chunk: int | None = None,
) -> Components:
    """The components outside the theorems' assumptions: true targets, several steps, Adam, cross-entropy.

    After t infinite-batch steps, δ_E = (E_0 − E_t) W_0, δ_W = E_0 (W_0 − W_t) and δ_{W,E} = (E_t − E_0)(W_t − W_0), so
    E_t W_t = E_0 W_0 − δ_W − δ_E + δ_{W,E} at every t. All components are displacements from the init, in logits.
    Divide them by `initial` for relative values.

    Args:
      key, width, frequencies, tokens, chunk: as in `one_step_components`. `tokens` may have any order.
      learning_rate_embedding, learning_rate_output, sigma_embedding, sigma_output: η and init standard deviations.
      targets: [m], the token that follows each token; None draws a new permutation for each draw.
      steps: the steps after which to measure, ascending.
      optimizer: "sign" (S, with S(0) = +1) or "adam" (optax, b1 = 0.9, b2 = 0.999).
      loss: "square" or "cross_entropy" (`lvp.models.linear.gradients`).
      eps: Adam's ε. Gradients are as small as α_i/m. Tokens with gradients below ε hardly move: pass an eps below the
        smallest α_i/m. The square of a gradient below about 1e-17 underflows in float32.
      draws: number of draws of the init (and the permutation), at least 1. The standard error of one draw is nan.

    Returns:
      `Components`: per token [S, T], overall [S], for the S entries of `steps`; `initial` [T] and a scalar.

    Raises:
      InputError: an argument is out of range; the optimizer or the loss is unknown.
    """
    width, draws, alpha = check_whole("width", width, 1), check_whole("draws", draws, 1), check_frequencies(frequencies)
    tokens, steps = _tokens(tokens, alpha.size), _steps(steps)
    if optimizer not in _DIRECTIONS:
        raise InputError(f"optimizer must be one of {tuple(_DIRECTIONS)}, not {optimizer!r}")
    if loss not in linear.LOSSES:
        raise InputError(f"loss must be one of {linear.LOSSES}, not {loss!r}")
    if targets is not None:
        targets = _tokens(targets, alpha.size, "targets")
        if targets.shape != alpha.shape:
            raise InputError(f"targets must be [{alpha.size}], one per token, got {targets.shape}")
    rates = _numbers(learning_rate_embedding=learning_rate_embedding, learning_rate_output=learning_rate_output)
    sigmas = _numbers(sigma_embedding=sigma_embedding, sigma_output=sigma_output)
    (epsilon,) = _numbers(eps=eps)
    setting = (width, steps, optimizer, loss, chunk)
    keys = jax.random.split(key, draws)
    return _components(_train(keys, jnp.asarray(alpha, jnp.float32), targets, tokens, rates, sigmas, epsilon, setting))


@partial(jax.jit, static_argnums=7)
def _train(keys, alpha, targets, tokens, rates, sigmas, eps, setting):
    width, steps, optimizer, loss, chunk = setting
    direction: optax.GradientTransformation = _DIRECTIONS[optimizer](eps)
    rates = linear.as_params(*rates)

    def draw(key):
        key_params, key_targets = jax.random.split(key)
        start = linear.init(key_params, width, alpha.size, *sigmas)
        followers = jax.random.permutation(key_targets, alpha.size) if targets is None else targets

        def step(carry, _):
            params, state = carry
            gradients = linear.gradients(params, alpha, followers, loss, chunk=chunk)
            moves, state = direction.update(gradients, state)
            params = jax.tree.map(lambda p, rate, u: p - rate * u, params, rates, moves)
            embedding, output = (a - b for a, b in zip(linear.matrices(start), linear.matrices(params), strict=True))
            return (params, state), _squares(start, embedding, output, alpha, tokens)

        _, squares = jax.lax.scan(step, (start, direction.init(start)), length=steps[-1])
        at = jnp.asarray(steps) - 1
        *components, initial = jax.tree.map(lambda x: x[at], squares)
        return *components, jax.tree.map(lambda x: x[0], initial)

    return jax.lax.map(draw, keys)


def _sign(eps) -> optax.GradientTransformation:
    del eps
    return scale_by_sign()


def _adam(eps) -> optax.GradientTransformation:
    return optax.scale_by_adam(b1=0.9, b2=0.999, eps=eps)


_DIRECTIONS = {"sign": _sign, "adam": _adam}


def theorem_3_moments(key: jax.Array, width: int, vocab: int, *, draws: int = 1000) -> Moments:
    """Moments of X = Σ_j S(⟨v, W_j⟩) W_j, simulated by drawing W [d, m] and v [m] (Theorem 3).

    Args:
      key: a `jax.random.key`.
      width: d ≥ 1.
      vocab: m ≥ 2.
      draws: at least 2.

    Returns:
      `Moments` of scalars.

    Raises:
      InputError: an argument is out of range.
    """
    width, vocab, draws = check_whole("width", width, 1), check_whole("vocab", vocab, 2), check_whole("draws", draws, 2)
    return Moments(*map(_mean, _theorem_3(jax.random.split(key, draws), width, vocab)))


@partial(jax.jit, static_argnums=(1, 2))
def _theorem_3(keys, width, vocab):
    blocks = _row_blocks(width, vocab)

    def draw(key):
        key_v, key_rows = jax.random.split(key)
        v = jax.random.normal(key_v, (vocab,))

        def add(x, block):
            index, used = block
            rows = used[:, None] * _normal_rows(key_rows, index, vocab)
            return x + sign(rows @ v) @ rows, None

        return _moments(jax.lax.scan(add, jnp.zeros(vocab), blocks)[0])

    return jax.lax.map(draw, keys)


def theorem_4_moments(
    key: jax.Array,
    width: int,
    frequencies: ArrayLike,
    *,
    tokens: ArrayLike | None = None,
    draws: int = 1000,
    columns: int | None = None,
) -> Moments:
    """Moments of X = E_i S(Eᵀ M) per token, simulated by drawing E [m, d] and M [m, m] (Theorem 4).

    Args:
      key: a `jax.random.key`.
      width: d ≥ 1.
      frequencies: α [m], the standard deviations of M's rows up to a factor.
      tokens: [T]; None is all tokens.
      draws: at least 2.
      columns: number of M's m columns to draw, at least 2; None is min(m, 256). The columns are independent and
        identically distributed.

    Returns:
      `Moments` of arrays [T].

    Raises:
      InputError: an argument is out of range.
    """
    width, draws, alpha = check_whole("width", width, 1), check_whole("draws", draws, 2), check_frequencies(frequencies)
    columns = min(alpha.size, 256) if columns is None else check_whole("columns", columns, 2)
    tokens = _tokens(tokens, alpha.size)
    keys = jax.random.split(key, draws)
    return Moments(*map(_mean, _theorem_4(keys, jnp.asarray(alpha, jnp.float32), tokens, width, columns)))


@partial(jax.jit, static_argnums=(3, 4))
def _theorem_4(keys, alpha, tokens, width, columns):
    blocks = _row_blocks(alpha.size, width + columns)

    def draw(key):
        key_embedding, key_signal = jax.random.split(key)

        def add(product, block):
            index, used = block
            signal = (used * alpha[index])[:, None] * _normal_rows(key_signal, index, columns)
            return product + _normal_rows(key_embedding, index, width).T @ signal, None

        product = jax.lax.scan(add, jnp.zeros((width, columns)), blocks)[0]
        return _moments(_normal_rows(key_embedding, tokens, width) @ sign(product))

    return jax.lax.map(draw, keys)


def _row_blocks(rows: int, width: int):
    """Row indices in chunks [N, C] of bounded size, and a mask: 1 for rows, 0 for padding."""
    chunk = max(1, min(rows, _CHUNK_ELEMENTS // width))
    index = np.arange(-(-rows // chunk) * chunk)
    used = (index < rows).astype(np.float32)
    return jnp.asarray(np.minimum(index, rows - 1)).reshape(-1, chunk), jnp.asarray(used).reshape(-1, chunk)


def _normal_rows(key, index, width: int):
    """Rows [N, width] of an iid N(0, 1) matrix; each row depends on `key` and its index only."""
    return jax.vmap(lambda i: jax.random.normal(jax.random.fold_in(key, i), (width,)))(index)


def _moments(x):
    """Averages over the coordinates of X [..., K], for one draw: X_k, X_k² and X_k X_l, k ≠ l (the means are 0)."""
    count, total, square = x.shape[-1], jnp.sum(x, axis=-1), jnp.sum(x**2, axis=-1)
    return total / count, square / count, (total**2 - square) / (count * (count - 1))


def _squares(params, d_embedding, d_output, alpha, tokens):
    """Mean squares over logits of dE W, E dW, dE dW and E W: for each, [T] for `tokens` and the mean over all α > 0."""
    embedding, output = linear.matrices(params)
    pairs = (d_embedding, output), (embedding, d_output), (d_embedding, d_output), (embedding, output)

    def mean_squares(rows, matrix):
        square = jnp.sum((rows @ (matrix @ matrix.T)) * rows, axis=1) / matrix.shape[1]
        return square[tokens], jnp.mean(square, where=alpha > 0)

    return [mean_squares(*pair) for pair in pairs]


def _components(squares) -> Components:
    return Components(*(Component(*map(_root_mean_square, pair)) for pair in squares))


def _mean(samples) -> Estimate:
    """Mean and standard error over draws, the first axis."""
    samples = np.asarray(samples, np.float64)
    count = len(samples)
    error = samples.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(samples.shape[1:], np.nan)
    return Estimate(samples.mean(axis=0), error)


def _root_mean_square(squares) -> Estimate:
    """The root of the mean over draws, with its standard error by the delta method."""
    mean, error = _mean(squares)
    root = np.sqrt(mean)
    return Estimate(root, np.divide(error, 2 * root, out=np.zeros_like(root), where=root > 0))


def _tokens(tokens, vocab: int, name: str = "tokens") -> jax.Array:
    tokens = np.arange(vocab) if tokens is None else np.asarray(tokens)
    if tokens.ndim != 1 or tokens.size == 0 or not np.issubdtype(tokens.dtype, np.integer):
        raise InputError(f"{name} must be a list of token indices, got {tokens!r}")
    if np.any(tokens < 0) or np.any(tokens >= vocab):
        raise InputError(f"{name} must lie in 0 to {vocab - 1}, got {tokens.min()} to {tokens.max()}")
    return jnp.asarray(tokens)


def _steps(steps) -> tuple[int, ...]:
    steps = tuple(check_whole("steps", step, 1) for step in steps)
    if not steps or list(steps) != sorted(set(steps)):
        raise InputError(f"steps must be ascending and not empty, got {steps}")
    return steps


def _numbers(**named: Any) -> list[jax.Array]:
    for name, value in named.items():
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
            raise InputError(f"{name} must be a number of at least 0, got {value!r}")
    return [jnp.float32(value) for value in named.values()]
