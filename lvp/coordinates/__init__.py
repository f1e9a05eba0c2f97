"""Coordinate checks: how the entries of activations, and what training changes of them, grow with the width.

    from lvp import coordinates

    result = coordinates.check(init, apply, (64, 128, 256), loss=loss, optimizer=optimizer, batch=batch)
    print(result)

After Yang et al. 2022 (Tensor Programs V, appendix D.1): under a parametrization that suits the width, every activation
starts at most of order one and a few steps change it by order one, at every width. `check` measures the powers of width
with intervals; `decoder.check` does it for `lvp.models.decoder` under a rule of `lvp.parametrization` (needs flax), and
is what `python -m lvp coordinates` prints.

A power of 0 is not always to be expected: LVP's embedding rows start, and move, as d^(−1/2) by its own table, and so do
the outputs of the linear network x E W under it (`lvp.theory.predicted_exponents`). `expected` says so to `check`.
"""

from lvp.coordinates.growth import Coordinates, Expected, Growth, check
from lvp.coordinates.quantities import QUANTITIES

__all__ = ["QUANTITIES", "Coordinates", "Expected", "Growth", "check"]
