"""Settings of sweeps in the test's process."""

import pytest

from sweeps import forecast


@pytest.fixture(autouse=True)
def speed(monkeypatch):
    """The speed that forecasts in the test's process use: measuring it takes longer than the small sweeps."""
    monkeypatch.setattr(forecast, "matrix_product_flops", lambda: 1e10)
