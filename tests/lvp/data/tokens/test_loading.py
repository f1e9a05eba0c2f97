"""Tokenizers of other projects encode as their own libraries do, and unusable files are one line."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvp.data.tokens import loading
from lvp.data.tokens.tokenizers import Tokenizer
from lvp.errors import InputError
from tests.lvp.data.tokens.foreign import TEXT, gpt2_json, llama_model

NASTY = "\r\nCRLF\t ▁ 𝄞漢字 <s> </s> <|endoftext|>  é\n\n\n"
DOCUMENTS = st.text(st.sampled_from(list("ab \n\r\té漢𝄞▁<s>0123")), max_size=60) | st.just(TEXT[:5000]) | st.just(NASTY)


@pytest.fixture(scope="module")
def llama():
    return loading.SentencePiece(llama_model())


@pytest.fixture(scope="module")
def gpt2():
    pytest.importorskip("tokenizers")
    return loading.HuggingFace(gpt2_json())


def test_a_sentencepiece_model_encodes_as_its_library(llama):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_proto=llama.model)

    @given(DOCUMENTS)
    def check(text):
        ids = llama.encode(text.encode())
        assert ids.dtype == np.int32 and ids.tolist() == processor.encode(text)
        assert llama.decode(ids) == text.replace("▁", " ").encode()  # its mark of a space

    check()
    assert llama.vocab_size == processor.get_piece_size() == 400 and llama.separators == {"bos": 1, "eos": 2}


def test_a_tokenizer_json_encodes_as_its_library(gpt2):
    import tokenizers

    library = tokenizers.Tokenizer.from_str(gpt2.model.decode())

    @given(DOCUMENTS)
    def check(text):
        ids = gpt2.encode(text.encode())
        assert ids.dtype == np.int32 and gpt2.decode(ids) == text.encode()
        if "<|endoftext|>" not in text:
            assert ids.tolist() == library.encode(text).ids

    check()
    end = gpt2.separators["eos"]
    assert gpt2.separators == {"eos": library.token_to_id("<|endoftext|>")} and gpt2.vocab_size == 400
    assert end in library.encode(NASTY).ids and end not in gpt2.encode(NASTY.encode())  # a text makes no separator


@pytest.mark.parametrize("size", [7, 100, 1000])
def test_the_pieces_of_a_document_change_no_token(llama, monkeypatch, size):
    """The pieces end with line ends, which are tokens of their own in this model."""
    lines = TEXT.encode()[:20_000].splitlines(keepends=True)
    text = b"".join(line for line in lines if len(line) <= size)
    whole = llama.encode(text)
    monkeypatch.setattr(loading, "_PIECE", size)
    assert all(piece.endswith("\n") for piece in loading._pieces(text))
    np.testing.assert_array_equal(llama.encode(text), whole)
    at = text.index(b"\n", 50) + 1
    parts = [llama.encode(text[:at]), llama.encode(text[at:], begins=False)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    # Negative control: a new document begins with a space.
    assert np.concatenate([parts[0], llama.encode(text[at:])]).tolist() != whole.tolist()


def test_pieces_are_the_text_and_end_between_characters(monkeypatch):
    monkeypatch.setattr(loading, "_PIECE", 9)

    @given(st.text(st.sampled_from(list("a\né漢𝄞")), max_size=80))
    def check(text):
        pieces = list(loading._pieces(text.encode()))
        assert "".join(pieces) == text and all(0 < len(piece.encode()) <= 9 for piece in pieces)

    check()


def test_a_file_says_which_tokenizer_it_holds(tmp_path, llama):
    ours = Tokenizer.train(TEXT.encode(), 300)
    for number, tokenizer in enumerate((ours, llama)):
        path = tmp_path / str(number)
        path.write_bytes(tokenizer.model)
        loaded = loading.load(path)
        assert type(loaded) is type(tokenizer) and loaded.fingerprint == tokenizer.fingerprint
    assert not ours.separators
    for content in (b"", b"no model", b"{}", b"{", llama.model[:1000]):
        (tmp_path / "damaged").write_bytes(content)
        with pytest.raises(InputError, match="is neither a SentencePiece|needs tokenizers: pip install") as caught:
            loading.load(tmp_path / "damaged")
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="cannot read .*none: No such file"):
        loading.load(tmp_path / "none")


def test_a_tokenizer_json_from_a_file(tmp_path, gpt2):
    (tmp_path / "tokenizer.json").write_bytes(gpt2.model)
    assert loading.load(tmp_path / "tokenizer.json").fingerprint == gpt2.fingerprint
