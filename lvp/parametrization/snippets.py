"""Recommendations as Python code."""

from typing import TYPE_CHECKING, Any

from lvp.parametrization import row_multiplier
from lvp.parametrization.axes import SIZES
from lvp.parametrization.rules import ADAM_RMS, PAPER_RULES
from lvp.parametrization.scaling import LOOKUPS

if TYPE_CHECKING:
    from lvp.parametrization.recommend import Recommendation


def snippet(advice: "Recommendation") -> str:
    """Returns Python code that makes the optimizer `tx` of a recommendation and draws the model's `params` again."""
    imports, lines = _transfer(advice) if advice.moves_axes else _parametrized(advice)
    drawn = "params = optim.initialize(tx, params, jax.random.key(0))  # optim.describe(tx, params) shows them"
    imports = ["import jax", "import optax", "from lvp import optim", *imports]
    imports.sort(key=lambda line: (line.startswith("from"), line))
    return "\n".join([*imports, "", *_model(advice), *lines, drawn])


def _model(advice: "Recommendation") -> list[str]:
    """A comment with the factors that the model itself applies, if there are any."""
    rows = {advice.embedding.role: "token rows"}
    factors = [
        f"{rows.get(r.role, r.role)} × {r.forward_multiplier:.6g}" for r in advice.roles if r.forward_multiplier != 1.0
    ]
    factors += [f"logits × {r.head_multiplier:.6g}" for r in advice.roles if r.head_multiplier != 1.0]
    if advice.token_rows == "normalized":
        factors.append("embedding / RMS of the row")
    if advice.table.branch_multiplier != 1.0:
        factors.append(f"residual branches × {advice.table.branch_multiplier:.6g}")
    return [f"# Your model multiplies outputs: {', '.join(factors)}"] if factors else []


def _declarations(advice: "Recommendation") -> str:
    role = '"tied"' if advice.tied else "ROLE"
    return f"declarations = []  # [lvp.roles.Declaration(PATTERN, {role}), …] of your model, see docs/roles.md"


def _factory(advice: "Recommendation") -> tuple[list[str], list[str], list[str]]:
    """Imports, lines that define the factories, and the argument `factory` with the options of AdamW."""
    changed = advice.tuned != {"b1": 0.9, "b2": 0.999, "eps": 1e-8}  # the defaults of optax.adamw
    options = [f"{name}={value!r}" for name, value in advice.tuned.items()] if changed else []
    of_rule = PAPER_RULES[advice.rule].muon
    if not of_rule and advice.optimizer != "muon":
        return [], [], ["optax.adamw", *options]
    adam = f"functools.partial(optax.adamw, {', '.join(options)})" if options else "optax.adamw"
    imports = ["import functools"] * changed + ["from lvp.roles import ROLES"]
    lines = [f'factories = dict.fromkeys(ROLES, {adam}) | {{"hidden": optax.contrib.muon}}']
    if not of_rule:
        rate = f"{advice.adam_lr:.6g} = {advice.hidden_lr:g} / ({ADAM_RMS} √{advice.width})"
        lines.append(f"# {rate}, the rate of Adam with updates of Muon's size")
        options = [f'rates={{"hidden": {advice.hidden_lr:g}}}']
    return imports, lines, ["factories", *(options if not of_rule else [])]


def _parametrized(advice: "Recommendation") -> tuple[list[str], list[str]]:
    """Imports, and a call of `optim.parametrized` at the rate of this model."""
    imports, lines, (factory, *options) = _factory(advice)
    size, rate = f"width={advice.width}, vocab={advice.vocab}", f"{advice.adam_lr:.6g}"
    settings = [] if advice.weight_decay is None else [f"weight_decay={advice.weight_decay:.6g}"]
    arguments = [factory, f'"{advice.rule}"', rate, size, *settings]
    if own := _own_table(advice, advice.embedding.learning_rate / advice.adam_lr):
        imports = ["from lvp.parametrization import table", *imports]
        lines = [*lines, f'rates = table("{advice.rule}", {size}, {own})']
        arguments = [factory, "rates", rate, *settings]
    call = ", ".join([*arguments, "declarations=declarations", *options])
    return imports, [*lines, _declarations(advice), f"tx = optim.parametrized({call})"]


def _own_table(advice: "Recommendation", ratio: float) -> str:
    """The arguments of `table` and `scale` beyond rule and sizes; `ratio` is the embedding's over the hidden rate."""
    own: dict[str, Any] = {}
    if advice.embedding_lr is not None:
        own["ratios"] = dict.fromkeys(LOOKUPS, float(f"{ratio:.6g}"))
    elif row_multiplier(advice.token_rows, advice.width) != 1.0:
        own["ratios"] = {"embedding": float(f"{ratio:.6g}")}
    if advice.kappa not in (None, 1.0):
        own["kappa"] = float(f"{advice.kappa:.6g}")
    if advice.token_rows != "plain":
        own["token_rows"] = advice.token_rows
    if advice.tied:
        own["tied"] = True
    return ", ".join(f"{name}={value!r}" for name, value in own.items())


def _transfer(advice: "Recommendation") -> tuple[list[str], list[str]]:
    """Imports, and a call of `optim.transfer` at the rate of the smaller model."""
    imports, lines, (factory, *options) = _factory(advice)
    moved = [axis for axis, size in SIZES.items() if getattr(advice.target, size) is not None]
    moved += [axis for axis in ("decay", "epsilon") if advice.axes[axis] != "none"]
    rates = (advice.embedding.base_learning_rate, advice["hidden"].base_learning_rate)
    assert rates[0] is not None and rates[1] is not None  # there is a base
    own = _own_table(advice, rates[0] / rates[1])
    settings = [] if advice.weight_decay is None else [f"weight_decay={advice.weight_decay!r}"]
    call = [factory, "scaling", f"{rates[1]:.6g}", *settings, "declarations=declarations", *options]
    return ["from lvp.parametrization.scaling import Shape, scale", *imports], [
        *lines,
        "scaling = scale(",
        f"    {advice.base!r},",
        f"    {advice.target!r},",
        f'    "{advice.rule}",',
        f"    axes={ {axis: advice.axes[axis] for axis in moved} },",
        *([f"    {own},"] if own else []),
        ")",
        _declarations(advice),
        f"tx = optim.transfer({', '.join(call)})",
    ]
