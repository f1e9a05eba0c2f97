"""Sizes of the two parts of a decoder's first input: token rows, and the positions that are added to them."""

from typing import Any

import jax

from lvp.measures.arrays import norm, wide


def input_sizes(rows: Any, added: Any) -> dict:
    """The RMS of the entries of token rows and of the positions added to them.

    Args:
      rows: [B, T, D], the token rows as they enter the first block.
      added: [B, T, D], zeros if nothing is added.

    Returns:
      {"inputs": {"rows": RMS, "added": RMS}}, both scalars in the unit of the first block's input.
    """
    return {"inputs": {"rows": _rms(rows), "added": _rms(added)}}


def _rms(x: Any) -> jax.Array:
    x = wide(x)
    return norm([x]) / x.size**0.5
