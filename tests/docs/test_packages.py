"""Wheel, sdist and container file. The slow test installs the packages that build and read them, from pip's index as
`make test` does."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.docs.sources import PARTS, packaged

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
LOOK = """
import lvp
from importlib.resources import files
print(lvp.__file__, lvp.__version__)
assert all((files("lvp") / name).is_file() for name in ("py.typed", "experiments/results/evidence.json"))
"""
READ_CONTAINER_FILE = """
import json, sys
from dockerfile_parse import DockerfileParser
print(json.dumps(DockerfileParser(sys.argv[1]).structure))
"""


def instructions(text):
    """Returns the pairs (instruction, value) of a container file, without comments and with joined lines."""
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in lines.splitlines() if line]


def problems(text):
    """Yields the paths, extras and build arguments of a container file that do not exist."""
    ignored = (ROOT / ".dockerignore").read_text().split()
    parts = instructions(text)
    arguments = {value.partition("=")[0] for name, value in parts if name == "ARG"}
    for name, value in parts:
        yield from (f"argument {word}" for word in re.findall(r"\$\{(\w+)\}", value) if word not in arguments)
        if name == "COPY":
            for path in shlex.split(value)[:-1]:
                if not (ROOT / path).exists() or f"!{path}" not in ignored:
                    yield f"path {path}"
    for extras in re.findall(r"EXTRAS=([\w,]+)", text):
        yield from (f"extra {extra}" for extra in extras.split(",") if extra not in EXTRAS)


def test_the_container_file_names_what_exists():
    text = (ROOT / "Dockerfile").read_text()
    assert not list(problems(text))
    assert {*re.findall(r"EXTRAS=([\w,]+)", text)} == {"lab", "lab,cuda", "lab,tpu"}


@pytest.mark.parametrize(
    "old, new, problem",
    [
        ("EXTRAS=lab,tpu", "EXTRAS=lab,tpus", "extra tpus"),
        ("COPY sweeps", "COPY docs", "path docs"),  # not sent to the builder
        ("COPY lvp", "COPY no-such", "path no-such"),
        ("[${EXTRAS}]", "[${EXTRA}]", "argument EXTRA"),
    ],
)
def test_an_error_in_the_container_file_is_noticed(old, new, problem):
    text = (ROOT / "Dockerfile").read_text()
    assert old in text and list(problems(text.replace(old, new))) == [problem]


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """Returns a copy of what the packages are built from. A build writes into its tree."""
    tree = tmp_path_factory.mktemp("tree") / "lvp"
    for name in ("lvp", *PARTS):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    return tree


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Returns the interpreter of a new environment with the packages that build and read the files."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "build", "twine", "dockerfile-parse", "setuptools>=77"], check=True)
    return python


@pytest.mark.slow
def test_wheel_and_sdist(tree, environment, tmp_path):
    subprocess.run([environment, "-m", "build", "--no-isolation", "--outdir", tmp_path, tree], check=True)
    (wheel,), (sdist,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    subprocess.run([environment, "-m", "twine", "check", "--strict", wheel, sdist], check=True)
    # `build` makes the wheel from the sdist, so the sdist is complete if the wheel is.
    of_wheel = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    of_sdist = {name.partition("/")[2] for name in tarfile.open(sdist).getnames()}
    assert of_wheel == packaged() < of_sdist
    for package in (wheel, sdist):
        folder = tmp_path / f"installed-{package.suffix}"
        pip = [environment, "-m", "pip", "--quiet", "install", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--target", folder, package], check=True)
        options = {"cwd": tmp_path, "env": {"PYTHONPATH": str(folder)}, "capture_output": True, "text": True}
        done = subprocess.run([environment, "-c", LOOK], **options)
        assert done.returncode == 0, done.stderr
        path, version = done.stdout.split()
        assert path.startswith(str(folder)) and version in package.name


@pytest.mark.slow
def test_a_library_reads_the_same_container_file(environment):
    words = [environment, "-c", READ_CONTAINER_FILE, ROOT / "Dockerfile"]
    structure = json.loads(subprocess.run(words, capture_output=True, text=True, check=True, cwd=sys.prefix).stdout)
    read = [(part["instruction"], part["value"]) for part in structure if part["instruction"] != "COMMENT"]
    assert [(name, value.split()) for name, value in read] == [
        (name, value.split()) for name, value in instructions((ROOT / "Dockerfile").read_text())
    ]
