"""Rows that are read from disk: every row once per epoch, and the same rows after a resume at any step."""

import threading

import numpy as np
import pytest

from lvp.data.tokens import streams
from lvp.data.tokens.streams import Rows, Windows, prefetched
from lvp.errors import InputError

CONTEXT, BATCH = 5, 4


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    """Returns memory-mapped distinct tokens: 11 rows, the target of the last token, and 3 unused tokens."""
    path = tmp_path_factory.mktemp("tokens") / "train.npy"
    np.save(path, np.arange(100, 100 + 11 * CONTEXT + 1 + 3, dtype=np.int32))
    return np.load(path, mmap_mode="r")


def rows(tokens, seed=0):
    return Rows(tokens, context=CONTEXT, batch=BATCH, seed=seed)


def rows_of_steps(tokens, steps, seed=0):
    """Returns the rows of the first `steps` steps."""
    return np.concatenate([rows(tokens, seed).at(step, 0, BATCH) for step in range(steps)])


def test_an_epoch_contains_every_row_once(tokens):
    epochs = rows_of_steps(tokens, 11)  # 44 rows: four epochs of 11
    assert epochs.shape == (44, CONTEXT + 1) and epochs.dtype == np.int32
    first_tokens = 100 + CONTEXT * np.arange(11)
    np.testing.assert_array_equal(epochs - epochs[:, :1], np.broadcast_to(np.arange(CONTEXT + 1), epochs.shape))
    for epoch in np.split(epochs[:, 0], 4):
        np.testing.assert_array_equal(np.sort(epoch), first_tokens)
    first, second = epochs[:11, 0], epochs[11:22, 0]
    assert not np.array_equal(first, second) and not np.array_equal(first, first_tokens)


def test_targets_are_all_tokens_except_the_first(tokens):
    targets = rows_of_steps(tokens, 3)[:11, 1:]
    np.testing.assert_array_equal(np.sort(targets.ravel()), 101 + np.arange(11 * CONTEXT))


def test_the_order_depends_only_on_seed_and_step(tokens):
    later = rows(tokens).at(7, 0, BATCH)  # no earlier step was read
    np.testing.assert_array_equal(later, rows_of_steps(tokens, 8)[-BATCH:])
    assert not np.array_equal(rows_of_steps(tokens, 2), rows_of_steps(tokens, 2, seed=1))


def test_the_parts_of_two_hosts_make_the_batch(tokens):
    batch = rows(tokens).at(3, 0, BATCH)
    np.testing.assert_array_equal(np.concatenate([rows(tokens).at(3, 0, 1), rows(tokens).at(3, 1, 4)]), batch)


def test_windows_depend_only_on_seed_and_step(tokens):
    def drawn(step, first=0, last=BATCH, seed=0):
        return Windows(tokens, context=CONTEXT, batch=BATCH, seed=seed).at(step, first, last)

    np.testing.assert_array_equal(np.concatenate([drawn(3, 0, 1), drawn(3, 1, 4)]), drawn(3))
    assert not np.array_equal(drawn(3), drawn(4)) and not np.array_equal(drawn(3), drawn(3, seed=1))
    starts = np.concatenate([drawn(step)[:, 0] for step in range(400)]) - 100
    assert set(starts) == set(range(len(tokens) - CONTEXT))


def test_windows_reach_positions_beyond_32_bits(tmp_path):
    """The file is sparse."""
    tokens = np.memmap(tmp_path / "train.bin", np.uint16, "w+", shape=(3 * 10**9,))
    windows = Windows(tokens, context=CONTEXT, batch=64, seed=0)
    starts = np.array([windows.starts(step, 0, 64) for step in range(20)])
    assert starts.dtype == np.int64 and 2**31 < starts.max() < len(tokens)
    tokens[starts.max() + 1] = 7
    step, row = np.argwhere(starts == starts.max())[0]
    assert windows.at(step, row, row + 1)[0, 1] == 7


def test_too_few_tokens_for_a_row_are_refused(tokens):
    with pytest.raises(InputError, match="5 tokens are too few for a context of 5: at least 6"):
        rows(tokens[:5])
    assert rows(tokens[:6]).count == 1


def test_frequencies_are_counted_in_parts(tokens, monkeypatch):
    monkeypatch.setattr(streams, "_COUNTED", 7)
    small = (np.asarray(tokens) % 40).astype(np.uint16)
    expected = np.bincount(small, minlength=50) / small.size
    np.testing.assert_array_equal(streams.frequencies(small, 50), expected)
    # Tokens outside the vocabulary are counted too.
    np.testing.assert_array_equal(streams.frequencies(small, 10), expected[:40])


def test_prefetching_in_a_thread_changes_no_row():
    calls = []

    def feed(step):
        calls.append((step, threading.current_thread() is threading.main_thread()))
        return step + 2, step * 10

    prefetching = prefetched(feed)
    assert [prefetching(step) for step in (0, 2, 4, 20, 22)] == [(s + 2, s * 10) for s in (0, 2, 4, 20, 22)]
    assert [step for step, _ in calls][:3] == [0, 2, 4] and not any(main for _, main in calls)


def test_an_error_while_prefetching_reaches_the_caller():
    def feed(step):
        if step == 2:
            raise OSError("gone")
        return step + 2, None

    prefetching = prefetched(feed)
    prefetching(0)
    with pytest.raises(OSError, match="gone"):
        prefetching(2)
