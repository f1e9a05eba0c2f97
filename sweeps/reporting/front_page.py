"""Generated blocks of the README and of docs: headline, transfer, status and the table of results."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

import experiments
from experiments.leaderboard import analysis as leaderboard
from experiments.rate_transfer import analysis as rate_transfer
from experiments.width_vocab.analysis import optima
from experiments.width_vocab.config import READINGS, Config
from lvp.analysis.claims import VERDICTS, merged
from lvp.analysis.measurement import Measurement
from lvp.analysis.power_laws import in_words
from lvp.parametrization import evidence, published
from sweeps.reporting.gallery import Shown, training_minutes, workers


def headline(results: Sequence[tuple[pd.DataFrame, Config]]) -> str:
    """A list: the exponents of `width_vocab` by kind of embedding rows, for each result, and what they depend on.

    Args:
      results: table and configuration of committed results of `width_vocab` on one corpus.
    """
    sentences, settings = ["- **The exponent of the paper's rule is −0.5.**"], set()
    for table, config in results:
        slopes = {READINGS[rows]: optima(table, config, rows)[1] for rows in config.token_rows}
        exponents = " and ".join(f"{in_words(fit)} ({name})" for name, fit in slopes.items()).replace("-", "−")
        tuned = ", with a tuned hidden rate" * bool(config.hidden_constants)
        setting = f"at widths {min(config.widths)} to {max(config.widths)}{tuned}"
        verb = "Measured again" if setting in settings else "Measured"
        sentences.append(f"{verb} {setting}: {exponents}.")
        settings.add(setting)
    limits = (
        "- With rows × √d the exponent depends on the number of steps. Training reads the short texts many times "
        "([reasons](docs/width_vocab.md#how-the-laptop-tier-was-chosen))."
    )
    return f"{' '.join(sentences)}\n{limits}"


def transfer(result: Mapping[str, Any]) -> str:
    """The gaps of every entry of the leaderboard at every size in percent, as a table. The least mean gap is first.

    Args:
      result: a result from `lvp.parametrization.evidence.transfer`.
    """
    ranked = evidence.ranked(result)
    sizes, edges = list(ranked[0][1]["gaps"]), result["references_at_edge"]
    head = ["entry", "base", *(size + " *" * (size in edges) for size in sizes), "mean", "largest"]
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    for name, row in ranked:
        gaps = [_percent(row["base_gap"]), *(_percent(row["gaps"][size]) for size in sizes)]
        ends = [_percent(row[f"{which}_gap"], row[f"{which}_gap_interval"]) for which in ("mean", "worst")]
        lines.append([name + " *" * row["constant_at_edge"], *gaps, *ends])
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{table}\n\n*: at the edge of its grid. A better value may exist." if "*" in table else table


def published_rates(ours: Mapping[str, str]) -> str:
    """The published rates of `lvp.parametrization.published` in this library's units, beside our numbers, as a table.

    Args:
      ours: our measurement, as text, of "ratio" (embedding over hidden rate), "width" (power of the width of the best
        embedding rate), "sp" and "mup" (powers of the width of the best global rate). A missing key means no result.
    """
    rows = [("source", "quantity", "published", "ours"), ("---",) * 4]
    for tuned in published.TUNED:
        ratio, ratio_ours = "–", "not comparable: Muon trains the hidden matrices"
        if tuned.ratio_over_lvp is not None:
            ratio, ratio_ours = f"{tuned.ratio_over_lvp:.2f} √d", ours.get("ratio", "no result")
        rows.append((tuned.source, f"embedding over hidden rate, d {tuned.width}", ratio, ratio_ours))
    for law in published.POWER_LAWS:
        shown = ", ".join(f"{name}^{power:g}" for name, power in law.exponents.items())
        width_ours = f"not comparable: {law.other}"
        if law.width_exponent is not None:
            shown, width_ours = f"d^{law.width_exponent:g}", ours.get("width", "no result")
        rows.append((law.source, law.quantity, shown, width_ours))
    for sweep in published.SWEEPS:
        quantity, number = f"best global rate, {sweep.rule}", ours.get(sweep.rule, "no result")
        rows.append((sweep.source, quantity, f"d^{sweep.slope:.2f}", number))
    return "\n".join("| " + " | ".join(row) + " |" for row in rows).replace("^-", "^−")


def our_rates(results: Mapping[str, tuple[pd.DataFrame, Any]]) -> dict[str, str]:
    """Our measurements for `published_rates`.

    Args:
      results: experiment → table and configuration of its committed result at the laptop tier on WikiText-2.
    """
    ours = {}
    if "leaderboard" in results:
        table, config = results["leaderboard"]
        best = leaderboard.read(table, config, {}).references.values()
        ratios = [each.reference.ratio for each in best]
        widths = [size.width for size in config.sizes.values()]
        ours["ratio"] = f"{min(ratios):g} to {max(ratios):g} √d (d {min(widths)} to {max(widths)}, references)"
    if "width_vocab" in results:
        table, config = results["width_vocab"]
        ours["width"] = f"d^{in_words(optima(table, config, 'plain')[1])} (d {config.widths[0]} to {config.widths[-1]})"
    if "rate_transfer" in results:
        table, config = results["rate_transfer"]
        by_entry = rate_transfer.read(table, config)
        for rule, name in (("sp", "SP"), ("mup", "μP")):
            ours[rule] = f"d^{in_words(by_entry[name].power)} (d {config.widths[0]} to {config.widths[-1]})"
    return {name: text.replace("-", "−") for name, text in ours.items()}


def _percent(gap: float | None, interval: list[float] | None = None) -> str:
    """A gap in percent with its interval; "–" for None: a lane diverged or is missing."""
    text = "–" if gap is None else Measurement(gap, (interval[0], interval[1]) if interval else None).percent()
    return text.replace("-", "−")


def status(shown: Sequence[Shown], evidence: Sequence[Mapping[str, Any]]) -> str:
    """A list with the hardware, the extent of the committed results, the number of each verdict, and the experiments
    and tiers without a result.

    Args:
      evidence: results of `python -m tests.benchmarks.accelerator`.
    """
    rows = [row for s in shown for row in s.rows]
    hours = training_minutes(rows) / 60
    names = {s.experiment.name for s in shown}
    counts = ", ".join(f"{number} {verdict}" for verdict, number in _verdicts(shown).items())
    tiers = {tier for name in experiments.NAMES for tier in experiments.load(name).tiers} - {"smoke"}
    missing = {"experiments": set(experiments.NAMES) - names, "tiers": tiers - {s.sweep["tier"] for s in shown}}
    listed = [
        f"{kind} {', '.join(f'`{name}`' for name in sorted(without))}" for kind, without in missing.items() if without
    ]
    return "\n".join(
        [
            _hardware(evidence),
            f"- **Measured:** {len(names)} of {len(experiments.NAMES)} experiments, {len(rows):,} lanes, {hours:.1f} "
            f"hours of training on one core. Sizes of the Transformers: {_sizes(rows)}.",
            f"- **Claims:** {counts}. See [the claims and the results](docs/claims.md).",
            f"- **Without a committed result:** {'; '.join(listed) or 'none'}.",
        ]
    )


def accelerators(evidence: Sequence[Mapping[str, Any]]) -> str:
    """The tables of `python -m tests.benchmarks.accelerator`, the newest first."""
    newest = sorted(evidence, key=lambda each: each["date"], reverse=True)
    return "\n\n".join(each["table"].strip() for each in newest) or "No accelerator has run the command yet."


def _hardware(evidence: Sequence[Mapping[str, Any]]) -> str:
    """The hardware on which results were measured."""
    cards = {each["device"]["kind"]: each["date"] for each in sorted(evidence, key=lambda each: each["date"])}
    others = "; ".join(f"{kind} on {date}" for kind, date in cards.items()) or "no accelerator has run a sweep"
    page = "([accelerators](docs/accelerators.md))"
    return f"- **Hardware:** two CPU cores; {others} {page}. [Clusters](docs/clusters.md) are experimental."


def results_table(shown: Sequence[Shown]) -> str:
    """A table of the committed results: sizes, lanes, training time, device and verdicts of each experiment and tier,
    over all corpora."""
    lines = [
        f"| experiment | sizes | lanes | core minutes | device | {' / '.join(VERDICTS)} |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    by_tier: dict[tuple[str, str], list[Shown]] = {}
    for s in shown:
        by_tier.setdefault((s.experiment.name, s.sweep["tier"]), []).append(s)
    for (name, tier), results in by_tier.items():
        corpora = ", ".join(s.folder.name.removeprefix(f"{tier}-") for s in results)
        rows = [row for s in results for row in s.rows]
        minutes = f"{training_minutes(rows):.1f}"
        devices = "; ".join(sorted({_device(s) for s in results}))
        verdicts = " / ".join(map(str, _verdicts(results).values()))
        lines.append(
            f"| {name} ({tier}: {corpora}) | {_sizes(rows)} | {len(rows)} | {minutes} | {devices} | {verdicts} |"
        )
    return "\n".join(lines)


def _device(shown: Shown) -> str:
    """The machine of a result, or the devices of its records, and the number of workers."""
    devices = ", ".join(sorted({row["provenance"]["device"] for row in shown.rows}))
    return f"{shown.sweep.get('machine', devices)}{workers(shown)}"


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


def _verdicts(shown: Sequence[Shown]) -> dict[str, int]:
    """The number of claims with each verdict."""
    claims = merged([claim for s in shown for claim in s.claims])
    return {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in VERDICTS}
