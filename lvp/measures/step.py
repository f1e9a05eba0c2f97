"""Measures of the vocabulary matrices in one training step, and merging of measures."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from lvp import roles
from lvp.measures.frequency import by_bin, by_frequency, frequency_bins, num_bins, second_moment_fit
from lvp.measures.gradients import first_moments
from lvp.measures.vocabulary import against_hidden, embeddings, gradient_sum

VOCABULARY = ("embedding", "output")
HEADS = ("output",)


def vocabulary_matrices(
    tree: Any, declarations: Sequence[roles.Declaration] = (), *, kinds: Sequence[str] = VOCABULARY
) -> dict[str, jax.Array]:
    """Path → [m, d] of every embedding and head in a tree like the parameters; each row is a token.

    Args:
      tree: pytree like the parameters.
      declarations: `lvp.roles.Declaration`s that come before the defaults.
      kinds: the roles of these matrices. A tied matrix has the role "output".

    Raises:
      InputError: a parameter has no role or unknown axes.
    """
    described = jax.tree.leaves(roles.classify(tree, extra=declarations))
    matrices = {}
    for leaf, x in zip(described, jax.tree.leaves(tree), strict=True):
        if leaf.role in kinds and leaf.vocab_axis is not None and x.ndim == 2:
            matrices[leaf.path] = x if leaf.vocab_axis == 0 else x.T
    return matrices


def initial_means(params: Any, declarations: Sequence[roles.Declaration] = ()) -> dict[str, jax.Array]:
    """Path → the mean row [d] of every vocabulary matrix, from which `of_vocabulary` measures drift.

    Raises:
      InputError: a parameter has no role or unknown axes.
    """
    return {path: jnp.mean(matrix, axis=0) for path, matrix in vocabulary_matrices(params, declarations).items()}


def second_moments(opt_state: Any, b2: float, declarations: Sequence[roles.Declaration] = ()) -> dict[str, jax.Array]:
    """Path → Adam's bias-corrected v̂ [m, d] of every vocabulary matrix, from every `optax.ScaleByAdamState`.

    Empty for other optimizers. Matrices with a second moment coupled over the vocabulary are left out.

    Raises:
      InputError: a matrix has no role or unknown axes.
    """

    def is_adam(x):
        return isinstance(x, optax.ScaleByAdamState)

    matrices: dict[str, jax.Array] = {}
    for state in filter(is_adam, jax.tree.leaves(opt_state, is_leaf=is_adam)):
        corrected = optax.tree.bias_correction(state.nu, b2, state.count)
        leaves = jax.tree_util.tree_leaves_with_path(corrected)  # `by_role` has a state per role
        named = {roles.path_of(path): x for path, x in leaves}
        matrices |= vocabulary_matrices({path: x for path, x in named.items() if x.ndim == 2}, declarations)
    return matrices


def of_vocabulary(
    params: Any,
    updates: Any,
    head_gradient: jax.Array,
    moments: Mapping[str, jax.Array],
    means: Mapping[str, jax.Array],
    frequencies: jax.Array,
    opt_state: Any,
    hidden: jax.Array,
    declarations: Sequence[roles.Declaration] = (),
) -> dict:
    """Returns the measures of the vocabulary matrices in one step.

    Args:
      params: pytree, before the update.
      updates: pytree like params, the update added to them.
      head_gradient: [d, m], the output matrix' gradient as the head. A tied matrix' gradient as the embedding is left
        out.
      moments: result of `second_moments` after the step.
      means: result of `initial_means`.
      frequencies: [m], of the training text.
      opt_state: of the optimizer after the step.
      hidden: [N, d], inputs of the head before the step.
      declarations: `lvp.roles.Declaration`s that come before the defaults; the same in all these functions.

    Returns:
      {"vocabulary": {path: measures}, "head_gradient_sum": `gradient_sum` of head_gradient}. The measures of a path are
      `embeddings` before the step, `second_moment_fit` if there is a second moment, and "by_frequency": `by_frequency`
      with the mean "frequency" of each bin. The output matrix also has "against_hidden": `against_hidden` of the
      updates, and "first_moment_sum": `gradient_sum` of the first moment, if the optimizer has one.

    Raises:
      InputError: a parameter has no role or unknown axes, or the shapes of arrays do not fit together.
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
    first = vocabulary_matrices(
        {path: x for path, x in first_moments(opt_state).items() if x.ndim == 2}, declarations, kinds=HEADS
    )
    for path in vocabulary_matrices(params, declarations, kinds=HEADS):
        vocabulary[path]["against_hidden"] = against_hidden(moved[path], hidden)
        if path in first:
            vocabulary[path]["first_moment_sum"] = gradient_sum(first[path])
    return {"vocabulary": vocabulary, "head_gradient_sum": gradient_sum(head_gradient.T)}


def joined(*measured: Mapping[str, Any]) -> dict:
    """Merges nested measures: the measures of each matrix or role are in one dictionary."""
    merged: dict[str, Any] = {}
    for nested in measured:
        for key, value in nested.items():
            merged[key] = joined(merged.get(key, {}), value) if isinstance(value, Mapping) else value
    return merged
