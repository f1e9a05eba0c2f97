"""Recommendations as Python code."""

from typing import TYPE_CHECKING, Any

from lvp.parametrization.axes import SIZES
from lvp.parametrization.rules import PAPER_RULES
from lvp.parametrization.scaling import LOOKUPS

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
    size = f"width={advice.width}, vocab={advice.vocab}"
    own = _own_table(advice, advice.table["embedding"].lr_multiplier)
    factories, (factory, *options) = _factory(advice)
    settings = "declarations=declarations"
    if advice.weight_decay is not None:
        settings = f"weight_decay={advice.weight_decay:.6g}, {settings}"
    table = f'"{advice.rule}", learning_rate, {size}'
    lines = ["from lvp import optim"]
    if own:
        lines.append("from lvp.parametrization import table")
        factories = [*factories, f'rates = table("{advice.rule}", {size}, {own})']
        table = "rates, learning_rate"
    return [
        *lines,
        "",
        *factories,
        f"learning_rate = {advice['hidden'].learning_rate:.6g}  # of the hidden matrices; or a schedule",
        DECLARATIONS,
        "tx = optim.parametrized(",
        f"    {', '.join([factory, table, settings, *options])}",
        ")",
    ]


def _own_table(advice: "Recommendation", ratio: float | None) -> str:
    """The arguments of `table` and `scale` beyond rule and sizes; `ratio` is the embedding's over the hidden rate."""
    own: dict[str, Any] = {}
    if advice.embedding_lr is not None and ratio is not None:
        own["ratios"] = dict.fromkeys(LOOKUPS, float(f"{ratio:.6g}"))
    if advice.kappa not in (None, 1.0):
        own["kappa"] = float(f"{advice.kappa:.6g}")
    if advice.token_rows != "plain":
        own["token_rows"] = advice.token_rows
    return ", ".join(f"{name}={value!r}" for name, value in own.items())


def _transfer(advice: "Recommendation") -> list[str]:
    """A call of `optim.transfer` at the rate of the smaller model."""
    moved = [axis for axis, size in SIZES.items() if getattr(advice.target, size) is not None]
    moved += [axis for axis in ("decay", "epsilon") if advice.axes[axis] != "none"]
    ratio = None if advice.embedding_lr is None else advice.embedding_lr / advice.hidden_lr
    own = _own_table(advice, ratio)
    factories, (factory, *options) = _factory(advice)
    decay = [] if advice.weight_decay is None else [f"weight_decay={advice.weight_decay!r}"]
    arguments = [factory, "scaling", "learning_rate", *decay, "declarations=declarations", *options]
    return [
        "from lvp import optim",
        "from lvp.parametrization.scaling import Shape, scale",
        "",
        *factories,
        "scaling = scale(",
        f"    {advice.base!r},",
        f"    {advice.target!r},",
        f'    "{advice.rule}",',
        f"    axes={ {axis: advice.axes[axis] for axis in moved} },",
        *([f"    {own},"] if own else []),
        ")",
        f"learning_rate = {advice.hidden_lr:.6g}  # of the hidden matrices of the smaller model; or a schedule",
        DECLARATIONS,
        f"tx = optim.transfer({', '.join(arguments)})",
    ]
