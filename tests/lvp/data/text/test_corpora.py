"""Corpora match their names, are reproducible, and bad ones give a one-line error."""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from lvp import data
from lvp.data.text import python_docs, splits, zipf
from lvp.errors import InputError


def write(directory: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def test_both_parts_of_python_docs_begin_with_english(tmp_path):
    corpus = data.load("python-docs", cache=tmp_path)
    library = Path(sysconfig.get_path("stdlib"))
    assert len(corpus.train) + len(corpus.valid) > 1_000_000
    for part in (corpus.train, corpus.valid):
        part.decode()
        assert b"\0" not in part
    share = len(corpus.valid) / (len(corpus.train) + len(corpus.valid))
    assert 0.09 < share <= 0.1
    if (library / "pydoc_data" / "topics.py").exists():
        for head in (corpus.train[:40_000], corpus.valid[:40_000]):
            assert len(re.findall(rb"\b(the|of|is|a|to)\b", head)) > 0.1 * len(head.split())
    source = (library / "argparse.py").read_bytes().strip(b"\n")
    assert (source in corpus.train) != (source in corpus.valid)
    assert not any(path.exists() for path in tmp_path.rglob("*"))


def test_python_docs_is_the_same_in_another_process(tmp_path):
    program = "import sys; from lvp import data; print(data.load('python-docs', cache=sys.argv[1]).fingerprint)"
    run = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, check=True, text=True)
    assert run.stdout.strip() == data.load("python-docs", cache=tmp_path).fingerprint


def test_python_docs_executes_no_topics(tmp_path):
    topics = "import nothing_like_this\ntopics = {'b': 'Bee\\n', 'a': 'A' 'y'}\n"
    files = {f"m{index:02}.py": b"value = %d\n" % index * 3 for index in range(30)}
    files |= {
        "site-packages/x.py": b"SKIPPED",
        "pkg/test/y.py": b"SKIPPED",
        "_sysconfigdata_z.py": b"SKIPPED",
    }
    files |= {"latin.py": b"# \xe9", "pydoc_data/topics.py": topics.encode(), "pkg/kept.py": b"KEPT"}
    library = write(tmp_path / "library", files)
    train, valid = python_docs.load(library)
    assert train.startswith(b"Ay\n\nBee\n\nvalue = 0")
    assert b"KEPT" in train + valid and b"SKIPPED" not in train + valid and b"\xe9" not in train + valid
    (library / "pydoc_data" / "topics.py").unlink()
    assert python_docs.load(library)[0].startswith(b"value = 0")  # source files alone are a valid corpus
    with pytest.raises(InputError, match="standard library"):
        python_docs.load(tmp_path / "nowhere")


def test_the_last_tenth_of_a_text_file_is_validation(tmp_path):
    content = "ab\r\né\tx".encode() * 50
    (tmp_path / "t").write_bytes(content)
    corpus = data.load(f"text:{tmp_path / 't'}", cache=tmp_path / "cache")
    assert corpus.train.endswith(b"\n") and corpus.valid.endswith(b"\n")
    assert content.startswith(corpus.train[:-1]) and content.endswith(corpus.valid[:-1])
    assert abs(len(corpus.valid) - len(content) / 10) < 3
    assert corpus.spec == f"text:{tmp_path / 't'}"


def test_a_text_directory_contains_its_visible_files_in_order(tmp_path):
    files = {"b.txt": b"b" * 10, "a/z.md": b"a" * 10 + b"\n", "a.rst": b"c" * 20, ".git/config": b"\xff"}
    directory = write(tmp_path, files | {"empty": b"", ".hidden": b"\0"})
    corpus = data.load(f"text:{directory}", cache=tmp_path / "cache")
    train, valid = corpus.train, corpus.valid
    assert train == b"c" * 18 + b"\n" + b"a" * 10 + b"\n" + b"b" * 9 + b"\n"
    assert valid == b"cc\n" + b"\n" + b"b\n"


def test_a_relative_path_is_made_absolute(tmp_path, monkeypatch):
    (tmp_path / "t.txt").write_bytes(b"some text here")
    monkeypatch.chdir(tmp_path)
    assert data.load("text:t.txt", cache=tmp_path).spec == f"text:{tmp_path / 't.txt'}"


def test_zipf_is_fingerprinted_by_its_definition(tmp_path):
    default, same, other = (data.load(spec, cache=tmp_path) for spec in ("zipf", "zipf:1", "zipf:1.1"))
    assert default == same and default.spec == "zipf:1.0" and default.train == b""
    assert default.fingerprint == zipf.fingerprint(1.0) != other.fingerprint


@pytest.mark.parametrize(
    "limit, expected", [(0, ""), (1, "a"), (2, "a"), (3, "aé"), (5, "aé"), (7, "aé€"), (99, "aé€")]
)
def test_cut_never_splits_a_character(limit, expected):
    assert splits.cut("aé€".encode(), limit) == expected.encode()


@pytest.mark.parametrize(
    "spec, message",
    [
        ("python-doc", r"unknown corpus 'python-doc'; did you mean python-docs\?"),
        ("wikitext", r"did you mean wikitext2\?"),
        ("", "known: python-docs, wikitext2, text, tfds, tokens, zipf"),
        ("xyzzy:1", "unknown corpus"),
        ("python-docs:3.11", "takes no argument"),
        ("text", "needs a path"),
        ("text:", "needs a path"),
        ("wikitext2:", "needs a path"),
        ("text:{dir}/missing", r"missing: No such file"),
        ("text:{dir}/empty", r"empty is empty"),
        ("text:{dir}/binary", r"binary is binary, not text: NUL at byte offset 3"),
        ("text:{dir}/latin", r"latin is not UTF-8 \(byte offset 3: 0xe9\)"),
        ("text:{dir}/tiny", r"tiny is too small"),
        ("text:{dir}/dir", r"has no text file"),
        ("text:{dir}", r"binary is binary"),
        ("text:{dir}/tiny/below", "Not a directory"),
        ("wikitext2:{dir}/missing", "no such directory"),
        ("wikitext2:{dir}", r"expected train.txt \+ valid.txt"),
        ("zipf:", "exponent must be a number"),
        ("zipf:-1", "exponent must be a number"),
    ],
)
def test_bad_corpora_give_a_one_line_error_and_write_nothing(tmp_path, spec, message):
    directory = write(tmp_path / "in", {"empty": b"", "binary": b"abc\0def" * 9, "latin": b"caf\xe9 " * 9})
    write(directory, {"tiny": b"short", "dir/x": b""})
    with pytest.raises(InputError, match=message) as caught:
        data.load(spec.format(dir=directory), cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "cache").exists()
