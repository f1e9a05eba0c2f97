"""Sweeps of another version give a one-line error. This version would train their lanes again, under other hashes."""

import json

import pytest

import experiments
import sweeps
from lvp.errors import InputError
from lvp.training import records
from sweeps.driver import api, manifest
from sweeps.driver.manifest import Manifest
from sweeps.reporting import results

VALUES = {"corpus": "zipf:1", "widths": "16", "seeds": "0", "layers": "1", "context": "16", "head_dim": "8"}


@pytest.fixture
def older(tmp_path):
    """Returns the directory of a sweep whose manifest has format 1 and a valid digest."""
    out = tmp_path / "out"
    config = experiments.to_dict(experiments.configured("width_vocab", "smoke", VALUES))
    Manifest(out, "width_vocab", "smoke", config, {}).begin()
    content = json.loads((out / "manifest.json").read_text())
    assert content["format"] == manifest.FORMAT == 2 and records.FORMAT == 1
    del content["digest"]
    content["format"] = 1
    (out / "manifest.json").write_text(json.dumps(content | {"digest": records.config_hash(content)}))
    return out


@pytest.mark.parametrize(
    "call",
    [api.resume, api.status, results.publish, lambda out: sweeps.run("width_vocab", "smoke", out=out, **VALUES)],
    ids=["resume", "status", "publish", "run"],
)
def test_a_sweep_of_an_older_version_gives_a_one_line_error(older, call, monkeypatch, tmp_path):
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    before = (older / "manifest.json").read_bytes()
    with pytest.raises(InputError) as error:
        call(older)
    message = str(error.value)
    assert message.startswith(f"{older} was begun by an older version of lvp (manifest format 1")
    assert "\n" not in message
    assert "start a new directory" in message and "publish" in message
    assert (older / "manifest.json").read_bytes() == before


def test_a_sweep_of_a_newer_version_gives_an_error_that_says_so(older):
    content = json.loads((older / "manifest.json").read_text()) | {"format": 3}
    del content["digest"]
    (older / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="newer version"):
        Manifest.read(older)
