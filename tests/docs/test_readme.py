"""README and docs: code runs, commands parse, links lead somewhere."""

import re
import shlex
from pathlib import Path

import jax
import pytest

from lvp.cli import main
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder
from sweeps.__main__ import parser

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), flags=re.DOTALL)


def test_the_optax_snippet_runs():
    code = "\n".join(blocks(ROOT / "README.md", "python"))
    assert code.count("parametrized(") == 1
    params = decoder(DecoderConfig(vocab=64, width=32)).init(jax.random.key(0))
    names = {"params": params}
    exec(code, names)
    updates, _ = names["tx"].update(params, names["state"], params)
    assert jax.tree.structure(updates) == jax.tree.structure(params)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_parses(page):
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            for program, made in (("sweeps", parser), ("lvp", main.parser)):
                if line.startswith(f"python -m {program} "):
                    made().parse_args(shlex.split(line, comments=True)[3:])


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("https://arxiv.org/abs/"):  # the one place outside; there is no network here
            assert (page.parent / target).exists(), target
