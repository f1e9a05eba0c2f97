"""Token files of other projects: their tokens, limits, held-out part and fingerprint; bad files are one line."""

import json
import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvp import data
from lvp.data.tokens import arrays
from lvp.errors import InputError

VOCAB = 50257
TRAIN, VALID = (np.random.default_rng(seed).integers(VOCAB, size=n) for seed, n in ((0, 5000), (1, 700)))


def llm_c(path, tokens, magic=20240520, version=1, dtype="<u2", count=None):
    header = np.zeros(256, "<i4")
    header[:3] = magic, version, tokens.size if count is None else count
    path.write_bytes(header.tobytes() + tokens.astype(dtype).tobytes())


def nanogpt(folder):
    TRAIN.astype("<u2").tofile(folder / "train.bin")
    VALID.astype("<u2").tofile(folder / "val.bin")


def modded(folder):
    for number, part in enumerate(np.array_split(TRAIN, 7)):
        llm_c(folder / f"fineweb_train_{number:06}.bin", part)
    llm_c(folder / "fineweb_val_000000.bin", VALID)


def llama3(folder):
    for name, tokens in (("train", TRAIN), ("val", VALID)):
        llm_c(folder / f"{name}.bin", tokens, 20240801, 7, "<u4")


def npy(folder):
    np.save(folder / "train-0.npy", TRAIN[:3000].astype(np.uint32))
    np.save(folder / "train-1.npy", TRAIN[3000:].astype(np.int32))
    np.save(folder / "valid.npy", VALID.astype(np.uint16))


def prepare(place, cache, vocab=VOCAB, slice_bytes=None, valid_bytes=None):
    sizes = {"slice_bytes": slice_bytes, "valid_bytes": valid_bytes}
    return data.prepare(f"tokens:{place}", vocab=vocab, **sizes, cache=cache)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.mark.parametrize("write", [nanogpt, modded, llama3, npy])
def test_the_tokens_are_those_of_the_files(write, folder, tmp_path):
    write(folder)
    (folder / "meta.pkl").write_bytes(b"not read")
    dataset = prepare(folder, tmp_path / "cache")
    assert data.Dataset.from_dict(json.loads(json.dumps(dataset.to_dict()))) == dataset
    for split, tokens in (("train", TRAIN), ("valid", VALID)):
        np.testing.assert_array_equal(dataset.tokens(split), tokens)
        mapped = dataset.tokens(split, mapped=True)
        assert len(mapped) == mapped.size == tokens.size and mapped.dtype.kind in "iu"
        np.testing.assert_array_equal(mapped[13:600], tokens[13:600])
    assert (dataset.num_tokens, dataset.num_valid_tokens) == (TRAIN.size, VALID.size)
    assert dataset.train_bytes is dataset.valid_bytes is dataset.tokenizer_fingerprint is None
    np.testing.assert_allclose(dataset.frequencies(), np.bincount(TRAIN, minlength=VOCAB) / TRAIN.size)
    assert len(pickle.dumps(dataset)) < 2000


def test_a_size_in_bytes_counts_four_per_token(folder, tmp_path):
    modded(folder)
    dataset = prepare(folder, tmp_path / "cache", slice_bytes=4003, valid_bytes=400)
    np.testing.assert_array_equal(dataset.tokens("train", mapped=True)[:], TRAIN[:1000])
    np.testing.assert_array_equal(dataset.tokens("valid"), VALID[:100])


@pytest.mark.parametrize("valid_bytes, held_out", [(None, 500), (400, 100), (10**6, 500)])
@pytest.mark.parametrize("several", [False, True])
def test_the_last_tokens_are_validation_by_default(folder, tmp_path, valid_bytes, held_out, several):
    modded(folder)
    (folder / "fineweb_val_000000.bin").unlink()
    llm_c(tmp_path / "tokens.bin", TRAIN)
    dataset = prepare(folder if several else tmp_path / "tokens.bin", tmp_path / "cache", valid_bytes=valid_bytes)
    np.testing.assert_array_equal(dataset.tokens("train"), TRAIN[:-held_out])
    np.testing.assert_array_equal(dataset.tokens("valid"), TRAIN[-held_out:])


def test_a_vocabulary_above_65536_has_four_bytes_per_token(folder, tmp_path):
    (TRAIN + 50_000).astype("<u4").tofile(folder / "train.bin")
    VALID.astype("<u4").tofile(folder / "val.bin")
    np.testing.assert_array_equal(prepare(folder, tmp_path / "c", 128_256).tokens("train"), TRAIN + 50_000)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 80), st.integers(0, 80))
def test_slices_over_several_files(sizes, start, stop):
    whole = np.arange(sum(sizes), dtype=np.uint16)
    tokens = arrays.Tokens([arrays.TokenFile(number, "<u2", 0, size) for number, size in enumerate(sizes)])
    tokens._mapped = lambda number: np.split(whole, np.cumsum(sizes)[:-1])[number]
    np.testing.assert_array_equal(tokens[start:stop], whole[start:stop])
    np.testing.assert_array_equal(np.asarray(tokens, np.int32), whole)


def test_positions_beyond_32_bits_in_a_sparse_file(folder, tmp_path, monkeypatch):
    """The tokens around 2^32; without the digest, which reads 9 GB."""
    count = (1 << 32) + 1000
    with open(folder / "train.bin", "wb") as file:
        file.truncate(2 * count)
        file.seek(2 * (1 << 32))
        file.write(np.arange(500, dtype="<u2").tobytes())
    VALID.astype("<u2").tofile(folder / "val.bin")
    monkeypatch.setattr(arrays, "verified", lambda files, vocab, cache: ["0"])
    dataset = prepare(folder, tmp_path / "cache")
    assert dataset.num_tokens == count
    at = dataset.tokens("train", mapped=True)[(1 << 32) - 2 : (1 << 32) + 3]
    np.testing.assert_array_equal(at, [0, 0, 0, 1, 2])


def test_the_files_are_read_once_and_a_change_is_noticed(folder, tmp_path, monkeypatch):
    modded(folder)
    first = prepare(folder, tmp_path / "cache")
    with monkeypatch.context() as patch:
        patch.setattr(arrays, "_read", lambda file: pytest.fail("the digests are kept"))
        assert prepare(folder, tmp_path / "cache") == first
    path = folder / "fineweb_train_000003.bin"
    state, content = path.stat(), bytearray(path.read_bytes())
    content[1500] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # the time of change (ctime) differs
    assert prepare(folder, tmp_path / "cache").corpus_fingerprint != first.corpus_fingerprint
    for kept in (tmp_path / "cache" / "verified").iterdir():
        kept.write_bytes(b"[[1]]")
    content[1500] ^= 1
    path.write_bytes(content)
    assert prepare(folder, tmp_path / "cache") == first


def no_file(folder):
    (folder / "train.bin").unlink()


def truncated(folder):
    os.truncate(folder / "train.bin", 1024 + 9_000)


def longer(folder):
    with open(folder / "val.bin", "ab") as file:
        file.write(b"\0\0")


def odd(folder):
    (folder / "train.bin").write_bytes(b"\0\1\0")
    (folder / "val.bin").unlink()


def only_a_header(folder):
    os.truncate(folder / "train.bin", 100)


def an_evaluation_file(folder):
    llm_c(folder / "train.bin", TRAIN, magic=20240522)


def another_version(folder):
    llm_c(folder / "train.bin", TRAIN, version=2)


def a_token_too_large(folder):
    tokens = TRAIN.copy()
    tokens[[4321, 4500]] = 50300, 60000
    llm_c(folder / "train.bin", tokens)


def a_negative_token(folder):
    tokens = TRAIN.astype(np.int32)
    tokens[7] = -1
    (folder / "train.bin").unlink()
    np.save(folder / "train.npy", tokens)


def floats(folder):
    (folder / "train.bin").unlink()
    np.save(folder / "train.npy", TRAIN.astype(np.float32))


def one_file_without_a_header(folder):
    llm_c(folder / "train_2.bin", TRAIN)
    TRAIN.astype("<u2").tofile(folder / "train_3.bin")


def too_few(folder):
    llm_c(folder / "val.bin", VALID[:1])


@pytest.mark.parametrize(
    "damage, message",
    [
        (no_file, "no tokens in .*: no file with train in its name ends in .bin or .npy; `python -m lvp tokenize"),
        (truncated, "train.bin is truncated: its header states 5000 tokens, which are 11024 bytes, but it has 10024"),
        (
            longer,
            "val.bin is longer than expected: its header states 700 tokens, which are 2424 bytes, but it has 2426",
        ),
        (odd, "train.bin is truncated: its 3 bytes are no whole number of uint16 tokens"),
        (only_a_header, "train.bin has the header 20240520 version 0; token files have 20240520 version 1 or"),
        (an_evaluation_file, "train.bin has the header 20240522 version 1; token files have"),
        (another_version, "train.bin has the header 20240520 version 2; token files have"),
        (
            a_token_too_large,
            "train.bin has token 50300 at position 4321, outside of the vocabulary of 50257: set vocab",
        ),
        (a_negative_token, "train.npy has token -1 at position 7, outside"),
        (floats, r"train.npy has no tokens: expected uint16, uint32 or int32 \[N\], got float32 \[5000\]"),
        (one_file_without_a_header, "train_3.bin has no header, but other files of .* have one"),
        (too_few, "the validation part of .* is too small: 1 tokens; give more, or raise valid_bytes"),
    ],
)
def test_bad_files_give_a_one_line_error(folder, tmp_path, damage, message):
    for name, tokens in (("train", TRAIN), ("val", VALID)):
        llm_c(folder / f"{name}.bin", tokens)
    prepare(folder, tmp_path / "cache")
    damage(folder)
    with pytest.raises(InputError, match=message) as caught:
        prepare(folder, tmp_path / "cache")
    assert "\n" not in str(caught.value)


def test_a_text_cannot_be_scored_without_a_tokenizer(folder, tmp_path):
    nanogpt(folder)
    with pytest.raises(InputError, match="has no tokenizer, so no text can be scored"):
        data.prepare(
            f"tokens:{folder}",
            vocab=VOCAB,
            slice_bytes=None,
            valid_bytes=None,
            cache=tmp_path,
            scored_spec="python-docs",
        )
