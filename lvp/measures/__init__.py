"""What one looks at in a run, as pure functions of arrays that can be called inside a compiled training step.

- `movement`: norm and angle of updates (Kosson et al. 2024);
- `gradients`: signal-to-noise ratio, alignment with the momentum; `representation`: relative representation change (the
  same);
- `vocabulary`: the geometry of a vocabulary matrix and of its gradient (Stollenwerk & Stollenwerk 2025);
- `frequency`: second moments and updates against token frequencies;
- `activations`: dead units and stable ranks (Kosson et al. 2024);
- `step`: those of the vocabulary matrices in one training step.

All of them can be traced by `jax.jit` and `jax.vmap`, and the shapes of their results depend on the shapes of their
arguments alone. They compute in float32, or in an argument's dtype where that is wider. Errors are raised on shapes and
other static facts only, never on values.
"""

from lvp.measures.activations import dead_fraction, stable_rank, stable_ranks, unit_maxima
from lvp.measures.frequency import by_bin, by_frequency, frequency_bins, num_bins, second_moment_fit
from lvp.measures.gradients import alignment, first_moments, snr, square_sums
from lvp.measures.movement import angle, updates
from lvp.measures.representation import representation_change
from lvp.measures.step import initial_means, joined, of_vocabulary, second_moments
from lvp.measures.vocabulary import embeddings, gradient_sum

__all__ = [
    "alignment",
    "angle",
    "by_bin",
    "by_frequency",
    "dead_fraction",
    "embeddings",
    "first_moments",
    "frequency_bins",
    "gradient_sum",
    "initial_means",
    "joined",
    "num_bins",
    "of_vocabulary",
    "representation_change",
    "second_moment_fit",
    "second_moments",
    "snr",
    "square_sums",
    "stable_rank",
    "stable_ranks",
    "unit_maxima",
    "updates",
]
