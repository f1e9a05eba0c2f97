"""Initialisation and learning rates by role and shape, and the measurements that test them."""
