"""The claims of `warmup_batch`: section 8 of Kosson et al. 2024."""

from lvp.analysis.claims import ABOVE_ZERO, OUR_RESULT, Claim, Question, Seeds, unless_at_edge
from lvp.experiments.warmup.claims import PAPER_C, long_momentum, setting_of
from lvp.experiments.warmup_batch.analysis import edges, gap, growth
from lvp.experiments.warmup_batch.config import EQUAL, Config


def claims(table, config: Config, context) -> list[Claim]:
    """One claim per group at equal tokens and one at equal steps: the gap grows with the batch.

    A claim is unresolved if a lower loss beyond a grid could change its verdict.
    """
    return [_claim(table, config, equal, name, context) for equal in EQUAL for name in config.groups]


def _claim(table, config: Config, equal: str, name: str, context) -> Claim:
    by_batch = ", ".join(
        f"{gap(table, config, equal, batch, name).text('z.2f')} at {batch}" for batch in config.batches
    ).replace("-", "−")
    runs = [config.at(equal, batch) for batch in (config.batches[0], config.batches[-1])]
    question = Question(
        statement="warm-up lowers the final loss more at the largest batch than at the smallest",
        variant=f"{name}, equal {equal}",
        source=f"{OUR_RESULT}, after {PAPER_C}, section 8",
        paper_value="> 0 (expected)",
        claimed=ABOVE_ZERO,
        unit="nats per token",
        note=f"gap: validation loss without warm-up minus the least with warm-up; gap at batch {config.batches[-1]} "
        f"minus that at {config.batches[0]}; "
        f"gaps {by_batch}; {len(config.more_seeds)} judging seeds; {' and '.join(map(setting_of, runs))}",
    )
    reason = next(filter(None, (long_momentum([name], run) for run in runs)), "")
    seeds = Seeds(config.more_seeds, config.seeds)
    claim = question.answer(growth(table, config, equal, name), context, seeds, reason=reason)
    return unless_at_edge(claim, question.claimed, *edges(table, config, equal, name))
