"""Recommendations as Python code."""

from typing import TYPE_CHECKING, Any

from lvp.parametrization.axes import SIZES
from lvp.parametrization.rules import PAPER_RULES

if TYPE_CHECKING:
    from lvp.parametrization.recommend import Recommendation

DECLARATIONS = "declarations = []  # of your own model: [lvp.roles.Declaration(PATTERN, ROLE), …], see docs/roles.md"


def snippet(advice: "Recommendation") -> str:
    """Returns Python code that defines the optimizer `tx` and `init_std` of a recommendation."""
    lines = _transfer(advice) if advice.moves_axes else _parametrized(advice)
    return "\n".join(
        [
            "import optax",
            "",
            *lines,
            "init_std = {role: tx.table[role].init_std for role in tx.table}  # gains start at 1, biases at 0",
            "# print(optim.describe(tx, params)) says what every parameter of a model gets",
        ]
    )


def _factory(advice: "Recommendation") -> tuple[list[str], list[str]]:
    """Lines that define the factories, and the argument `factory` with the options of AdamW."""
    changed = advice.tuned != {"b1": 0.9, "b2": 0.999, "eps": 1e-8}  # the defaults of optax.adamw
    options = [f"{name}={value!r}" for name, value in advice.tuned.items()] if changed else []
    if not PAPER_RULES[advice.rule].muon:
        return [], ["optax.adamw", *options]
    adam = f"functools.partial(optax.adamw, {', '.join(options)})" if options else "optax.adamw"
    imports = ["import functools"] * bool(options) + ["from lvp.roles import ROLES", ""]
    return [*imports, f'factories = dict.fromkeys(ROLES, {adam}) | {{"hidden": optax.contrib.muon}}'], ["factories"]


def _parametrized(advice: "Recommendation") -> list[str]:
    """A call of `optim.parametrized` at the rate of this model."""
    shape = f"width={advice.width}, vocab={advice.vocab}"
    if advice.kappa not in (None, 1.0):
        shape += f", kappa={advice.kappa:.6g}"
    if advice.token_rows != "plain":
        shape += f', token_rows="{advice.token_rows}"'
    lines, rule = ["from lvp import optim"], f'"{advice.rule}", {shape}'
    if advice.embedding_lr is not None:
        ratio = f"{advice.table['embedding'].lr_multiplier:.6g}"
        lines += ["from lvp.parametrization import table", ""]
        lines += [f'rule = table({rule}, normalize="hidden")']
        lines += [f"rule = rule.with_multipliers(embedding={ratio}, position={ratio})  # as tuned"]
        rule = "rule"
    else:
        lines.append("")
    decay = "" if advice.weight_decay is None else f"weight_decay={advice.weight_decay:.6g}, "
    settings = f"learning_rate=learning_rate, {decay}declarations=declarations"
    factories, (factory, *options) = _factory(advice)
    return [
        *lines,
        *factories,
        f"learning_rate = {advice['hidden'].learning_rate:.6g}  # of the hidden matrices; or a schedule",
        DECLARATIONS,
        "tx = optim.parametrized(",
        f"    {', '.join([factory, rule, settings, *options])}",
        ")",
    ]


def _transfer(advice: "Recommendation") -> list[str]:
    """A call of `optim.transfer` at the rate of the smaller model."""
    moved = [axis for axis, size in SIZES.items() if getattr(advice.target, size) is not None]
    moved += [axis for axis in ("decay", "epsilon") if advice.axes[axis] != "none"]
    settings: dict[str, Any] = {"base": advice.base, "target": advice.target, "rule": advice.rule}
    settings["axes"] = {axis: advice.axes[axis] for axis in moved}
    if advice.embedding_lr is not None:
        settings["embedding_ratio"] = float(f"{advice.embedding_lr / advice.hidden_lr:.6g}")
    if advice.kappa not in (None, 1.0):
        settings["kappa"] = advice.kappa
    if advice.token_rows != "plain":
        settings["token_rows"] = advice.token_rows
    if advice.weight_decay is not None:
        settings["weight_decay"] = advice.weight_decay
    factories, (factory, *options) = _factory(advice)
    return [
        "from lvp import optim",
        "from lvp.parametrization import Shape",
        "",
        *factories,
        f"learning_rate = {advice.hidden_lr:.6g}  # of the hidden matrices of the smaller model; or a schedule",
        DECLARATIONS,
        "tx = optim.transfer(",
        f"    {factory},",
        "    learning_rate=learning_rate,",
        "    declarations=declarations,",
        *(f"    {name}={value!r}," for name, value in settings.items()),
        *(f"    {option}," for option in options),
        ")",
    ]
