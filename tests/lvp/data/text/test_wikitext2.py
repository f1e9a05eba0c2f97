"""WikiText-2 is read byte for byte from a directory or from a verified download."""

import hashlib
import subprocess
import sys
import zipfile

import pytest

from lvp import data
from lvp.data.text import wikitext2
from lvp.errors import InputError
from lvp.files import storage

PROLOGUE = b" \n = First = \n \n Text with <unk> . \n \n = = Section = = \n \n More \xe2\x80\x93 text . \r\n"
TEXTS = {"train": PROLOGUE * 3 + b" no line end", "valid": b" = Second = \n a", "test": b"\n\n"}


def write(directory, pattern="{}.txt", texts=TEXTS):
    directory.mkdir(parents=True, exist_ok=True)
    for split, content in texts.items():
        (directory / pattern.format(split)).write_bytes(content)
    return directory


@pytest.mark.parametrize("pattern", ["{}.txt", "wiki.{}.tokens", "wiki.{}.raw"])
def test_a_directory_is_read_byte_for_byte(tmp_path, pattern):
    directory = write(tmp_path / "in", pattern)
    corpus = data.load(f"wikitext2:{directory}", cache=tmp_path / "cache")
    assert (corpus.train, corpus.valid) == (TEXTS["train"], TEXTS["valid"])
    assert corpus.spec == f"wikitext2:{directory}"


def test_a_changed_file_has_another_fingerprint(tmp_path):
    directory, cache = write(tmp_path / "in"), tmp_path / "cache"
    first = data.load(f"wikitext2:{directory}", cache=cache)
    (directory / "valid.txt").write_bytes(b"another text\n")
    second = data.load(f"wikitext2:{directory}", cache=cache)
    assert second.valid == b"another text\n" and second.fingerprint != first.fingerprint


def test_concurrent_processes_all_succeed_silently(tmp_path):
    program = (
        "import sys; from lvp import data\n"
        "d = data.prepare(sys.argv[1], vocab=258, slice_bytes=None, valid_bytes=None, cache=sys.argv[2])\n"
        "print(d.tokenizer_fingerprint)"
    )
    text = write(tmp_path / "in", texts={"train": PROLOGUE * 50, "valid": PROLOGUE})
    command = [sys.executable, "-c", program, f"wikitext2:{text}", tmp_path / "cache"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0] == outputs[1] and len(outputs[0][0].split()) == 1 and outputs[0][1] == b""
    assert not list((tmp_path / "cache").rglob("*.tmp"))


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """Removes all copies of WikiText-2. Returns a local archive that takes the place of the download."""
    archive = tmp_path / "raw.zip"
    with zipfile.ZipFile(archive, "w") as members:
        for split, content in TEXTS.items():
            members.writestr(f"wikitext-2-raw/wiki.{split}.raw", content)
    monkeypatch.delenv("LVP_WIKITEXT2", raising=False)
    monkeypatch.setattr(wikitext2, "_BESIDE_THE_CHECKOUT", tmp_path / "absent")
    monkeypatch.setattr(wikitext2, "ARCHIVE_URL", archive.as_uri())
    monkeypatch.setattr(wikitext2, "ARCHIVE_SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
    return archive


def test_without_a_copy_the_raw_release_is_downloaded_once(nowhere, tmp_path):
    corpus = data.load("wikitext2", cache=tmp_path / "cache")
    assert (corpus.spec, corpus.train, corpus.valid) == ("wikitext2", TEXTS["train"], TEXTS["valid"])
    nowhere.unlink()
    assert data.load("wikitext2", cache=tmp_path / "cache") == corpus


def test_the_test_split_completes_an_interrupted_download(nowhere, tmp_path):
    cache = tmp_path / "cache"
    (cache / "downloads" / "wikitext-2-raw-v1").mkdir(parents=True)
    assert wikitext2.test(None, cache=cache) == TEXTS["test"]
    nowhere.unlink()
    assert wikitext2.test(None, cache=cache) == TEXTS["test"]


def test_a_bad_download_is_refused_with_the_alternative(nowhere, tmp_path):
    nowhere.write_bytes(b"a captive portal's page")
    with pytest.raises(InputError, match="has sha256 .* not the release; pass wikitext2:DIR or set LVP_WIKITEXT2"):
        data.load("wikitext2", cache=tmp_path / "cache")
    nowhere.unlink()
    with pytest.raises(InputError, match="cannot download .*; pass wikitext2:DIR or set LVP_WIKITEXT2") as caught:
        data.load("wikitext2", cache=tmp_path / "cache")
    assert "\n" not in str(caught.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_the_environment_variable_names_a_copy(nowhere, tmp_path, monkeypatch):
    monkeypatch.setenv("LVP_WIKITEXT2", str(write(tmp_path / "mine")))
    nowhere.unlink()
    assert data.load("wikitext2", cache=tmp_path / "cache").spec == "wikitext2"
    monkeypatch.setenv("LVP_WIKITEXT2", str(tmp_path / "gone"))
    with pytest.raises(InputError, match="gone: no such directory"):
        data.load("wikitext2", cache=tmp_path / "cache")


@pytest.mark.parametrize("content, message", [(b"", "empty"), (b"a\0", "NUL"), (b"\xff", "not UTF-8")])
def test_unusable_files_are_named(tmp_path, content, message):
    directory = write(tmp_path / "in", texts=TEXTS | {"valid": content})
    with pytest.raises(InputError, match=f"valid.txt .*{message}"):
        data.load(f"wikitext2:{directory}", cache=tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_the_real_corpus_is_reproduced_byte_for_byte(wikitext2, tmp_path):
    corpus = data.load(f"wikitext2:{wikitext2}", cache=tmp_path)
    files = [(wikitext2 / f"{split}.txt").read_bytes() for split in ("train", "valid")]
    assert [corpus.train, corpus.valid] == files
    assert corpus.fingerprint == storage.digest(*files)
