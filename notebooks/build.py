"""Makes the notebooks: `make notebooks`, or `python -m notebooks.build [NAME …]` from the root of a clone.

NN_name.py (jupytext's percent format) is the source of a notebook. `build` inserts the setup cell and the badge for the
repository's address, runs the notebook, and writes NN_name.ipynb with the outputs.
"""

import base64
import copy
import io
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BRANCH = "main"  # the branch that a badge opens
COLOURS = 256  # colours of a stored picture
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}

FIND = """\
from importlib.util import find_spec
"""
REFUSE = """\

if find_spec("lvp") is None:
    raise RuntimeError("This notebook needs lvp: pip install 'lvp[lab]', or pip install -e '.[lab]' in a clone.")
"""
INSTALL = """\

if find_spec("lvp") is None:  # as in Colab
    import subprocess
    import sys
    from importlib.metadata import distributions
    from pathlib import Path

    # The jax that is here fits the accelerator that is here: pip has to leave it as it is, or to refuse.
    kept = {{d.name: d.version for d in distributions() if d.name in ("jax", "jaxlib")}}
    Path("kept.txt").write_text("".join(f"{{name}}=={{version}}\\n" for name, version in kept.items()))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--constraint", "kept.txt"]
    subprocess.run([*pip, "lvp[lab] @ git+{address}"], check=True)
"""


def names() -> list[str]:
    return sorted(path.stem for path in HERE.glob("[0-9][0-9]_*.py"))


def address(pyproject: Path = ROOT / "pyproject.toml") -> str:
    """The repository's address from `[project.urls] Repository`; "" if it is not set."""
    return tomllib.loads(pyproject.read_text())["project"].get("urls", {}).get("Repository", "").rstrip("/")


def setup(address: str) -> str:
    """The code of the setup cell. Without lvp, the cell installs it if the address is set; otherwise it raises an error
    that names the remedy."""
    return FIND + (INSTALL.format(address=address.removesuffix(".git") + ".git") if address else REFUSE)


def badge(address: str, name: str) -> str:
    """Markdown of a badge that opens the notebook in Colab; "" unless the address is on GitHub."""
    match = re.fullmatch(r"https://github\.com/([^/]+/[^/]+?)(?:\.git)?", address)
    if match is None:
        return ""
    place = f"https://colab.research.google.com/github/{match[1]}/blob/{BRANCH}/notebooks/{name}.ipynb"
    return f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({place})"


def source(text: str, name: str, address: str) -> str:
    """The text of a NN_name.py with the badge and the setup cell for this address."""
    text = re.sub(r'# %% \[markdown\] tags=\["badge"\]\n.*?(?=# %%)', "", text, flags=re.DOTALL)
    made = f'# %% tags=["setup"]\n{setup(address)}\n'
    if words := badge(address, name):
        made = f'# %% [markdown] tags=["badge"]\n# {words}\n\n{made}'
    return re.sub(r'# %% tags=\["setup"\]\n.*?(?=# %%)', lambda _: made, text, count=1, flags=re.DOTALL)


def notebook(name: str):
    """The notebook of a source file, without outputs."""
    made = jupytext.reads((HERE / f"{name}.py").read_text(), "py:percent")
    made.metadata = nbformat.from_dict(METADATA)
    for i, cell in enumerate(made.cells):
        cell.id = f"{name[:2]}-{i:02}"  # jupytext's ids are random
    return made


def executed(made, parameters: Mapping[str, Any] | None = None, *, seconds: int = 600):
    """Runs a copy of a notebook in a new kernel and returns it. Raises nbclient's error if a cell fails.

    Args:
      parameters: values that are set after the cell with the tag `parameters`, as papermill does.
      seconds: the time limit of a cell.
    """
    made = copy.deepcopy(made)
    if parameters:
        (at,) = [i for i, cell in enumerate(made.cells) if "parameters" in cell.metadata.get("tags", ())]
        lines = [f"{key} = {value!r}" for key, value in parameters.items()]
        made.cells.insert(at + 1, new_code_cell("\n".join(lines), metadata={"tags": ["injected-parameters"]}))
    where = {"metadata": {"path": str(HERE)}}
    NotebookClient(made, timeout=seconds, kernel_name="python3", record_timing=False, resources=where).execute()
    return made


def outputs(made) -> Iterator[tuple[str, str]]:
    """Yields the kind (`stderr`, `error`, a MIME type, …) and the text of each output of a notebook."""
    for cell in made.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "stream":
                yield output.name, output.text
            elif output.output_type == "error":
                yield "error", "\n".join(output.traceback)
            else:
                yield from ((kind, text) for kind, text in output.data.items())


def cleaned(made):
    """The notebook as it is committed: with the format's metadata only, with smaller pictures, and without standard
    error."""
    made.metadata = nbformat.from_dict(METADATA)
    for cell in made.cells:
        cell.metadata = nbformat.from_dict({"tags": tags} if (tags := cell.metadata.get("tags")) else {})
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        for output in cell.get("outputs", ()):
            if "metadata" in output:
                output.metadata = nbformat.from_dict({})
            if "image/png" in output.get("data", {}):
                output.data["image/png"] = _smaller(output.data["image/png"])
    return made


def _smaller(picture: str) -> str:
    """A PNG in base64 with fewer colours."""
    from PIL import Image

    image, made = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB"), io.BytesIO()
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(made, "png", optimize=True)
    return base64.b64encode(made.getvalue()).decode()


def build(name: str) -> Path:
    path = HERE / f"{name}.py"
    path.write_text(source(path.read_text(), name, address()))
    made = executed(notebook(name))
    print(*(text for kind, text in outputs(made) if kind == "stderr"), file=sys.stderr, sep="", end="")
    made = cleaned(made)
    nbformat.write(made, path.with_suffix(".ipynb"))
    return path.with_suffix(".ipynb")


if __name__ == "__main__":
    for name in sys.argv[1:] or names():
        print(build(name).relative_to(ROOT))
