"""Notebooks: source and .ipynb agree, run in an empty kernel at small sizes, contain figures and no traces of a
machine. The setup cell leaves jax alone in Colab."""

import functools
import os
import re
import socket
import subprocess
import sys
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
        "tier": "smoke",
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
MACHINE = re.compile(rf"(?<![\w.:/])/(?:tmp|home|root|Users|usr|opt|var|mnt|content)\b|{re.escape(str(build.ROOT))}")


def committed(name):
    return nbformat.read(build.HERE / f"{name}.ipynb", as_version=4)


def text_of(made):
    """Returns the sources and the text outputs, without pictures."""
    outputs = [text for kind, text in build.outputs(made) if not kind.startswith("image/")]
    return "\n".join([*(cell.source for cell in made.cells), *outputs])


def pictures(made):
    return [text for kind, text in build.outputs(made) if kind == "image/png"]


@pytest.mark.parametrize("name", NAMES)
def test_source_and_ipynb_agree(name):
    made = build.notebook(name)
    nbformat.validate(committed(name))
    compare_notebooks(committed(name), made, fmt="py:percent")
    assert [cell.id for cell in committed(name).cells] == [cell.id for cell in made.cells]
    made.cells[-1].source += " and more"
    with pytest.raises(NotebookDifference):
        compare_notebooks(committed(name), made, fmt="py:percent")


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_has_explanations_and_parameters(name):
    made = build.notebook(name)
    assert made.cells[0].cell_type == "markdown" and made.cells[0].source.startswith("# ")
    assert len(made.cells[0].source) > 200
    tags = [tag for cell in made.cells for tag in cell.metadata.get("tags", ())]
    assert tags.count("parameters") == tags.count("setup") == 1
    (cell,) = [cell for cell in made.cells if "parameters" in cell.metadata.get("tags", ())]
    names = {}
    exec(cell.source, names)
    assert SMALL[name].keys() <= names.keys()  # a parameter that does not exist would be set without effect


@pytest.mark.parametrize("name", NAMES)
def test_committed_outputs_are_complete_and_free_of_local_paths(name):
    made = committed(name)
    ran = [cell.execution_count for cell in made.cells if cell.cell_type == "code"]
    assert ran == list(range(1, len(ran) + 1))
    kinds = {kind for kind, _ in build.outputs(made)}
    assert "image/png" in kinds and not kinds & {"stderr", "error"}
    assert (build.HERE / f"{name}.ipynb").stat().st_size < 400_000
    assert not MACHINE.search(text_of(made)) and socket.gethostname() not in text_of(made)
    assert set(made.metadata) == {"kernelspec", "language_info"}
    assert all(set(cell.metadata) <= {"tags"} for cell in made.cells)


def test_local_paths_are_detected():
    assert MACHINE.search("figure: /tmp/x/figure.png") and MACHINE.search(f"at {build.ROOT}")
    assert MACHINE.search("'/home/me/lvp'") and not MACHINE.search("experiments/results and docs/tmp, https://a.b/tmp")


@pytest.fixture(scope="module")
def kernels(cache):
    """Gives kernels a cache that other tests have filled, and no accelerator."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LVP_CACHE", str(cache))
        patched.setenv("JAX_PLATFORMS", "cpu")
        yield


@pytest.fixture(scope="module")
def ran(kernels, tmp_path_factory):
    """Returns a function that runs a notebook once at its small size, and the directory of the runs that it trains."""
    out = tmp_path_factory.mktemp("notebooks") / "out"
    return functools.cache(lambda name: build.executed(build.notebook(name), SMALL[name] | _out(name, out))), out


def _out(name, out):
    return {"out": str(out)} if name.startswith("02") else {}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_at_small_sizes(name, ran):
    run, _ = ran
    assert len(pictures(run(name))) == len(pictures(committed(name)))


@pytest.mark.slow
def test_runs_are_trained_and_drawn_while_they_finish(ran):
    run, out = ran
    made = run("02_optimum_vs_width")
    assert len(records.read(out / "records")) == 6
    (live,) = [cell for cell in made.cells if "watch=draw" in cell.source]
    assert [kind for output in live.outputs for kind in output.data] == ["text/plain", "image/png"]


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
    bare, there, other = (build.source(text, name, address) for address in ("", GITHUB, ELSEWHERE))
    assert "colab" not in bare.lower() and "git clone" not in bare
    badge = jupytext.reads(there, "py:percent").cells[1]
    assert f"colab.research.google.com/github/owner/name/blob/main/notebooks/{name}.ipynb" in badge.source
    assert badge.cell_type == "markdown" and build.badge(GITHUB + ".git", name) == build.badge(GITHUB, name)
    assert "colab.research" not in other and f"{ELSEWHERE}.git" in other
    # Also the reverse, from any address to any other.
    assert build.source(there, name, "") == build.source(other, name, "") == bare
    assert build.source(bare, name, GITHUB) == build.source(other, name, GITHUB) == there


def run_setup(address, where, monkeypatch):
    """Runs the setup cell in a directory. Returns the commands that it would have executed."""
    given = []
    monkeypatch.chdir(where)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "run", lambda command, **_: given.append([str(word) for word in command]))
        patched.setattr(os, "chdir", lambda _: None)
        exec(build.setup(address), {})
    return given


def test_inside_a_clone_nothing_is_installed(monkeypatch):
    assert run_setup(GITHUB, build.HERE, monkeypatch) == []
    assert sys.path[0] == str(build.ROOT)


def test_without_a_clone_and_an_address_the_setup_reports_it(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match="from a clone"):
        run_setup("", tmp_path, monkeypatch)


def wheel(folder: Path, name: str, number: str, needs: str = "") -> None:
    """Writes an empty package as a wheel."""
    info = f"{name}-{number}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{number}-py3-none-any.whl", "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n{needs}")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def test_in_colab_the_installed_jax_is_kept(tmp_path, monkeypatch):
    clone, install = run_setup(GITHUB, tmp_path, monkeypatch)
    assert clone[:2] == ["git", "clone"] and f"{GITHUB}.git" in clone
    assert install[1:4] == ["-m", "pip", "install"] and not {"-U", "--upgrade", "--pre"} & set(install)
    kept = (tmp_path / "kept.txt").read_text().split()
    assert sorted(kept) == [f"{x}=={version(x)}" for x in ("jax", "jaxlib")]
    # pip refuses if only another jax satisfies the requirements. Without the constraint it would replace jax.
    wheel(tmp_path, "jax", "999.0")
    wheel(tmp_path, "wants", "1.0", "Requires-Dist: jax>=999\n")
    offline = [*install[:-1], "wants", "--dry-run", "--no-index", "--find-links", "."]
    offline.remove("--quiet")
    at = offline.index("--constraint")
    kept = subprocess.run(offline, capture_output=True, text=True)
    free = subprocess.run(offline[:at] + offline[at + 2 :], capture_output=True, text=True)
    assert kept.returncode != 0 and "Would install" not in kept.stdout
    assert f"(constraint) jax=={version('jax')}" in kept.stdout + kept.stderr
    assert free.returncode == 0 and "jax-999.0" in free.stdout
