"""The `watch` callback gets growing tables, and its errors do not stop the sweep."""

import shutil
import threading

import pytest

import sweeps
from sweeps.driver.manifest import Manifest
from sweeps.driver.progress import watched


def test_tables_grow_to_the_last_record(finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    kept = sorted((out / "records").iterdir())
    contents = {path: path.read_text() for path in kept}
    for path in kept[3:]:
        path.unlink()
    seen, further = [], threading.Event()

    def watch(table):
        seen.append(len(table))
        further.set()

    with watched(Manifest.read(out), watch, seconds=0.01):
        for path in kept[3:]:
            assert further.wait(20)
            further.clear()
            path.write_text(contents[path])
    assert seen == list(range(3, len(kept) + 1))


def test_an_exception_of_watch_is_raised_after_the_sweep(finished, tmp_path):
    out, steps = shutil.copytree(finished[0], tmp_path / "out"), []

    def watch(table):
        raise ValueError("cannot draw")

    with pytest.raises(ValueError, match="cannot draw"), watched(Manifest.read(out), watch, seconds=0.01):
        steps.append("work")
    assert steps == ["work"]


def test_an_exception_of_the_sweep_takes_precedence(finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "out")
    with pytest.raises(KeyboardInterrupt), watched(Manifest.read(out), lambda table: 1 / 0, seconds=0.01):
        raise KeyboardInterrupt


def test_watch_is_called_once_for_a_finished_sweep(finished, cache, monkeypatch):
    monkeypatch.setenv("LVP_CACHE", str(cache))
    manifest, seen = Manifest.read(finished[0]), []
    config = {k: tuple(v) if isinstance(v, list) else v for k, v in manifest.config.items()}
    options = {"executor": "local", "quiet": True, "out": finished[0]}
    table = sweeps.run("width_vocab", "smoke", watch=lambda table: seen.append(len(table)), **options, **config)
    assert seen == [len(table)] == [12]
