"""Rules of other sources than Hayou & Liu: closed forms by hand, and their relation to muP and SP."""

import math

import pytest

from lvp.coordinates import decoder as of_decoder
from lvp.parametrization import RULES, table
from lvp.parametrization.rules import PAPER_RULES

# (init std, rate, forward multiplier) of embedding, hidden, output and vector at width 256, from the sources.
BY_HAND = {
    "completep": ((1, 1, 1), (1 / 16, 1 / 256, 1), (1, 1, 1 / 256), (0, 1, 1)),
    "umup": ((1, 1 / 16, 1), (1, 1 / 16, 1 / 16), (1, 1, 1 / 256), (0, 1, 1)),
    "sp_embedding_width": ((1, 256, 1), (1 / 16, 1, 1), (1 / 16, 1, 1), (0, 1, 1)),
    # (256/768)^(-1/2) = √3.
    "nanochat": ((0.8, 0.3 * 3**0.5, 1), (1 / 16, 0.02, 1), (0.001, 0.008 * 3**0.5, 1), (0, 0.005, 1)),
}


@pytest.mark.parametrize("rule", BY_HAND)
def test_the_sources_numbers(rule):
    made, absolute = table(rule, width=256, vocab=4096), PAPER_RULES[rule].rows(256, 4096, 1.0)
    rows = dict(zip(("embedding", "hidden", "output", "vector"), BY_HAND[rule], strict=True))
    for role, row in (rows | {"position": rows["embedding"]}).items():
        of_table = (made[role].init_std, absolute[role][1], made[role].forward_multiplier)
        assert of_table == pytest.approx(row, rel=1e-12), role


def absorbed(rule, width):
    """Role → (init std, rate) of the same Adam run without forward multipliers."""
    rows = PAPER_RULES[rule].rows(width, 4096, 1.0).items()
    return {role: (std * math.prod(factor), rate * math.prod(factor)) for role, (std, rate, *factor) in rows}


@pytest.mark.parametrize("width", [64, 768])
def test_the_rules_differ_from_mup_and_sp_as_their_sources_say(width):
    mup, sp = absorbed("mup", width), absorbed("sp", width)
    completep, umup = absorbed("completep", width), absorbed("umup", width)
    lookups = dict.fromkeys(("embedding", "position"), (1.0, width**-0.5))
    for role, row in mup.items():
        assert completep[role] == pytest.approx(row)
        assert umup[role] == pytest.approx(lookups.get(role, row))
    times_width = absorbed("sp_embedding_width", width)
    assert times_width == sp | dict.fromkeys(("embedding", "position"), (1.0, width))
    # The ratio of embedding to hidden rate is muP's.
    assert times_width["embedding"][1] / times_width["hidden"][1] == mup["embedding"][1] / mup["hidden"][1]


def test_nanochat_is_no_rule_for_adam():
    assert "nanochat" in PAPER_RULES and "nanochat" not in RULES
    for width in (768, 3072):
        made = table("nanochat", width=width, vocab=4096, base_width=768, ratios=1)
        assert made["embedding"].lr_multiplier == made["output"].lr_multiplier == math.sqrt(768 / width)
        assert made["hidden"].lr_multiplier == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["completep", "umup", "sp_embedding_width"])
def test_the_coordinate_check(rule):
    checked = of_decoder.check(rule, widths=(32, 64, 128), vocab=256, layers=1, seeds=3)
    grown = {(growth.activation, growth.quantity) for growth in checked.alarms if growth.verdict == "grows"}
    if rule == "sp_embedding_width":  # negative control: SP's hidden rate does not fall with the width
        assert ("block_0/mlp/down", "change") in grown
    else:
        assert not checked.alarms, str(checked)
