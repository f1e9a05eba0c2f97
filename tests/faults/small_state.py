"""A state of three numbers for checkpoints."""

import jax
import numpy as np

CONFIGURATION = "0123456789abcdef"
STATE = {"a": np.arange(3, dtype=np.float32)}
SHAPES = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), STATE)
