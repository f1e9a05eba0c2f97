"""Coupled Adam: a second moment shared by the whole vocabulary, so that Adam does not move the mean embedding."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lvp import roles
from lvp.errors import InputError
from lvp.optim import rates as _rates
from lvp.optim.by_role import check_declarations, is_masked
from lvp.optim.elementwise import with_decoupled_decay

UNDECLARED = roles.Declaration(".*", "vector")  # a parameter that is not coupled


def _classify(tree: Any, couple: Sequence[str], declarations: Sequence[roles.Declaration]) -> Any:
    """A pytree of `lvp.roles.Leaf` like `tree`. Parameters that are not coupled are vectors."""
    described = roles.classify(tree, (*roles.DEFAULT, UNDECLARED), declarations)
    alone = lambda leaf: replace(leaf, role="vector", vocab_axis=None)  # noqa: E731
    described = jax.tree.map(lambda leaf: leaf if leaf.role in couple else alone(leaf), described)
    coupled = [leaf for leaf in jax.tree.leaves(described) if leaf.role in couple]
    for leaf in coupled:
        if leaf.vocab_axis is None:
            raise InputError(
                f"couple: parameter {leaf.path!r} of shape {leaf.shape} has no vocabulary axis; "
                "give its lvp.roles.Declaration a vocab_axis"
            )
    nodes = jax.tree.leaves(tree, is_leaf=is_masked)
    # A tree in which `optax.partition` has masked other roles can lack the vocabulary.
    if nodes and not any(map(is_masked, nodes)) and not coupled:
        raise InputError(
            f"couple: no parameter has a role of {tuple(couple)}, so that nothing is coupled; pass "
            "declarations=[lvp.roles.Declaration(PATTERN, 'output')] for the head"
        )
    roles.check_whole(jax.tree.leaves(described), jax.tree.leaves(tree))
    return described


def _mean(leaf: roles.Leaf, squares: jax.Array) -> jax.Array:
    """The mean over the tokens in use of a coupled parameter's squared gradients; for other parameters, the squares."""
    if leaf.vocab_axis is None or leaf.vocab is None:
        return squares
    rows = leaf.shape[leaf.vocab_axis]
    if not rows:
        return jnp.sum(squares, axis=leaf.vocab_axis)  # the mean of nothing is NaN
    mean = jnp.mean(squares, axis=leaf.vocab_axis)
    return mean if leaf.vocab == rows else mean * (rows / leaf.vocab)


def scale_by_coupled_adam(
    b1: Any = 0.9,
    b2: Any = 0.95,
    eps: Any = 1e-8,
    *,
    couple: Sequence[str] = ("output", "tied"),
    mu_dtype: Any = None,
    declarations: Sequence[roles.Declaration] = (),
) -> optax.GradientTransformation:
    """Returns Adam's direction with a second moment shared by all tokens; see `coupled_adam`.

    The state is `optax.ScaleByAdamState`. On a coupled matrix [m, d] its `nu` is a vector [d], without the matrix' box
    of metadata.

    Raises:
      InputError: b1 or b2 is outside [0, 1); eps is negative; a role of `couple` has no vocabulary. From `init` and
        `update`: a coupled parameter has no vocabulary axis, or is split by `jax.shard_map`; no parameter of the whole
        tree is coupled. From `init`: a declaration decides no parameter's role.
    """
    _rates.check_beta("b1", b1)
    _rates.check_beta("b2", b2)
    _rates.check_constant("eps", eps)
    couple = (couple,) if isinstance(couple, str) else tuple(couple)
    unknown = [role for role in couple if role not in roles.VOCABULARY]
    if unknown:
        raise InputError(f"couple: {unknown[0]!r} has no vocabulary; roles with a vocabulary are {roles.VOCABULARY}")

    def init(params):
        check_declarations(params, declarations)
        described = _classify(params, couple, declarations)
        mu = optax.tree.zeros_like(params, dtype=mu_dtype)

        def zeros(leaf, box):
            if leaf.role == "vector":
                return optax.tree.zeros_like(box)
            return _mean(leaf, jnp.zeros_like(*jax.tree.leaves(box)))

        return optax.ScaleByAdamState(jnp.zeros([], jnp.int32), mu, roles.over_boxes(zeros, described, params))

    def update(updates, state, params=None):
        del params
        described = _classify(updates, couple, declarations)
        squares = jax.tree.map(lambda leaf, g: _mean(leaf, jnp.square(g)), described, updates)
        squares = jax.tree.unflatten(jax.tree.structure(state.nu), jax.tree.leaves(squares))
        mu = optax.tree.update_moment(updates, state.mu, b1, 1)
        nu = optax.tree.update_moment(squares, state.nu, b2, 1)
        count = optax.safe_increment(state.count)
        m_hat = optax.tree.bias_correction(mu, b1, count)
        v_hat = optax.tree.bias_correction(nu, b2, count)

        def direction(leaf, m, v):
            root = jnp.sqrt(v) + eps
            return m / (root if leaf.role == "vector" else jnp.expand_dims(root, leaf.vocab_axis))

        v_hat = jax.tree.unflatten(jax.tree.structure(described), jax.tree.leaves(v_hat))
        updates = jax.tree.map(direction, described, m_hat, v_hat)
        mu, nu = optax.tree.cast(mu, mu_dtype), optax.tree.cast_like(nu, state.nu)
        return updates, optax.ScaleByAdamState(count=count, mu=mu, nu=nu)

    return optax.GradientTransformation(init, update)


def coupled_adam(
    learning_rate: optax.ScalarOrSchedule,
    b1: Any = 0.9,
    b2: Any = 0.95,
    eps: Any = 1e-8,
    weight_decay: Any = 0.0,
    *,
    couple: Sequence[str] = ("output", "tied"),
    mu_dtype: Any = None,
    mask: Any | Callable | None = None,
    declarations: Sequence[roles.Declaration] = (),
) -> optax.GradientTransformationExtraArgs:
    """AdamW whose second moment of a vocabulary matrix is the mean over the vocabulary, per hidden column.

    Stollenwerk & Stollenwerk 2025, "Better embeddings with Coupled Adam" (arXiv 2502.08441). An LM head's gradients sum
    to zero over tokens, and so do their first moments. Adam divides them by a root that differs between tokens, and so
    moves the mean embedding. With a shared root the mean stays constant, except for weight decay. The mean of per-token
    averages is the average of per-step means, so the state is a vector [d] instead of [m, d] (m: vocabulary, d: width).
    The defaults of b1, b2 and eps are those of GPT-3 (Brown et al. 2020, appendix B); optax has another b2.

    Args:
      learning_rate: number, scalar array or schedule.
      b1, b2, eps, mu_dtype, mask: arguments of `optax.adamw`.
      weight_decay: λ, per unit of learning rate.
      couple: the roles to couple, of "output" (the head), "tied" and "embedding" (the input embedding). The
        declarations give the vocabulary axis, and `tokens` if the vocabulary is padded. Under `jax.jit` the mean
        includes all shards of a sharded vocabulary.
      declarations: `lvp.roles.Declaration`s that come before the defaults. Parameters without a declaration are not
        coupled.

    Returns:
      A transformation. Its state has a first moment like the parameters, and a second moment, [d] for coupled matrices.

    Raises:
      InputError: b1 or b2 is outside [0, 1); the decay, rate or eps is negative; a role of `couple` has no vocabulary.
        From `init` and `update`: a coupled parameter has no vocabulary axis, or is split by `jax.shard_map`; no
        parameter of the whole tree is coupled. From `init`: a declaration decides no parameter's role.

    Example:
      >>> import jax.numpy as jnp
      >>> from lvp import optim
      >>> params = {"head": {"kernel": jnp.ones((4, 8))}}  # [d, m]
      >>> state = optim.coupled_adam(1e-3).init(params)
      >>> state[0].nu["head"]["kernel"].shape  # one second moment for all tokens
      (4,)
    """
    adam = scale_by_coupled_adam(b1, b2, eps, couple=couple, mu_dtype=mu_dtype, declarations=declarations)
    return with_decoupled_decay(adam, learning_rate, weight_decay, mask)
