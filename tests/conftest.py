"""Settings that all tests share: rank promotion, compiler flags, memory, corpora, sweeps in processes of their own
(`tests.sweeps.running`) and the ledger of faults (`tests.faults.ledger`)."""

import ctypes
import gc
import os
import sys
from pathlib import Path

import jax
import psutil
import pytest

from tests import QUICK_COMPILATION
from tests.faults import ledger
from tests.sweeps.running import cache, command, command_here, finished, shared  # noqa: F401  fixtures
from tests.sweeps.small_disk import disk  # noqa: F401  fixture

jax.config.update("jax_numpy_rank_promotion", "raise")

WIKITEXT2 = Path(os.environ.get("LVP_WIKITEXT2", Path(__file__).parents[2] / "shared/data/wikitext-2"))
MEMORY_LIMIT = 2**31  # bytes that a process may hold at the start of the next module


def pytest_addoption(parser):
    parser.addoption("--ledger", type=Path, help="file to which tests write the results of injected faults")


def pytest_configure(config):
    ledger.path = config.getoption("--ledger")
    flags = os.environ.get("XLA_FLAGS", "")
    # Slow tests take the compiler's defaults. Processes inherit the flags, and xdist's are configured a second time.
    if config.getoption("markexpr") == "not slow" and QUICK_COMPILATION not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {QUICK_COMPILATION}".strip()
    # Worker processes, modules and later runs share compiled programs. JAX's cache distinguishes flags and versions.
    if (cache_of_pytest := getattr(config, "cache", None)) is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache_of_pytest.mkdir("xla")))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def pytest_collection_finish():
    # A full garbage collection would visit all modules and tests again and again: a tenth of the suite's time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="module", autouse=True)
def bounded_memory():
    """Frees compiled programs and traces after a module. JAX would keep them for the life of the process, and the C
    library would keep the freed memory."""
    yield
    if psutil.Process().memory_info().rss > MEMORY_LIMIT:
        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture(scope="session")
def wikitext2() -> Path:
    """The directory of train.txt, valid.txt and test.txt. Skips the test if it does not exist."""
    if not (WIKITEXT2 / "train.txt").is_file():
        pytest.skip(f"WikiText-2 is not at {WIKITEXT2} (set LVP_WIKITEXT2)")
    return WIKITEXT2
