"""Marks for parametrized tests."""

import pytest


def slow(*values, id=None):
    """Parameters of a test that only `make test-slow` runs."""
    return pytest.param(*values, id=id, marks=pytest.mark.slow)


def all_slow_but(fast, values, ids=None):
    """Parameters of a test, with ids. `make test` runs the ids in `fast`, `make test-slow` the others."""
    ids = list(map(str, values)) if ids is None else list(ids)
    return [
        pytest.param(x, id=i, marks=() if i in fast else pytest.mark.slow) for x, i in zip(values, ids, strict=True)
    ]
