"""Settings of sweeps in the test's process."""

import pytest

from lvp import sweeps
from lvp.sweeps import forecast, progress
from tests.sweeps.own_files import TRAINED, written
from tests.sweeps.running import keep_programs

OPTIONS = {"executor": "inline", "quiet": True, "checkpoint_seconds": 0.0}


@pytest.fixture(autouse=True)
def speed(monkeypatch):
    """The speed that forecasts in the test's process use: measuring it takes longer than the small sweeps."""
    monkeypatch.setattr(forecast, "matrix_product_flops", lambda: 1e10)


class Small:
    """A sweep of three trained runs and a calculation in the test's process. Every chunk of steps is saved.

    Attributes:
      path: the experiment's file (`own_files.TRAINED`).
    """

    def __init__(self, path):
        self.path = path

    def run(self, out, **changes):
        """Runs the sweep in `out`. The changes are options or values of the configuration."""
        return sweeps.run(self.path, "smoke", out=out, **(OPTIONS | changes))

    def resume(self, out, **changes):
        return sweeps.resume(out, experiment=self.path, **(OPTIONS | changes))


@pytest.fixture
def small(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("LVP_CACHE", str(cache))
    keep_programs(monkeypatch)
    return Small(written(tmp_path, text=TRAINED))


@pytest.fixture
def interrupted(monkeypatch):
    """interrupted(call) interrupts a sweep in the test's process, without a save, when a pack has done a few steps.
    Returns the message."""

    def report(news, progress):
        if progress.step > 1:
            raise KeyboardInterrupt

    def interrupt(call):
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt) as caught:
            patched.setattr(progress.News, "report", report)
            call()
        return str(caught.value)

    return interrupt
