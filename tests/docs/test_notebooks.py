"""Tests of the notebooks. Source and .ipynb agree. Each notebook runs in a new kernel at small sizes. Committed outputs
contain figures, and no path or name of a machine. In Colab, the setup cell keeps the installed jax."""

import functools
import importlib.util
import re
import socket
import subprocess
import zipfile
from importlib.metadata import version
from pathlib import Path

import jupytext
import nbformat
import pytest
from jupytext.compare import NotebookDifference, compare_notebooks

from lvp.training import records
from notebooks import build

NAMES = build.names()
GITHUB = "https://github.com/owner/name"
ELSEWHERE = "https://git.example.org/owner/name"
TINY = {"layers": 1, "context": 16, "head_dim": 8, "vocab_per_width": 20, "steps": 20, "seeds": (0,)}
SMALL = {
    "01_choose_an_embedding_lr": {"width": 512, "vocab": 8192, "small_width": 128},
    "02_optimum_vs_width": {
        "preset": "smoke",
        "changes": TINY | {"widths": (16, 24), "rates": (0.01, 0.03, 0.1)},
        "options": {"threads": 1},
    },
    "03_optimizers_and_warmup": {"steps": 20, "weights": 200},
    "04_why_embeddings_drift": {"steps": 40, "vocab": 64, "width": 8, "batch": 16},
    "05_plan_a_1b_run_on_a_tpu_slice": {
        "compile_here": False,
        "small": "layers=1 width=64 vocab=256 context=16",
        "meshes": ["fsdp=8"],
    },
}
LOCAL_PATH = re.compile(rf"(?<![\w.:/])/(?:tmp|home|root|Users|usr|opt|var|mnt|content)\b|{re.escape(str(build.ROOT))}")


def committed(name):
    return nbformat.read(build.HERE / f"{name}.ipynb", as_version=4)


def text_of(notebook):
    """Returns the sources and the text outputs, without pictures."""
    outputs = [text for kind, text in build.outputs(notebook) if not kind.startswith("image/")]
    return "\n".join([*(cell.source for cell in notebook.cells), *outputs])


def pictures(notebook):
    return [text for kind, text in build.outputs(notebook) if kind == "image/png"]


@pytest.mark.parametrize("name", NAMES)
def test_source_and_ipynb_agree(name):
    notebook = build.notebook(name)
    nbformat.validate(committed(name))
    compare_notebooks(committed(name), notebook, fmt="py:percent")
    assert [cell.id for cell in committed(name).cells] == [cell.id for cell in notebook.cells]
    notebook.cells[-1].source += " and more"
    with pytest.raises(NotebookDifference):
        compare_notebooks(committed(name), notebook, fmt="py:percent")


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_explanations_and_parameters(name):
    notebook = build.notebook(name)
    assert notebook.cells[0].cell_type == "markdown" and notebook.cells[0].source.startswith("# ")
    assert len(notebook.cells[0].source) > 200
    tags = [tag for cell in notebook.cells for tag in cell.metadata.get("tags", ())]
    assert tags.count("parameters") == tags.count("setup") == 1
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    names = {}
    exec(cell.source, names)
    assert SMALL[name].keys() <= names.keys()  # setting an unknown parameter has no effect


@pytest.mark.parametrize("name", NAMES)
def test_committed_outputs_are_complete_and_free_of_local_paths(name):
    notebook = committed(name)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    kinds = {kind for kind, _ in build.outputs(notebook)}
    assert "image/png" in kinds and not kinds & {"stderr", "error"}
    assert (build.HERE / f"{name}.ipynb").stat().st_size < 400_000
    assert not LOCAL_PATH.search(text_of(notebook)) and socket.gethostname() not in text_of(notebook)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert all(set(cell.metadata) <= {"tags"} for cell in notebook.cells)


def test_local_paths_are_detected():
    assert LOCAL_PATH.search("figure: /tmp/x/figure.png") and LOCAL_PATH.search(f"at {build.ROOT}")
    assert LOCAL_PATH.search("'/home/me/lvp'") and not LOCAL_PATH.search(
        "experiments/results and docs/tmp, https://a.b/tmp"
    )


@pytest.fixture(scope="module")
def kernels(cache):
    """Makes kernels use the cache of the other tests and the CPU."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LVP_CACHE", str(cache))
        patched.setenv("JAX_PLATFORMS", "cpu")
        yield


@pytest.fixture(scope="module")
def small_run(kernels, tmp_path_factory):
    """Returns a function that runs a notebook at its small size, once per notebook, and the directory of its sweep."""
    out = tmp_path_factory.mktemp("notebooks") / "out"
    return functools.cache(lambda name: build.executed(build.notebook(name), SMALL[name] | _out(name, out))), out


def _out(name, out):
    return {"out": str(out)} if name.startswith("02") else {}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_at_small_sizes(name, small_run):
    run, _ = small_run
    assert len(pictures(run(name))) == len(pictures(committed(name)))


@pytest.mark.slow
def test_runs_are_trained_and_drawn_while_they_finish(small_run):
    run, out = small_run
    notebook = run("02_optimum_vs_width")
    assert len(records.read(out / "records")) == 6
    (drawing,) = [cell for cell in notebook.cells if "watch=draw" in cell.source]
    assert [kind for output in drawing.outputs for kind in output.data] == ["text/plain", "image/png"]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_unchanged(name, kernels, tmp_path):
    build.executed(build.notebook(name), _out(name, tmp_path / "out"))


# --- the repository's address -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_sources_contain_the_configured_address(name):
    text = (build.HERE / f"{name}.py").read_text()
    assert build.source(text, name, build.address()) == text


def test_the_address_is_defined_in_one_place(tmp_path):
    (tmp_path / "with").write_text(f'[project]\nname = "x"\n[project.urls]\nRepository = "{GITHUB}/"\n')
    (tmp_path / "without").write_text('[project]\nname = "x"\n')
    assert build.address(tmp_path / "with") == GITHUB and build.address(tmp_path / "without") == ""


@pytest.mark.parametrize("name", NAMES)
def test_a_badge_appears_only_with_an_address_to_open(name):
    text = (build.HERE / f"{name}.py").read_text()
    without, on_github, elsewhere = (build.source(text, name, address) for address in ("", GITHUB, ELSEWHERE))
    assert "colab" not in without.lower() and "git+" not in without
    badge = jupytext.reads(on_github, "py:percent").cells[1]
    assert f"colab.research.google.com/github/owner/name/blob/main/notebooks/{name}.ipynb" in badge.source
    assert badge.cell_type == "markdown" and build.badge(GITHUB + ".git", name) == build.badge(GITHUB, name)
    assert "colab.research" not in elsewhere and f"{ELSEWHERE}.git" in elsewhere
    # Every address can be replaced by every other.
    assert build.source(on_github, name, "") == build.source(elsewhere, name, "") == without
    assert build.source(without, name, GITHUB) == build.source(elsewhere, name, GITHUB) == on_github


def run_setup(address, directory, monkeypatch, installed=True):
    """Runs the setup cell in `directory` without its commands. Returns these commands."""
    commands = []
    monkeypatch.chdir(directory)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", lambda command, **_: commands.append([str(word) for word in command]))
        patched.setattr(importlib.util, "find_spec", lambda name: installed or None)
        exec(build.setup(address), {})
    return commands


def test_with_lvp_nothing_is_installed(tmp_path, monkeypatch):
    assert run_setup(GITHUB, tmp_path, monkeypatch) == run_setup("", tmp_path, monkeypatch) == []


def test_the_setup_needs_lvp_or_an_address(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="needs lvp: pip install"):
        run_setup("", tmp_path, monkeypatch, installed=False)


def wheel(folder: Path, name: str, number: str, needs: str = "") -> None:
    """Writes an empty package as a wheel."""
    info = f"{name}-{number}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n{needs}")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
def test_in_colab_the_installed_jax_is_kept(tmp_path, monkeypatch):
    (install,) = run_setup(GITHUB, tmp_path, monkeypatch, installed=False)
    assert install[-1] == f"lvp[lab] @ git+{GITHUB}.git"
    assert install[1:4] == ["-m", "pip", "install"] and not {"-U", "--upgrade", "--pre"} & set(install)
    pins = (tmp_path / "kept.txt").read_text().split()
    assert sorted(pins) == [f"{package}=={version(package)}" for package in ("jax", "jaxlib")]
    # With the constraint, pip refuses a requirement that needs another jax. Without it, pip would replace jax.
    wheel(tmp_path, "jax", "999.0")
    wheel(tmp_path, "wants", "1.0", "Requires-Dist: jax>=999\n")
    offline = [*install[:-1], "wants", "--dry-run", "--no-index", "--find-links", "."]
    offline.remove("--quiet")
    constraint = offline.index("--constraint")
    constrained = subprocess.run(offline, capture_output=True, text=True)
    unconstrained = subprocess.run(offline[:constraint] + offline[constraint + 2 :], capture_output=True, text=True)
    assert constrained.returncode != 0 and "Would install" not in constrained.stdout
    assert f"(constraint) jax=={version('jax')}" in constrained.stdout + constrained.stderr
    assert unconstrained.returncode == 0 and "jax-999.0" in unconstrained.stdout
