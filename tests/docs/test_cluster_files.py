"""docs/cluster: Ray's launcher accepts the files, and every machine mounts the shared file system."""

from pathlib import Path

import jsonschema
import pytest
import yaml
from ray._private.accelerators import TPUAcceleratorManager
from ray.autoscaler._private.util import prepare_config, validate_config

FILES = sorted((Path(__file__).parents[2] / "docs" / "cluster").glob("*.yaml"))


def read(path):
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_ray_accepts_the_file(path):
    validate_config(prepare_config(read(path)))
    with pytest.raises(jsonschema.ValidationError):
        validate_config(prepare_config(read(path) | {"head_type": "head"}))
    with pytest.raises(ValueError, match="head_node_type"):
        validate_config(prepare_config(read(path) | {"head_node_type": "nobody"}))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_machines_mount_the_store_before_ray_starts(path):
    config = read(path)
    place = "/mnt/lvp"
    assert any("mount" in command and place in command for command in config["initialization_commands"])
    for role in ("head", "worker"):
        assert config[f"{role}_start_ray_commands"][-1].count(f"{place}/lvp/.venv/bin/ray start") == 1
    assert not any(config["available_node_types"][config["head_node_type"]]["resources"].values())


def test_ray_knows_the_tpu():
    (node,) = (n for n in read(FILES[-1])["available_node_types"].values() if "acceleratorType" in n["node_config"])
    assert TPUAcceleratorManager.is_valid_tpu_accelerator_type(node["node_config"]["acceleratorType"])
    assert node["resources"] == {"TPU": 8}
