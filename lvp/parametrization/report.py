"""Recommendations and tables of parametrizations as text, for the command line."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lvp.parametrization import Table, aligned
from lvp.parametrization import evidence as _evidence
from lvp.parametrization.axes import SIZES
from lvp.parametrization.token_frequencies import TokenFrequencies

if TYPE_CHECKING:
    from lvp.parametrization.recommend import Recommendation, RoleAdvice

KAPPA_ONE = "Interpolated was measured with κ = 1, not with the κ here."
LINE = 118  # characters
FAR = 4.0  # factor outside of the measured sizes from which a measurement is hardly relevant


def text(advice: "Recommendation", evidence: bool = False) -> str:
    """Returns a recommendation as text: rates and stds, warnings and code.

    Args:
      evidence: add the sources, the other rules, the decay over the training and the committed measurements.
    """
    rows = aligned(_rows(advice) if evidence else _short_rows(advice))
    warnings = [line for words in advice.warnings for line in textwrap.wrap(f"warning: {words}", LINE)]
    blocks = [[*_heading(advice), *rows], [*_sweep(advice, evidence), *warnings]]
    if evidence:
        blocks[0] += _symbols(advice)
        blocks += _training(advice)
        blocks += [[line for note in (*advice.notes, *_constants(advice)) for line in textwrap.wrap(note, LINE)]]
        blocks += [*_side_by_side(advice), *_measured(advice)]
    if advice.tokens is not None:
        blocks.append(_tokens(advice, advice.tokens))
    return "\n\n".join("\n".join(block) for block in [*blocks, advice.snippet.splitlines()])


def _short_rows(advice: "Recommendation") -> list[tuple[str, ...]]:
    """Rates, stds and, if they differ from the defaults, forward multipliers, λ and ε.

    Roles with equal numbers share a row.
    """
    by_numbers: dict[tuple[str, ...], list[str]] = {}
    for role in advice.roles:
        std = f"{role.init_std:.4g}" if role.init_std else "gains 1, biases 0"
        decay = f"{role.weight_decay:.4g}" if role.weight_decay else "–"
        numbers = (f"{role.learning_rate:.4g}", std, _forward(advice, role), decay, f"{role.epsilon:.3g}")
        by_numbers.setdefault(numbers, []).append(role.role)
    usual = (None, None, "× 1", "–", "1e-08")
    head = ("learning rate", "init std", "forward", "λ", "ε")
    shown = [i for i, each in enumerate(usual) if {numbers[i] for numbers in by_numbers} != {each}]
    rows = [("role", *(head[i] for i in shown))]
    return rows + [(", ".join(names), *(numbers[i] for i in shown)) for numbers, names in by_numbers.items()]


def _heading(advice: "Recommendation") -> list[str]:
    kappa = "" if advice.kappa is None else f", κ {advice.kappa:.4g}"
    size = f"{advice.rule}: width {advice.width}, vocab {advice.vocab}{kappa}"
    of = "Muon's rate" if advice.optimizer == "muon" else "the hidden rate"
    own = "" if advice.embedding_lr is None else f" and the embedding's {advice.embedding_lr:g}"
    if advice.from_width is None:
        return [f"{size}; from {of} {advice.hidden_lr:g} of this model"]
    lines = [f"{size}; from {of} {advice.hidden_lr:g}{own} of a model of {advice.base}"]
    if advice.embedding_lr is None and advice.rule != "sp":
        rate = advice.embedding.base_learning_rate
        lines.append(f"Its embedding rate is {rate:.4g} by the rule. If you tuned that rate, give --embedding-lr.")
    return lines


def _rows(advice: "Recommendation") -> list[tuple[str, ...]]:
    moved = advice.from_width is not None
    # The interpolated ratio is too long for a column.
    names = {role.formula: "ratio" for role in advice.roles if len(role.formula) > 12}
    lines = [("role", *([f"at {advice.from_width}"] if moved else []), "learning rate", "= " + _base(advice))]
    factors = [factor for role in advice.roles for factor in (role.forward_multiplier, role.head_multiplier)]
    multiplied = advice.token_rows != "plain" or any(factor != 1.0 for factor in factors)
    lines[0] += ("init std", "=", *(["forward"] if multiplied else []), "source of the rate")
    for role in advice.roles:
        words = names.get(role.formula, role.formula) + (" · axes" if advice.moves_axes else "")
        product = "× 1" if words == "1" else f"× {words} = {role.multiplier:.4g}"
        if role.role == "hidden" and advice.optimizer == "muon":
            product = "Muon's"
        init = (f"{role.init_std:.4g}", role.init_formula) if role.init_std else ("–", "gains 1, biases 0")
        small = [f"{role.base_learning_rate:.4g}"] if moved else []
        forward = [_forward(advice, role)] if multiplied else []
        lines.append((role.role, *small, f"{role.learning_rate:.4g}", product, *init, *forward, role.source))
    return lines


def _forward(advice: "Recommendation", role: "RoleAdvice") -> str:
    """The factor on a role's output in the forward pass."""
    lookup = role is advice.embedding
    logits = f", logits × {role.head_multiplier:.4g}" if role.head_multiplier != 1.0 else ""
    if lookup and advice.token_rows == "normalized":
        return "/ RMS" + logits
    root = "√d = " if lookup and advice.token_rows == "sqrt" else ""
    return f"× {root}{role.forward_multiplier:.4g}{logits}"


def _base(advice: "Recommendation") -> str:
    if advice.optimizer == "muon":
        return f"{advice.adam_lr:.4g} (Adam's unit) ×"
    return "hidden rate ×" if advice.from_width is None else f"rate at {advice.from_width} ×"


def _symbols(advice: "Recommendation") -> list[str]:
    formula = advice.embedding.formula
    values = f"d = {advice.width}, m = {advice.vocab}"
    if advice.from_width is not None:
        values += f", d₀ = {advice.from_width}, m₀ = {advice.from_vocab}"
    return [values + (f", ratio = {formula}" if len(formula) > 12 else "")]


def _constants(advice: "Recommendation") -> list[str]:
    if advice.embedding_lr is not None or advice.rule == "sp":
        return []
    if advice.from_width is not None or advice.optimizer == "muon":
        return []
    return ["With an embedding rate tuned on a smaller model, give it: --from-width, --hidden-lr, --embedding-lr."]


def _training(advice: "Recommendation") -> list[list[str]]:
    """A block with λ, ε, β and residual branches, if λ or steps are known or another axis is transferred."""
    if advice.weight_decay is None and advice.steps is None and not advice.moves_axes:
        return []
    b1, b2 = advice.betas
    branch = advice.table.branch_multiplier
    horizon = "" if advice.steps is None else f"; {advice.steps:.0f} steps"
    lines = [f"AdamW: β₁ {b1:.6g}, β₂ {b2:.6g}; residual branches × {branch:.4g}{horizon}"]
    if advice.moves_axes:
        transferred = {axis for axis in advice.axes if axis not in SIZES or getattr(advice.target, SIZES[axis])}
        rules = ((axis, name if axis in transferred else "not transferred") for axis, name in advice.axes.items())
        lines.append("rules: " + ", ".join(f"{axis} {name}" for axis, name in rules))
    rows: list[tuple[str, ...]] = [("role", "ε", "λ", "decay per step", "timescale", "left after the steps")]
    for role in advice.roles:
        shrinks = role.decay_per_step
        columns = ["–"] * 4
        if shrinks:
            left = "–" if advice.steps is None else f"{(1 - min(shrinks, 1.0)) ** advice.steps:.3g}"
            columns = [f"{role.weight_decay:.4g}", f"{shrinks:.3g}", f"{1 / shrinks:.4g} steps", left]
        rows.append((role.role, f"{role.epsilon:.3g}", *columns))
    if advice.weight_decay is None:
        rows = [row[:2] for row in rows]
    return [[*lines, *aligned(rows)]]


def _side_by_side(advice: "Recommendation") -> list[list[str]]:
    """A block with every rule of every axis that moves; all other axes stay as chosen."""
    if not advice.alternatives:
        return []
    head = ("axis", "rule", "hidden rate", "embedding rate", "λ ×", "ε ×", "1 − β ×", "branches ×", "source")
    rows: list[tuple[str, ...]] = [head]
    for other in advice.alternatives:
        names = ("hidden_lr", "embedding_lr", "hidden_decay", "hidden_epsilon", "beta", "branch_multiplier")
        numbers = [f"{getattr(other, name):.4g}" for name in names] if not other.refused else ["–"] * len(names)
        rows.append((other.axis, other.rule + " *" * other.chosen, *numbers, other.source))
    title = "Rules side by side (* chosen; λ and ε of hidden matrices; –: not together with the other rules):"
    return [[title, *aligned(rows)]]


def _sweep(advice: "Recommendation", evidence: bool) -> list[str]:
    """The embedding rates to try, with the reason for `evidence`."""
    text = f"Try the embedding rates {', '.join(f'{rate:.3g}' for rate in advice.sweep)}"
    if not evidence:
        text += f", {_between(advice)}" * (advice.rival is not None)
        return textwrap.wrap(f"{text} (--evidence: why).{_outside(advice)}", LINE)
    if advice.rival is not None:
        keep = "rows × √d keep the ratio of the two rates" if advice.token_rows == "sqrt" else "plain rows keep theirs"
        why = f"{_between(advice)}: docs/embedding_rate.md measured that {keep}"
    elif advice.embedding_was_tuned:
        why = "half and twice the rate above"
    elif pages := _pages(advice):
        together = "" if len(pages) == 1 else ", and none measures them together"
        why = f"half and twice the rate above; {' and '.join(pages)} {'has' if len(pages) == 1 else 'have'} the "
        why += f"measurements{together}"
    else:
        why = (
            "1, 4 and 16 times LVP's rate; small models tuned at their own size took 4 to 16 times in docs/transfer.md "
            "and LVP's rate in docs/pretrain_1b.md"
        )
    text += f", all other rates as above ({why}). "
    if advice.optimizer != "muon":
        text += "If a run is expensive, try them at a smaller width first, and give --from-width and --embedding-lr. "
    text += "If the first or the last is the best, go on beyond it."
    return textwrap.wrap(text, LINE)


def _between(advice: "Recommendation") -> str:
    """What the first and the last rate of `sweep` are, if there is a `rival`."""
    if advice.token_rows == "sqrt":
        return "from the small model's ratio to the hidden rate up to the rule's rate"
    return "from the moved to the unchanged rate"


def _measured(advice: "Recommendation") -> list[list[str]]:
    """A block per committed result: its relevance for this size, and the loss of every entry after transfer."""
    if not advice.evidence:
        return [["This installation contains no committed results of transfer."]]
    blocks = [["All models below have two matrices. docs/tied.md has those with one, at d 64 and 128."]] * advice.tied
    for name, result in advice.evidence.items():
        head = ("entry", "rule", "embedding rate here", "mean gap", "largest gap", "at")
        lines: list[tuple[str, ...]] = [head]
        for entry, row in _evidence.ranked(result):
            own = advice.embedding.learning_rate if row["rule"] == advice.rule else None
            rate = advice.embedding_by_rule.get(
                row["rule"], own
            )  # only nanochat, whose hidden rate is Muon's, is not in embedding_by_rule
            shown = "–" if rate is None else f"{rate:.4g}"
            gaps = (_interval(row, key) for key in ("mean_gap", "worst_gap"))
            lines.append((entry + " *" * row["constant_at_edge"], row["rule"], shown, *gaps, _worst_size(row)))
        ranges = ", ".join(f"{axis} {low}–{high}" for axis, (low, high) in result["measured"].items())
        edges = ", ".join(result["references_at_edge"])
        tuned_at_edge = any(row["constant_at_edge"] for row in result["entries"].values())
        blocks.append(
            [
                *_far(advice, name, result),
                f"Measured ({name}: preset {result['tier']}, {result['seeds']} seeds, commit {result['commit']}):",
                f"{ranges}; one axis moves at a time.",
                "Each entry is tuned at the smallest size only. Gap: loss above a reference tuned at the size itself.",
                "95 % intervals over seeds." + " *: the tuned rate is at the edge of its grid." * tuned_at_edge,
                *([f"References at the edge of a grid: {edges}."] if edges else []),
                *aligned(lines),
                *([KAPPA_ONE] if advice.kappa not in (None, 1.0) else []),
            ]
        )
    return blocks


def _pages(advice: "Recommendation") -> list[str]:
    """The pages with measurements of the properties that the models of the committed results of transfer lack.

    No page covers two of these properties together.
    """
    return [
        page
        for page, has in {
            "docs/tied.md": advice.tied,
            "docs/muon.md": advice.optimizer == "muon",
            "docs/embedding_rate.md": advice.token_rows != "plain",
        }.items()
        if has
    ]


def _outside(advice: "Recommendation") -> str:
    """The measured sizes, if this size is `FAR` outside of every committed result."""
    if pages := _pages(advice):
        return (
            f" Measured at the small sizes of {pages[0]} only." if len(pages) == 1 else " This model is not measured."
        )
    if not advice.beyond or any(max(of.values()) < FAR for of in advice.beyond.values()):
        return ""
    name, times = min(advice.beyond.items(), key=lambda of: max(of[1].values()))
    measured, sizes = advice.evidence[name]["measured"], []
    for axis in (axis for axis, factor in times.items() if factor > 1):
        low, high = measured[axis]
        sizes.append(f"{axis} ≤ {high:,}" if getattr(advice.target, axis) > high else f"{axis} ≥ {low:,}")
    return f" Transfer measured at {', '.join(sizes)}."


def _far(advice: "Recommendation", name: str, result) -> list[str]:
    words = []
    for axis, times in advice.beyond[name].items():
        if times > 1:
            value, (_, largest) = getattr(advice.target, axis), result["measured"][axis]
            side = "the largest" if value > largest else "smaller than the smallest"
            words.append(f"{axis} {value} is {times:.3g} times {side} measured")
    if not words:
        known = " and ".join(f"{axis} {getattr(advice.target, axis)}" for axis in advice.beyond[name])
        return [f"Within the measured range: {known}. The measurements moved one size at a time."]
    far = max(advice.beyond[name].values()) >= FAR
    place = (
        "far outside of the measured range. The numbers below are weak evidence for it"
        if far
        else ("outside of the measured range, but not far")
    )
    return [f"The size is {place}:", f"{'; '.join(words)}."]


def _worst_size(row) -> str:
    """The size with the largest gap; a diverged size first."""
    gaps = row["gaps"]
    return max(gaps, key=lambda size: math.inf if gaps[size] is None else gaps[size])


def _interval(row, key: str) -> str:
    if row.get(key) is None:
        return "diverged"
    low, high = row[f"{key}_interval"]
    return f"{100 * row[key]:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _tokens(advice: "Recommendation", frequencies: TokenFrequencies) -> list[str]:
    width = advice.width
    kappas = {
        "most frequent token": frequencies.kappa_top,
        "mean, weighted by frequency": frequencies.kappa,
        "median token of the text": frequencies.kappa_median,
    }
    lines = [("κ of the", "κ", "embedding rate / hidden rate at which embedding and head change its output alike")]
    lines += [(name, f"{kappa:.3g}", f"{frequencies.ratio(width, kappa):.3g}") for name, kappa in kappas.items()]
    lines.append(("(the paper's constant)", "1", f"{frequencies.ratio(width, 1.0):.3g}"))
    used = "it takes the weighted mean" if advice.rule == "interpolated" else f"{advice.rule} does not depend on them"
    words = (
        f'Only "interpolated" uses frequencies: {used}. The ratio holds for one step of the linear network and '
        "differs between tokens. The theory does not state that the mean κ trains better than κ = 1."
    )
    heading = (
        f"Token frequencies: {frequencies.tokens:,} tokens, {frequencies.unseen} of {frequencies.vocab} never seen"
    )
    return [heading, *aligned(lines), *textwrap.wrap(words, LINE)]


def side_by_side(tables: Sequence[Table]) -> str:
    """Several rules at one size: blocks of init stds and of multipliers, with a column per rule."""
    first = tables[0]
    kappa = next((f" (interpolated: κ {t.kappa:.6g})" for t in tables if t.kappa is not None), "")
    lines = [f"width {first.width}, vocab {first.vocab}{kappa}, token rows {first.token_rows}"]
    columns = {
        "init std": "init_std",
        f"LR multiplier of {first.learning_rate}": "lr_multiplier",
        "forward multiplier": "forward_multiplier",
    }
    for title, name in columns.items():
        rows = [("role", *(t.rule for t in tables))]
        rows += [(role, *(f"{getattr(t[role], name):.6g}" for t in tables)) for role in first]
        if name == "forward_multiplier" and "tied" in tuple(first):
            rows.append(("tied, logits", *(f"{t['tied'].head_multiplier:.6g}" for t in tables)))
        lines += ["", title, *aligned(rows)]
    return "\n".join([*lines, "", "vectors: gains start at 1, biases at 0, and do not decay; all other roles decay"])
