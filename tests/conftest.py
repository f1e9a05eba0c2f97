"""Settings every test shares: silent rank promotion is an error, and the corpus that only some machines have."""

import os
from pathlib import Path

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")

WIKITEXT2 = Path(os.environ.get("LVP_WIKITEXT2", Path(__file__).parents[2] / "shared/data/wikitext-2"))


@pytest.fixture(scope="session")
def wikitext2() -> Path:
    """Directory of train.txt, valid.txt, test.txt; the test is skipped, and says so, where it does not exist."""
    if not (WIKITEXT2 / "train.txt").is_file():
        pytest.skip(f"WikiText-2 is not at {WIKITEXT2} (set LVP_WIKITEXT2)")
    return WIKITEXT2
