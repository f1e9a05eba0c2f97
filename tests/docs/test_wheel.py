"""The wheel contains lvp with its experiments and sweeps, and requires jax and optax alone."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from packaging.requirements import Requirement
from setuptools import find_packages

from tests.docs.sources import packaged

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OF_LAB = {
    *("flax", "orbax", "tensorflow_datasets", "array_record", "importlib_resources", "sentencepiece", "ray"),
    *("matplotlib", "pandas", "sklearn", "tqdm", "PIL"),
}
# Modules that need the lab: models, their training, and builders of TensorFlow Datasets.
LAB = re.compile(
    r"lvp\.(models\.(attention|decoder|export|layers)|training(\..*)?"
    r"|plan|cli\.train|coordinates\.decoder|data\.tokens\.tokenization)"
)
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "lvp").rglob("*.py")
    if path.name != "__main__.py"
)
SIZE = "--width 2048 --vocab 32064"
RUN = [f"recommend {SIZE} --hidden-lr 3e-4", f"table {SIZE}", f"table {SIZE} --json", "--help", "train --help"]
NEED_LAB = [
    "coordinates",
    "plan 1b --topology host:8",
    "train 1b --corpus zipf --vocab 64 --steps 1 --batch 1 --learning-rate 1 --out run",
    "tokenize text:README.md --vocab 300 --out tokens",
    f"recommend {SIZE} --hidden-lr 3e-4 --tokenizer a --corpus b",
]


def snippet():
    """The README's lines for a training script, which need jax and optax alone."""
    code = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)[0]
    return code + "\nupdates, _ = tx.update(params, state, params)\nassert updates.keys() == params.keys()"


def python(code, interpreter=sys.executable, **options):
    # A path of the user's could replace the installed package.
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"JAX_PLATFORMS": "cpu"}
    return subprocess.run([interpreter, "-c", code], capture_output=True, text=True, env=variables, **options)


def without_lab(code):
    """Runs the code in an interpreter that cannot import the lab's packages."""
    return python(f"import sys\nsys.modules |= dict.fromkeys({sorted(OF_LAB)!r})\n{code}", cwd=ROOT)


def test_setuptools_selects_the_files_of_the_wheel():
    setuptools = PROJECT["tool"]["setuptools"]
    packages = find_packages(ROOT, include=setuptools["packages"]["find"]["include"])
    patterns = [(name, ["*.py"]) for name in packages] + list(setuptools["package-data"].items())
    places = [(ROOT.joinpath(*package.split(".")), name) for package, names in patterns for name in names]
    found = {str(path.relative_to(ROOT)) for folder, name in places for path in folder.glob(name)}
    assert found == packaged()


def test_requirements():
    """Requirements have lower bounds. Upper bounds exclude only versions that are known to fail."""
    base, extras = PROJECT["project"]["dependencies"], PROJECT["project"]["optional-dependencies"]
    assert {Requirement(text).name for text in base} == {"jax", "optax"}
    bounded = {Requirement(text).name for text in base}
    for text in [*base, *sum(extras.values(), [])]:
        wanted = Requirement(text)
        operators = {part.operator for part in wanted.specifier}
        assert operators <= {">=", "!="} and (">=" in operators or wanted.name in bounded), text


@pytest.mark.slow
def test_commands_without_the_lab():
    code = "from lvp.cli.main import main\nsys.exit(main({words!r}))"
    for words in RUN:
        done = without_lab(code.format(words=shlex.split(words)))
        assert done.returncode == 0 and done.stdout and not done.stderr, (words, done.stderr)
    for words in NEED_LAB:
        done = without_lab(code.format(words=shlex.split(words)))
        assert done.returncode == 2 and not done.stdout
        assert re.fullmatch(r"lvp: .* needs .*: pip install 'lvp\[lab.*\]'\n", done.stderr), (words, done.stderr)


@pytest.mark.slow
def test_modules_without_the_lab():
    """Without the lab's packages, exactly the modules in `LAB` cannot be imported."""
    code = f"""
import importlib
for name in {MODULES!r}:
    before = set(sys.modules)
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        print(name)
        for partial in [module for module in sys.modules.keys() - before if module.startswith("lvp.")]:
            del sys.modules[partial]  # otherwise a later import would succeed without executing it
"""
    done = without_lab(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [name for name in MODULES if LAB.fullmatch(name)]


@pytest.mark.slow
def test_the_readme_without_the_lab():
    done = without_lab(snippet())
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_installed_wheel_runs_without_the_lab(tmp_path, monkeypatch):
    """Builds the wheel and installs it into a new environment, from pip's index as `make test` does."""
    monkeypatch.delenv("PYTHONPATH", raising=False)  # pip would find lvp there, and install nothing
    pip = ["-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, *pip, "wheel", "--no-deps", "-w", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == packaged()
    venv.create(tmp_path / "venv", with_pip=True)
    interpreter = tmp_path / "venv" / "bin" / "python"
    subprocess.run([interpreter, *pip, "install", wheel], check=True)
    done = python("import lvp; print(lvp.__file__)\n" + snippet(), interpreter, cwd=tmp_path)
    assert done.returncode == 0 and str(tmp_path) in done.stdout, done.stderr
    for words in RUN + NEED_LAB:
        lvp = subprocess.run([interpreter.with_name("lvp"), *shlex.split(words)], cwd=tmp_path, capture_output=True)
        assert lvp.returncode == (2 if words in NEED_LAB else 0), (words, lvp.stderr)


@pytest.mark.slow
def test_the_laboratory_of_the_wheel_runs_in_any_directory(tmp_path, monkeypatch):
    """A sweep and a notebook, with the files of the wheel, beside packages of the same names."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path / "installed", ROOT], check=True)
    here = tmp_path / "here"
    for name in ("experiments", "sweeps"):
        (here / name).mkdir(parents=True)
        (here / name / "__init__.py").write_text("raise SystemExit('imported')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    sweep = ["-m", "lvp.sweeps", "run", "width_vocab", "--preset", "smoke", "--executor", "local", "--out", "out"]
    for words in (["-c", "import lvp; assert 'installed' in lvp.__file__"], sweep):
        done = subprocess.run([sys.executable, *words], cwd=here, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert len(list((here / "out" / "records").iterdir())) == 12
    notebook = nbformat.read(ROOT / "notebooks" / "01_choose_an_embedding_lr.ipynb", as_version=4)
    NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(here)}}).execute()
