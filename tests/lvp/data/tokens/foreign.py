"""Tokenizers of other projects, trained on a small text."""

import io

from tests.lvp.data.tokens.texts import some_text

TEXT = some_text(3000) + "naïve “Œuvre”  two spaces\n" * 9


def llama_model(vocab: int = 400) -> bytes:
    """Returns a SentencePiece model with the settings of Llama 2."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=vocab,
        byte_fallback=True,
        split_digits=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=True,
        character_coverage=0.99,
        minloglevel=2,
    )
    return model.getvalue()


def gpt2_json(vocab: int = 400) -> bytes:
    """Returns a tokenizer.json with the settings of GPT-2. Needs the package `tokenizers`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    return tokenizer.to_str().encode()
