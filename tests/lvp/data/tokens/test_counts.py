"""Token counts equal those of the whole text's encoding, for any SentencePiece model."""

import io

import numpy as np
import pytest

from lvp.cli import main
from lvp.data.tokens import counts as token_counts
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError

TEXT = ("".join(f"the naïve word{i % 37} of line {i}, and so on\n" for i in range(3000))).encode()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    import sentencepiece

    folder = tmp_path_factory.mktemp("tokens")
    (folder / "text.txt").write_bytes(TEXT)
    Tokenizer.train(TEXT, 300).save(folder / "ours.model")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.decode().splitlines()), model_writer=model, vocab_size=90, minloglevel=2
    )
    (folder / "other.model").write_bytes(model.getvalue())
    return folder


def test_counts_of_our_tokenizer(files):
    counts, size = token_counts.count(files / "ours.model", files / "text.txt")
    ids = Tokenizer.load(files / "ours.model").encode(TEXT)
    assert size == len(TEXT) and counts.tolist() == np.bincount(ids, minlength=300).tolist()


def test_counts_of_any_sentencepiece_model(files):
    import sentencepiece

    counts, _ = token_counts.count(files / "other.model", files / "text.txt")
    processor = sentencepiece.SentencePieceProcessor(model_file=str(files / "other.model"))
    ids = [index for line in TEXT.decode().splitlines() for index in processor.encode(line)]
    assert counts.tolist() == np.bincount(ids, minlength=90).tolist()


def test_counts_with_a_limit_and_of_a_directory(files, tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT[: TEXT.index(b"\n") + 1])
    (tmp_path / "b.txt").write_bytes(TEXT[TEXT.index(b"\n") + 1 :])
    whole = token_counts.count(files / "ours.model", files / "text.txt")
    assert token_counts.count(files / "ours.model", tmp_path)[0].tolist() == whole[0].tolist()
    cut = TEXT.index("ï".encode()) + 1  # in the middle of a character
    counts, size = token_counts.count(files / "ours.model", files / "text.txt", limit=cut)
    assert size == cut - 1 and counts.sum() == len(Tokenizer.load(files / "ours.model").encode(TEXT[: cut - 1]))


def test_uncountable_input_is_refused(files, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "binary").write_bytes(b"a\0b")
    for tokenizer, corpus, message in [
        ("text.txt", files / "text.txt", "is neither a SentencePiece model nor"),
        ("absent", files / "text.txt", "cannot read"),
        ("ours.model", tmp_path / "absent", "cannot read"),
        ("ours.model", tmp_path / "empty", "no text"),
        ("ours.model", tmp_path / "binary", "binary"),
    ]:
        with pytest.raises(InputError, match=message) as error:
            token_counts.count(files / tokenizer, corpus)
        assert "\n" not in str(error.value)


def test_counts_on_the_command_line(files, capsys):
    line = ["recommend", "--width", "64", "--vocab", "320", "--hidden-lr", "1e-3", "--rule", "interpolated"]
    line += ["--tokenizer", str(files / "ours.model"), "--corpus", str(files / "text.txt")]
    assert main.main(line) == 0
    out = capsys.readouterr().out
    assert "of 320 never seen" in out and f"first {len(TEXT):,} bytes" in out
    assert main.main([*line[:4], "299", *line[5:]]) == 2
    assert "smaller than the tokenizer's 300" in capsys.readouterr().err
