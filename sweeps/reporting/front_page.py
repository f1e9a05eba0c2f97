"""The generated blocks of the README: the headline and the status box."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import experiments
from experiments.width_vocab.analysis import optima
from experiments.width_vocab.config import READINGS
from lvp.analysis.claims import VERDICTS, Claim
from lvp.analysis.slopes import Slope
from sweeps.reporting.gallery import Shown


def headline(table, config, evidence: Mapping[str, Any]) -> str:
    """The exponent of `width_vocab` for each kind of embedding rows, and the rules ordered by their losses after
    transfer.

    Args:
      table, config: table and configuration of a committed result of `width_vocab`.
      evidence: a result from `lvp.parametrization.evidence`.
    """
    sizes = f"widths {min(config.widths)} to {max(config.widths)}"
    slopes = {READINGS[rows]: optima(table, config, rows)[1] for rows in config.token_rows}
    exponents = " and ".join(f"{_exponent(fit)} ({name})" for name, fit in slopes.items())
    ranked = sorted(evidence["rules"].items(), key=lambda rule: rule[1]["mean_gap"])
    losses = ", ".join(f"`{name}` {100 * rule['mean_gap']:.1f} %" for name, rule in ranked)
    compared = f"{_range('d', evidence['widths'])}, {_range('m', evidence['vocabs'])}"
    return (
        f"- **The paper's exponent is −0.5.** Measured at {sizes}: {exponents}. It depends on the number of steps: "
        f"[width and vocabulary](docs/width_vocab.md).\n"
        f"- **Why is `{ranked[0][0]}` recommended?** Rules are compared by another measurement: each rule has one "
        f"constant, which is tuned at the smallest size and used at all other sizes ({compared}). The mean excess of "
        f"the final training loss is {losses}. See [choose a rule](docs/choose_a_rule.md)."
    )


def _exponent(slope: Slope) -> str:
    low, high = slope.interval
    return f"{slope.slope:.2f} [{low:.2f}, {high:.2f}]".replace("-", "−")


def status(shown: Sequence[Shown]) -> str:
    """A table of the committed results: sizes, lanes, duration, device and verdicts of each experiment and tier, over
    all corpora. Below it, the tiers without a committed result."""
    lines = [
        f"| experiment | sizes | lanes | minutes | device | {' / '.join(VERDICTS)} |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    by_tier: dict[tuple[str, str], list[Shown]] = {}
    for s in shown:
        by_tier.setdefault((s.experiment.name, s.sweep["tier"]), []).append(s)
    for (name, tier), results in by_tier.items():
        corpora = ", ".join(s.folder.name.removeprefix(f"{tier}-") for s in results)
        rows = [row for s in results for row in s.rows]
        minutes = f"{sum(s.sweep['wall_seconds'] for s in results) / 60:.1f}"
        devices = "; ".join(sorted({_device(s) for s in results}))
        verdicts = _verdicts([claim for s in results for claim in s.claims])
        lines.append(
            f"| {name} ({tier}: {corpora}) | {_sizes(rows)} | {len(rows)} | {minutes} | {devices} | {verdicts} |"
        )
    tiers = {tier for name in experiments.NAMES for tier in experiments.load(name).tiers}
    missing = ", ".join(f"`{tier}`" for tier in sorted(tiers - {s.sweep["tier"] for s in shown} - {"smoke"}))
    return "\n".join([*lines, "", f"No result of the tiers {missing} is committed."])


def _device(shown: Shown) -> str:
    """The machine of a result, or the devices of its records, and the number of workers."""
    devices = ", ".join(sorted({row["provenance"]["device"] for row in shown.rows}))
    return f"{shown.sweep.get('machine', devices)}, {shown.sweep['packing']['workers']} workers"


def _sizes(rows: Iterable[Mapping]) -> str:
    """The ranges of width and vocabulary; "–" if no lane has a language model."""
    models = [row["config"]["cell"].get("model", {}) for row in rows]
    ranges = [
        _range(letter, [model[key] for model in models if key in model])
        for letter, key in (("d", "width"), ("m", "vocab"))
    ]
    return ", ".join(filter(None, ranges)) or "–"


def _range(letter: str, values: Sequence[int]) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{letter} {low}" if low == high else f"{letter} {low}–{high}"


def _verdicts(claims: Sequence[Claim]) -> str:
    return " / ".join(str(sum(claim.verdict == verdict for claim in claims)) for verdict in VERDICTS)
