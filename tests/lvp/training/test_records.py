"""Records are strict JSON, complete or absent, and are hashed by content."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from lvp import experiments
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig
from lvp.training import DataConfig, OptimizerConfig, Setting, records

COMMITTED = Path(experiments.__file__).parent / "results"
MODEL = DecoderConfig(vocab=16, width=8)
RECORD = {
    "format": records.FORMAT,
    "hash": "00ff",
    "config": {"cell": {"model": {"width": 8}}, "lane": {"seed": 1}},
    "outcome": {"status": "finished", "train_loss": 1.5, "curve_losses": [2.0, 1.5]},
    "provenance": {"commit": "abc", "versions": {"jax": "1"}},
}


def test_written_records_are_read_in_order_of_hash(tmp_path):
    other = RECORD | {"hash": "0000"}
    records.write(tmp_path / "b.jsonl", [RECORD])
    records.write(tmp_path / "a.jsonl", [other])
    assert records.read(tmp_path) == [other, RECORD]
    assert records.read(tmp_path / "b.jsonl") == [RECORD]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.jsonl", "b.jsonl"]


def test_compressed_records_have_the_text_of_plain_records(tmp_path):
    plain, compressed = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    for path in (plain, compressed):
        records.write(path, [RECORD] * 20)
    assert records.content(compressed) == plain.read_bytes() and records.read(compressed) == records.read(plain)
    assert compressed.stat().st_size < plain.stat().st_size / 4
    assert len(records.read(tmp_path)) == 40


@pytest.mark.parametrize("damage", [lambda x: x[:-9], lambda x: x[:40] + b"?" + x[41:], lambda x: b"text"])
def test_damaged_compressed_records_are_refused(tmp_path, damage):
    path = tmp_path / "a.jsonl.gz"
    records.write(path, [RECORD])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match="a.jsonl.gz is not a valid gzip file"):
        records.read(path)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_unknown_to_json_are_refused(tmp_path, value):
    with pytest.raises(ValueError):
        records.write(tmp_path / "a.jsonl", [RECORD | {"outcome": {"train_loss": value}}])
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl"
    records.write(path, [RECORD])

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError):
        records.write(path, [])
    assert records.read(path) == [RECORD] and len(list(tmp_path.iterdir())) == 1


INFINITE = json.dumps(RECORD).replace("1.5", "1e999")  # JSON that Python reads as a number without JSON


@pytest.mark.parametrize("content", ['{"format": 1, "ha', '{"format": 99, "hash": ""}', "[]", INFINITE])
def test_invalid_records_are_named_with_their_line(tmp_path, content):
    (tmp_path / "a.jsonl").write_text(json.dumps(RECORD) + "\n" + content + "\n")
    with pytest.raises(ValueError, match="a.jsonl:2"):
        records.read(tmp_path)


def test_the_hash_depends_on_content_and_not_on_order():
    assert records.config_hash({"a": 1, "b": [1.5]}) == records.config_hash({"b": [1.5], "a": 1})
    assert records.config_hash({"a": 1}) != records.config_hash({"a": 2})


def test_whole_numbers_as_keys_have_the_order_of_text():
    """Keys are text in a file. A hash of the order in memory, 2 before 10, would differ after reading."""
    config = {"rates": {2: 0.1, 10: 0.2}}
    assert records.dumps(config) == '{"rates":{"10":0.2,"2":0.1}}'
    assert records.config_hash(json.loads(records.dumps(config))) == records.config_hash(config)


def test_a_record_with_whole_numbers_as_keys_is_read(tmp_path):
    record = RECORD | {"config": {"rates": {2: 0.1, 10: 0.2}}}
    records.write(tmp_path / "a.jsonl", [record])
    assert records.read(tmp_path) == [RECORD | {"config": {"rates": {"2": 0.1, "10": 0.2}}}]


@pytest.mark.parametrize("name", ["width_vocab/laptop-wikitext2", "large_updates/laptop-digits"])
def test_committed_records_have_the_hash_of_their_configuration(name):
    rows = records.read(COMMITTED / name)
    assert rows and all(row["hash"] == records.config_hash(row["config"]) for row in rows)


def test_the_table_has_a_row_per_run_and_dotted_names():
    (row,) = records.table([RECORD]).to_dict("records")
    assert row["setting.model.width"] == 8 and row["run.seed"] == 1 and row["versions.jax"] == "1"
    assert row["train_loss"] == 1.5 and row["curve_losses"] == [2.0, 1.5]


def test_the_commit_is_marked_if_a_file_was_changed(tmp_path, monkeypatch):
    def git(*words):
        author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", tmp_path, *author, *words], check=True, capture_output=True)

    files = [tmp_path / name for name in ("lvp/training/records.py", "sweeps/api.py", "docs/page.md")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.write_text("first")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    monkeypatch.setattr(records, "__file__", str(files[0]))
    commits = []
    for file in [None, *reversed(files)]:
        if file:
            file.write_text("second")
        commits.append(records.software.__wrapped__()["commit"])
    clean, with_page, with_sweeps, with_both = commits
    assert clean == with_page and len(clean) == 12 and with_sweeps == with_both == clean + "+"


@pytest.mark.parametrize("named", [None, "abc"])
@pytest.mark.parametrize("git", [False, True])
def test_the_commit_of_the_environment_comes_first(tmp_path, monkeypatch, named, git):
    if not git:
        monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("LVP_COMMIT", named) if named else monkeypatch.delenv("LVP_COMMIT", raising=False)
    found = records.software.__wrapped__()["commit"]
    assert found == named or (git and named is None and len(found) >= 12)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"hidden": 0.1, "output": 0.1}, 0.1),
        ({"hidden": 0.1, "output": 0.2}, None),  # two values have no single one
        ({"hidden": 0.1, "vector": 0.1}, None),  # a single value does not decay vectors
        (0.1, None),
    ],
)
def test_an_old_record_gets_the_hash_of_the_present_form(old, new):
    def record(decay):
        return record_of(OptimizerConfig("adamw", {}), {"optimizer": {"options": {"weight_decay": decay}}})

    expected = record(old) if new is None else record(new)
    assert records.in_current_form(record(old)) == expected
    assert records.in_current_form(expected) == expected
    calculation = {"config": {"cell": {"arguments": {}}, "lane": {}}, "hash": "x"}
    assert records.in_current_form(calculation) == calculation
    images = {"config": {"cell": {"model": {"depth": 20}, "optimizer": {}}, "lane": {}}, "hash": "x"}
    assert records.in_current_form(images) == images


@pytest.mark.parametrize("changed", [{}, {"model": {"window": 4}}, {"clip_norm": 0.5}])
def test_an_old_record_has_the_defaults_of_newer_fields(changed):
    """A record that has the field keeps its value."""
    new = record_of(OptimizerConfig(), changed)
    setting = new["config"]["cell"]
    old_model = {k: v for k, v in setting["model"].items() if k not in ("window", "mlp") or v != getattr(MODEL, k)}
    old_data = {k: v for k, v in setting["data"].items() if k != "order"}
    old_cell = {k: v for k, v in setting.items() if k != "clip_norm" or v is not None}
    config = new["config"] | {"cell": old_cell | {"model": old_model, "data": old_data}}
    old = new | {"config": config, "hash": records.config_hash(config)}
    assert old != new and records.in_current_form(old) == new


def record_of(optimizer, changed):
    """Returns a record of a language setting in the present form, with changed values."""
    setting = records.configuration(Setting(MODEL, DataConfig("a"), batch=2, steps=4, optimizer=optimizer))
    for name, values in changed.items():
        setting[name] = setting[name] | values if isinstance(values, dict) else values
    config = {"cell": setting, "lane": {"seed": 0}}
    return {"config": config, "hash": records.config_hash(config), "outcome": {"status": "finished"}}
