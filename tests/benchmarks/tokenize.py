"""Tokenization in one process, against two processes and against SentencePiece's own encoder. Prints ratios.

    python -m tests.benchmarks.tokenize [ROUNDS [KILOBYTES]]

Our side makes a shard per file, as `lvp tokenize` does. Its processes are already running. The text is the
documentation of Python in 16 files: 9 MB by default, without repetition. Our encoder remembers words, and the side
`new` forgets them before every run. SentencePiece's side is `SentencePieceProcessor.encode` in one thread on the
decoded lines of the same text, without reading or writing. Its BPE has the same vocabulary size, training text and
normalization, but characters instead of bytes as its alphabet. A further side is the same call with our model on our
lines: the cost of our alphabet.
"""

import io
import os
import statistics
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import RUN, alternate, finish, serve

MODULE = "tests.benchmarks.tokenize"
VOCAB, TRAINING_BYTES, RANGES = 2048, 1_000_000, 16
KILOBYTES, ROUNDS = 9_000, 7
SIZE = "LVP_BENCHMARK_KILOBYTES"  # tells the sides the size of the text
WORKERS = {"one": 1, "two": 2, "new": 1}


def _text() -> bytes:
    """The text, up to the end of a line, as all sides read it."""
    from lvp.data.text import python_docs

    size = 1000 * int(os.environ[SIZE])
    text, _ = python_docs.load()
    text *= 1 + size // len(text)
    return text[: text.rfind(b"\n", 0, size) + 1]


def ours(workers: int, *, forget: bool) -> None:
    import numpy as np

    from lvp.data.text import documents
    from lvp.data.tokens import encoding, shards, tokenization
    from lvp.data.tokens.shards import Shard
    from lvp.data.tokens.tokenizers import Tokenizer

    text = _text()
    tokenizer = Tokenizer.train(text[:TRAINING_BYTES], VOCAB)
    with tempfile.TemporaryDirectory() as folder, encoding.in_processes(workers) as mapped:
        (corpus := Path(folder, "text")).mkdir()
        lines = text.splitlines(keepends=True)
        for k in range(RANGES):
            (corpus / f"{k:02}.txt").write_bytes(
                b"".join(lines[k * len(lines) // RANGES : (k + 1) * len(lines) // RANGES])
            )
        (out := Path(folder, "out")).mkdir()
        tokenizer.save(out / "tokenizer.model")
        part = documents.of_files(corpus, 1).train
        named = ("0", "tokenizer.model", tokenizer.fingerprint, None)

        def run(n):
            for _ in range(n):
                for record in out.glob("*.json"):
                    record.unlink()
                parts = enumerate(tokenization._parts(part, None, 1))
                made = mapped(make, [Shard(str(out), f"train-{k:05}", *named, each) for k, each in parts])
                assert all(record["tokens"] for record in made)

        make = _forgetful if forget else shards.make
        run(1)
        ids = np.concatenate([np.load(path) for path in sorted(out.glob("train-*.npy"))])
        assert tokenizer.decode(ids) == b"".join(block.ended for block in part.blocks())
        serve({RUN: run}, {"bytes": part.num_bytes})


def _forgetful(shard) -> dict:
    """Makes a shard. The first shard of a run begins without known words."""
    from lvp.data.tokens import shards

    if shard.name == "train-00000":
        shards._tokenizer.cache_clear()
    return shards.make(shard)


def _serve_encode(processor, lines: list[str], facts: dict) -> None:
    """Serves the time of SentencePiece's encoder on lines, in as many calls as we have ranges."""
    step = -(-len(lines) // RANGES)

    def run(n):
        for _ in range(n):
            for start in range(0, len(lines), step):
                processor.encode(lines[start : start + step], out_type=int, num_threads=1)

    serve({RUN: run}, facts)


def alphabet() -> None:
    from lvp.data.tokens import tokenizers

    text = _text()
    tokenizer = tokenizers.Tokenizer.train(text[:TRAINING_BYTES], VOCAB)
    lines = [line + tokenizers._LINE_END for line in tokenizers.to_characters(text[:-1]).split(tokenizers._LINE_END)]
    _serve_encode(tokenizer._processor, lines, {"bytes": len(text)})


def sentencepiece() -> None:
    import sentencepiece as library

    text = _text()
    model = io.BytesIO()
    library.SentencePieceTrainer.train(
        sentence_iterator=iter(text[:TRAINING_BYTES].decode(errors="ignore").splitlines()),
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCAB,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        num_threads=1,
        minloglevel=2,
    )
    processor = library.SentencePieceProcessor(model_proto=model.getvalue())
    _serve_encode(processor, text.decode().splitlines(), {"bytes": len(text)})


def main(rounds: int, kilobytes: int) -> None:
    os.environ[SIZE] = str(kilobytes)
    sides = alternate(MODULE, dict.fromkeys((*WORKERS, *LIBRARY), (False, 1)), rounds)
    speed = {name: side.facts["bytes"] / 1e6 / statistics.median(side.times[RUN]) for name, side in sides.items()}
    megabytes = {name: f"{value:.2f} MB/s" for name, value in speed.items()}
    rows = [
        (
            f"tokenization of known words in two processes / in one: {megabytes['two']} against {megabytes['one']}",
            f"{sides['one'].over(sides['two']):.2f}×",
            "1.8×",
            "2×",
        ),
        (
            f"tokenization of new words in one process / SentencePiece's encoder: {megabytes['new']} against "
            f"{megabytes['sentencepiece']}",
            f"{sides['sentencepiece'].over(sides['new']):.0%}",
            "85%",
            "100%",
        ),
        (
            "SentencePiece's encoder with our alphabet / with its own",
            f"{sides['sentencepiece'].over(sides['alphabet']):.0%}",
            "",
            "",
        ),
    ]
    finish("tokenize", rounds, rows, {name: side.times[RUN] for name, side in sides.items()})


LIBRARY = {"sentencepiece": sentencepiece, "alphabet": alphabet}  # sides that call the library only


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in LIBRARY:
        LIBRARY[sys.argv[1]]()
    elif sys.argv[1:2] and sys.argv[1] in WORKERS:
        ours(WORKERS[sys.argv[1]], forget=sys.argv[1] == "new")
    else:
        numbers = [int(word) for word in sys.argv[1:]] + [ROUNDS, KILOBYTES][len(sys.argv) - 1 :]
        main(*numbers)
