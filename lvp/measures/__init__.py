"""Measures of a training run: pure functions of arrays that can be called inside a compiled training step.

- `movement`: norm and angle of updates (Kosson et al. 2024);
- `gradients`: signal-to-noise ratio of matrices and of neurons, alignment with the momentum (Kosson et al. 2024);
- `representation`: relative representation change (Kosson et al. 2024);
- `vocabulary`: the geometry of a vocabulary matrix and of its gradient (Stollenwerk & Stollenwerk 2025);
- `frequency`: second moments and updates against token frequencies;
- `inputs`: sizes of token rows and of the positions added to them;
- `step`: all measures of the vocabulary matrices in one training step.

All functions can be traced by `jax.jit` and `jax.vmap`. The shapes of their results depend on the shapes of their
arguments only. They compute in float32, or in an argument's dtype if that is wider. They raise errors for shapes and
other static properties, never for values.
"""

from lvp.measures.frequency import by_bin, by_frequency, frequency_bins, num_bins, second_moment_fit
from lvp.measures.gradients import alignment, first_moments, neuron_squares, snr
from lvp.measures.inputs import input_sizes
from lvp.measures.movement import angle, updates
from lvp.measures.representation import representation_change
from lvp.measures.step import initial_means, joined, of_vocabulary, second_moments
from lvp.measures.vocabulary import against_hidden, embeddings, gradient_sum

__all__ = [
    "against_hidden",
    "alignment",
    "angle",
    "by_bin",
    "by_frequency",
    "embeddings",
    "first_moments",
    "frequency_bins",
    "gradient_sum",
    "initial_means",
    "input_sizes",
    "joined",
    "neuron_squares",
    "num_bins",
    "of_vocabulary",
    "representation_change",
    "second_moment_fit",
    "second_moments",
    "snr",
    "updates",
]
