"""A sweep that an older version began is refused in one line: its lanes would be trained again under other hashes."""

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
    """The directory of a sweep whose manifest has format 1, with the digest that its version wrote."""
    out = tmp_path / "out"
    config = experiments.to_dict(experiments.configured("width_vocab", "smoke", VALUES))
    Manifest(out, "width_vocab", "smoke", config, {}).begin()
    content = json.loads((out / "manifest.json").read_text())
    assert content.pop("format") == manifest.FORMAT == 2 and records.FORMAT == 1
    del content["digest"]
    content["format"] = 1
    (out / "manifest.json").write_text(json.dumps(content | {"digest": records.config_hash(content)}))
    return out


@pytest.mark.parametrize(
    "call",
    [api.resume, api.status, results.publish, lambda out: sweeps.run("width_vocab", "smoke", out=out, **VALUES)],
    ids=["resume", "status", "publish", "run"],
)
def test_a_sweep_of_an_older_version_is_refused_in_one_line(older, call, monkeypatch, tmp_path):
    monkeypatch.setenv("LVP_CACHE", str(tmp_path / "cache"))
    before = (older / "manifest.json").read_bytes()
    with pytest.raises(InputError) as refused:
        call(older)
    message, said = str(refused.value), f"{older} was begun by an older version of lvp (manifest format 1"
    assert message.startswith(said) and "\n" not in message
    assert "start a new directory" in message and "publish" in message
    assert (older / "manifest.json").read_bytes() == before


def test_a_newer_format_is_said_to_be_newer(older):
    content = json.loads((older / "manifest.json").read_text()) | {"format": 3}
    del content["digest"]
    (older / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="newer version"):
        Manifest.read(older)
