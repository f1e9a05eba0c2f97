"""pretrain_1b: its model is Table 3's, and its claims follow planted numbers."""

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from experiments import pretrain_1b
from experiments.pretrain_1b import TIERS, Config
from experiments.pretrain_1b.config import cell_of, cells
from lvp.errors import InputError
from lvp.models.configs import hayou_liu_1b

CONFIG = TIERS["laptop"]
CONTEXT = {"experiment": "pretrain_1b", "tier": "laptop", "corpus": "none", "commit": "0"}


def table(config=CONFIG, best=None, words=0.0):
    """Returns a table of losses that grow with the distance of ln ratio from ln `best` (√d), and of a word-level loss
    that `words` shifts in favour of ratio 1."""
    best, rows = best or config.root, []
    for lane in cells(config)[0].lanes:
        ratio = lane.learning_rates["embedding"] / config.rate
        loss = 4 + 0.01 * math.log(ratio / best) ** 2 + 0.001 * lane.seed
        rows.append(
            {
                "status": "finished",
                "valid_loss": loss,
                "perplexity_by_tokens": math.exp(1.3 * loss - words * (ratio < 1.01)),
                "perplexity_by_words": math.exp(1.4 * loss),
                "measures.validation.loss": list(np.linspace(9, loss, len(config.measured_steps))),
                "lane.seed": lane.seed,
                "lane.learning_rates.embedding": lane.learning_rates["embedding"],
            }
        )
    return pd.DataFrame(rows)


def verdicts(table, config=CONFIG):
    return [c.verdict for c in pretrain_1b.claims.claims(table, config, CONTEXT)]


def test_the_paper_tier_trains_table_3():
    cell = cell_of(Config())
    assert cell.model == hayou_liu_1b()
    assert cell.tokens_per_lane == pytest.approx(65e9, rel=0.01)
    assert cell.data.order == "rows" and cell.data.scored == "wikitext2"


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_is_one_program_that_can_train_its_lanes(tier):
    config = TIERS[tier]
    (planned,) = cells(config)
    for lane in planned.lanes:
        planned.cell.check(lane)
        assert {lane.learning_rates[role] for role in ("hidden", "output", "vector")} == {config.rate}
    ratios = {lane.learning_rates["embedding"] / config.rate for lane in planned.lanes}
    assert sorted(ratios) == pytest.approx(list(config.ratios), rel=1e-5)
    assert config.measured_steps[-1] == config.steps - 1


def test_the_laptop_tier_has_the_specified_sizes():
    model, cell = cell_of(CONFIG).model, cell_of(CONFIG)
    assert (model.layers, model.width, model.head_dim, model.num_heads // model.num_kv_heads) == (4, 128, 32, 4)
    assert (model.window, model.context, model.vocab) == (128, 256, 4096)
    assert cell.tokens_per_lane == pytest.approx(1e6, rel=0.03)
    assert len(CONFIG.ratios) == 7 and len(CONFIG.seeds) == 3
    assert CONFIG.ratios[0] == 1 and CONFIG.ratios[-1] == pytest.approx(4 * 128**0.5, rel=1e-3)


def test_claims_follow_the_planted_values():
    assert verdicts(table()) == ["supported"] * 4
    at_ratio_1 = verdicts(table(best=1.0))
    assert at_ratio_1[0] == "contradicted" and at_ratio_1[1] == "contradicted" and at_ratio_1[3] == "contradicted"
    at_large_ratios = verdicts(table(best=400.0))  # larger ratios still improve the loss
    assert at_large_ratios[2] == "contradicted" and at_large_ratios[0] == "supported"
    assert verdicts(table(words=1.0))[3] == "contradicted"


def test_a_diverged_ratio_gives_no_verdict_and_is_drawn_as_missing():
    lost = table()
    at_one = np.isclose(lost["lane.learning_rates.embedding"], CONFIG.rate)
    lost.loc[at_one, ["status", "valid_loss"]] = ["diverged", np.nan]
    assert verdicts(lost)[0] == "unresolved" and "–" in pretrain_1b.analysis.summary(lost, CONFIG)
    assert pretrain_1b.figure.figure(lost, CONFIG, tier="laptop", corpus="none", partial=(1, 2)).axes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"powers": (0.0, 0.5)}, "powers must contain 0 .* and 1"),
        ({"rate": 0.0}, "rate must be finite and above zero"),
        ({"seeds": (0,)}, "seeds needs at least 2 values"),
        ({"warmup": 0.9}, "with a sum of at most 1"),
        ({"points": 1}, "points must be at least 2"),
    ],
    ids=str,
)
def test_bad_input_is_named(change, words):
    with pytest.raises(InputError, match=words):
        dataclasses.replace(CONFIG, **change)
