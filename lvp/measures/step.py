"""The vocabulary matrices in one training step, and how measures are put together."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lvp import roles
from lvp.measures.frequency import by_bin, by_frequency, frequency_bins, num_bins, second_moment_fit
from lvp.measures.vocabulary import embeddings, gradient_sum

VOCABULARY = ("embedding", "output")


def vocabulary_matrices(tree: Any, declarations: Sequence[roles.Declaration] = ()) -> dict[str, jax.Array]:
    """Path → [m, d] of every embedding and head of a tree like the parameters, a row per token."""
    described = jax.tree.leaves(roles.classify(tree, extra=declarations))
    matrices = {}
    for leaf, x in zip(described, jax.tree.leaves(tree), strict=True):
        if leaf.role in VOCABULARY and leaf.vocab_axis is not None and x.ndim == 2:
            matrices[leaf.path] = x if leaf.vocab_axis == 0 else x.T
    return matrices


def initial_means(params: Any, declarations: Sequence[roles.Declaration] = ()) -> dict[str, jax.Array]:
    """Path → the mean row [d] of every vocabulary matrix: what `of_vocabulary` measures drift from."""
    return {path: jnp.mean(matrix, axis=0) for path, matrix in vocabulary_matrices(params, declarations).items()}


def second_moments(opt_state: Any, b2: float, declarations: Sequence[roles.Declaration] = ()) -> dict[str, jax.Array]:
    """Path → Adam's bias-corrected v̂ of every vocabulary matrix [m, d], found in the state of whatever chain holds an
    `optax.ScaleByAdamState`. Empty for other optimizers; without what is coupled over the vocabulary."""

    def is_adam(x):
        return isinstance(x, optax.ScaleByAdamState)

    matrices: dict[str, jax.Array] = {}
    for state in filter(is_adam, jax.tree.leaves(opt_state, is_leaf=is_adam)):
        corrected = optax.tree.bias_correction(state.nu, b2, state.count)
        leaves = jax.tree_util.tree_leaves_with_path(corrected)  # of its own role's parameters only
        named = {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}
        matrices |= vocabulary_matrices({path: x for path, x in named.items() if x.ndim == 2}, declarations)
    return matrices


def of_vocabulary(
    params: Any,
    updates: Any,
    head_gradient: jax.Array,
    moments: Mapping[str, jax.Array],
    means: Mapping[str, jax.Array],
    frequencies: jax.Array,
    declarations: Sequence[roles.Declaration] = (),
) -> dict:
    """The measures of the vocabulary matrices in one step.

    Args:
      params: pytree, before the update. updates: what is added to it.
      head_gradient: [d, m], the gradient of the output matrix as the head, without what a tied matrix gets from being
        looked up.
      moments: of `second_moments`, after the step. means: of `initial_means`. frequencies: [m], of the training text.
      declarations: `lvp.roles.Declaration`s before the defaults; the same in all of these functions.

    Returns:
      Under "vocabulary", by path, `embeddings` before the step, with a second moment `second_moment_fit`, and
      "by_frequency" with `by_frequency`'s and the mean "frequency" of a bin; and "head_gradient_sum", the
      `gradient_sum` of head_gradient.
    """
    bins, moved = frequency_bins(frequencies), vocabulary_matrices(updates, declarations)
    vocabulary: dict[str, dict[str, Any]] = {}
    for path, matrix in vocabulary_matrices(params, declarations).items():
        moment = jnp.mean(moments[path], axis=1) if path in moments else None
        vocabulary[path] = embeddings(matrix, initial_mean=means[path])
        binned = by_frequency(matrix, moved[path], moment, bins)
        vocabulary[path]["by_frequency"] = binned | {"frequency": by_bin(frequencies, bins, num_bins(len(frequencies)))}
        if moment is not None:
            vocabulary[path] |= second_moment_fit(moment, frequencies)
    return {"vocabulary": vocabulary, "head_gradient_sum": gradient_sum(head_gradient.T)}


def joined(*measured: Mapping[str, Any]) -> dict:
    """Nested measures put together: what several say of one matrix or role stands in one place."""
    merged: dict[str, Any] = {}
    for nested in measured:
        for key, value in nested.items():
            merged[key] = joined(merged.get(key, {}), value) if isinstance(value, Mapping) else value
    return merged
