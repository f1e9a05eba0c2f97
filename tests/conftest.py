"""Settings every test shares: silent rank promotion is an error, the corpus that only some machines have, sweeps in
processes of their own (`tests.sweeps.running`), and where faults are counted (`tests.faults.ledger`)."""

import os
from pathlib import Path

import jax
import pytest

from tests.faults import ledger
from tests.sweeps.running import cache, command, finished  # noqa: F401  fixtures

jax.config.update("jax_numpy_rank_promotion", "raise")

WIKITEXT2 = Path(os.environ.get("LVP_WIKITEXT2", Path(__file__).parents[2] / "shared/data/wikitext-2"))


@pytest.fixture(scope="session")
def wikitext2() -> Path:
    """Directory of train.txt, valid.txt, test.txt; the test is skipped, and says so, where it does not exist."""
    if not (WIKITEXT2 / "train.txt").is_file():
        pytest.skip(f"WikiText-2 is not at {WIKITEXT2} (set LVP_WIKITEXT2)")
    return WIKITEXT2


def pytest_addoption(parser):
    parser.addoption("--ledger", type=Path, help="directory in which tests that inject faults write what came of them")


def pytest_configure(config):
    ledger.directory = config.getoption("--ledger")
