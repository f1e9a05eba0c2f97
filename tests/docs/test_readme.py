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
    """With a model of the width and the vocabulary that the snippet names."""
    code = "\n".join(blocks(ROOT / "README.md", "python"))
    ((width, vocab),) = re.findall(r"parametrized\(.*width=(\d+), vocab=(\d+)", code)
    model = decoder(DecoderConfig(vocab=int(vocab), width=int(width)))

    def follow(params):
        names = {"params": params}
        exec(code, names)
        updates, _ = names["tx"].update(params, names["state"], params)
        return names["params"], updates

    # Traced, since the model's arrays would take a gigabyte.
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert jax.eval_shape(follow, params) == (params, params)


def commands(page) -> list[tuple[str, list[str]]]:
    """(program, words) of the page's command lines."""
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    words = [shlex.split(line, comments=True) for line in lines if line.startswith("python -m ")]
    return [(program, rest) for _, _, program, *rest in words]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_parses(page):
    for program, words in commands(page):
        if program in ("lvp", "sweeps"):
            (main.parser if program == "lvp" else parser)().parse_args(words)


def test_commands_are_recognised():
    """Else the test above would pass for nothing."""
    known = [(program, words[0]) for page in PAGES for program, words in commands(page) if words]
    assert len(known) >= 40
    for command in ("run", "resume", "status", "figure", "track", "report"):
        assert ("sweeps", command) in known
    for command in ("recommend", "table", "coordinates", "plan", "tokenize"):
        assert ("lvp", command) in known


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("https://arxiv.org/abs/"):  # the one place outside; there is no network here
            assert (page.parent / target).exists(), target
