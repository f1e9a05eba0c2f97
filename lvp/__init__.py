"""Init stds and learning rates by role and shape, and the measurements that test them."""

__version__ = "0.1.0"
