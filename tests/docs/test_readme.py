"""README and docs: code runs, commands parse, links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import lvp
from lvp import declarations
from lvp.cli import main
from lvp.sweeps.__main__ import parser

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def doors():
    """(install command, language, code) of each numbered section of the README."""
    sections = re.findall(r"\n## \d\. .*?(?=\n## )", README.read_text(), flags=re.DOTALL)
    parts = [re.findall(r"```(sh|python)\n(.*?)```", section, flags=re.DOTALL) for section in sections]
    return [(install, language, code) for (_, install), (language, code) in parts]


def run_in(directory, *command):
    """Runs a command as after `export PYTHONPATH` in a clone. Returns its output."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {"PATH": path, "PYTHONPATH": str(ROOT), "LVP_CACHE": str(directory / "cache"), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=directory, env=os.environ | variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_front_page_is_short():
    lines = README.read_text().splitlines()
    assert len(lines) <= 120
    assert [line.split()[:2] for line in blocks(README, "sh")[0].splitlines()] == [["make", "figure"], ["make", "test"]]
    assert len(doors()) == 3
    for install, _, code in doors():
        assert install.startswith("pip install -e ") and len(code.splitlines()) <= 10


def test_the_optax_door_runs_in_an_empty_directory(tmp_path):
    _, _, code = doors()[0]
    out = run_in(tmp_path, sys.executable, "-c", code)
    assert "embedding/embedding" in out and "head/kernel" in out


@pytest.mark.slow
def test_the_sweep_door_runs_in_an_empty_directory(tmp_path):
    _, _, code = doors()[1]
    out = run_in(tmp_path, "bash", "-ec", code)
    assert "12 of 12 runs have a record" in out
    assert (tmp_path / "runs" / "first" / "figure.png").is_file()


@pytest.mark.slow
def test_the_notebook_door_runs_in_an_empty_directory(tmp_path):
    _, _, code = doors()[2]
    out = run_in(tmp_path, sys.executable, "-c", code + "\nassert width_vocab.figure().get_axes()")
    assert "slope of ln(best η_E)" in out


@pytest.mark.slow
def test_the_page_on_transfer_runs(capsys):
    exec("\n".join(blocks(ROOT / "docs" / "transfer.md", "python")), {})
    out = capsys.readouterr().out
    assert "residual branches × 0.25" in out and "block_3/mlp/up/kernel" in out
    page = (ROOT / "docs" / "transfer.md").read_text()
    for rule, ratios, rates in re.findall(r"^(lvp|mup) (None|1) \[(.*)\]$", out, flags=re.MULTILINE):
        row = re.search(rf"^\| `{rule}`{', `ratios=1`' * (ratios == '1')} \|.*$", page, flags=re.MULTILINE)
        shown = [float(cell) for cell in row.group().strip("| ").split("|")[2:]]
        assert shown == pytest.approx([float(rate) for rate in rates.split(", ")]), row.group()


def test_the_page_for_users_of_mup_runs(capsys):
    exec("\n".join(blocks(ROOT / "docs" / "mup.md", "python")), {})
    assert re.search(r"embedding/embedding .* 0\.003 ", capsys.readouterr().out)


def test_the_page_on_roles_runs(capsys):
    exec("\n".join(blocks(ROOT / "docs" / "roles.md", "python")), {})
    out = capsys.readouterr().out
    assert all(path in out for path in ("wte", "layer_0/w", "lm_head", "router"))


@pytest.mark.slow
def test_the_page_on_optimizers_runs(capsys):
    """It has a snippet for every optimizer."""
    code = "\n".join(blocks(ROOT / "docs" / "optimizers.md", "python"))
    exec(code, {})
    assert "block_0/mlp/up/kernel" in capsys.readouterr().out
    transforms = {"adamw", "lion_a", "lion_ar", "rotational_adamw", "coupled_adam", "sign_sgd", "trapezoid"}
    for name in (*transforms, "scale_by_representation_change"):
        assert f"optim.{name}" in code


@pytest.mark.parametrize("framework", ["Flax Linen", "Flax NNX", "Equinox"])
def test_a_script_changes_in_five_lines_and_trains(framework, capsys):
    section = (ROOT / "docs" / "frameworks.md").read_text().split(f"\n## {framework}\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert sum(line.endswith("  # lvp") for line in code.splitlines()) == 5
    names = {"__name__": "script"}
    exec(code, names)
    assert "logits" in capsys.readouterr().out
    assert names["losses"][-1] < 0.9 * names["losses"][0]


def test_the_page_on_frameworks_lists_the_declarations():
    page = (ROOT / "docs" / "frameworks.md").read_text()
    constants = {name for name in vars(declarations) if name.isupper() and not name.startswith("_")}
    assert constants == set(re.findall(r"`([A-Z][A-Z0-9_]+)`", page.split("## Public models")[1]))
    exec("import optax\n" + "\n".join(blocks(ROOT / "docs" / "frameworks.md", "python")[-2:]), {})


def commands(page) -> list[tuple[str, list[str]]]:
    """(program, words) of the page's command lines."""
    lines = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("python -m ")]
    return [(program, rest) for _, _, program, *rest in words]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_parses(page):
    for program, words in commands(page):
        if program in ("lvp", "lvp.sweeps"):
            (main.parser if program == "lvp" else parser)().parse_args(words)


def test_commands_are_recognised():
    """Control: without commands, the test above would pass without checking anything."""
    known = [(program, words[0]) for page in PAGES for program, words in commands(page) if words]
    assert len(known) >= 40
    for command in ("run", "resume", "status", "figure", "track", "report"):
        assert ("lvp.sweeps", command) in known
    for command in ("recommend", "table", "coordinates", "plan", "train", "tokenize"):
        assert ("lvp", command) in known


def anchors(page):
    """The anchors of a page's headings: lower case, without punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_lead_somewhere(page):
    for path, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
        if path.startswith("https://arxiv.org/abs/"):  # external links are not opened, since tests have no network
            continue
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"


def test_versions_agree():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, flags=re.MULTILINE)[1] == lvp.__version__
    assert f"## Unreleased ({lvp.__version__})" in (ROOT / "CHANGELOG.md").read_text() or (
        f"## {lvp.__version__} " in (ROOT / "CHANGELOG.md").read_text()
    )


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"^docs/(\w+)$", (ROOT / "docs" / "navigation.md").read_text(), flags=re.MULTILINE))
    assert listed == {page.stem for page in (ROOT / "docs").glob("*.md")} - {"navigation"}
    tutorials = re.findall(r"^(notebooks/\w+)$", (ROOT / "docs" / "navigation.md").read_text(), flags=re.MULTILINE)
    assert tutorials == sorted(f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb"))
