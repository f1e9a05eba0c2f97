"""Coordinate checks: growth of the entries of activations, and of their changes in training, with the width.

    from lvp import coordinates

    result = coordinates.check(init, apply, (64, 128, 256), loss=loss, optimizer=optimizer, batch=batch)
    print(result)

The check follows Yang et al. 2022 (Tensor Programs V, appendix D.1). Under a parametrization that transfers over width,
every activation is at most of order one at init, and a few steps change it by order one, at every width. `check`
measures the powers of width with intervals. `decoder.check` does this for `lvp.models.decoder` under a rule of
`lvp.parametrization` (needs flax); `python -m lvp coordinates` prints its result.

The expected power is not always 0. Under LVP's table, embedding rows start and move as d^(−1/2), and so do the outputs
of the linear network x E W (`lvp.theory.predicted_exponents`). The argument `expected` gives these powers to `check`.
"""

from lvp.coordinates.growth import Coordinates, Expected, Growth, check
from lvp.coordinates.quantities import QUANTITIES

__all__ = ["QUANTITIES", "Coordinates", "Expected", "Growth", "check"]
