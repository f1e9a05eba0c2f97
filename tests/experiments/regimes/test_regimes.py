"""Summary, figure and claims of regimes follow from its table. The lanes are tested in test_cells.py."""

import json
from collections import defaultdict
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy import stats

from experiments import regimes
from experiments.common.decoder_runs import geometric
from experiments.common.tables import LANE_COLUMNS, losses_of_best_setting, select
from lvp.analysis.claims import NOT_TESTED
from lvp.parametrization import table as rule_table
from lvp.roles import ROLES
from lvp.training import records
from tests.marking import all_slow_but, slow

RIVALS = {"sp": "SP", "mup": "μP", "interpolated": "interpolated"}
CONTEXT = {"experiment": "regimes", "tier": "none", "corpus": "none", "commit": "none"}
# The smallest configurations: one for powers, one for claims about rules.
GRID = replace(regimes.TIERS["laptop"], constants=(0.1, 0.2, 0.4))
SMALL = replace(GRID, widths=(32, 128), vocabs=(256, 4096), rates=geometric(0.004, 0.256, 7))


def row(width, vocab, lane, loss):
    """Returns the record of a lane as a sweep writes it. `loss` None: the lane diverged."""
    config = {"cell": {"model": {"width": width, "vocab": vocab}}, "lane": asdict(lane)}
    outcome = {"status": "diverged" if loss is None else "finished", "train_bits_per_byte": loss}
    return {"hash": "", "config": config, "outcome": outcome, "provenance": {}}


def table_of(config, loss, follow=True, rules=True):
    """Returns the table of a sweep in which a lane at (d, m) ends at `loss(d, m, lane)`. It may be limited to stage
    one, or to the common lanes of stage one."""
    num = None if rules else len(config.rates) * len(config.seeds)
    first = [
        (*shape, lane)
        for shape, c in zip(config.shapes, regimes.config.cells(config), strict=True)
        for lane in c.lanes[:num]
    ]
    rows = [row(width, vocab, lane, loss(width, vocab, lane)) for width, vocab, lane in first]
    if follow:
        more = regimes.analysis.follow_up(tidy(rows), config)
        shapes = {regimes.config.label(*shape): shape for shape in config.shapes}
        rows += [row(*shapes[at], lane, loss(*shapes[at], lane)) for at, lanes in more.items() for lane in lanes]
    return tidy(rows)


def tidy(rows):
    """Returns the table of the records after a round trip through JSON."""
    return records.table(json.loads(records.dumps(rows)))


def bowl(best, noise=0.001, seed=0, steep=0.3):
    """Returns losses of about 2 + a parabola in ln η_E and ln η_H, whose optimum at (d, m) is `best(d, m)` = (η_E,
    η_H)."""
    rng = np.random.default_rng(seed)

    def loss(width, vocab, lane):
        embedding, hidden = best(width, vocab)
        off = np.log([lane.learning_rates["embedding"] / embedding, lane.learning_rates["hidden"] / hidden])
        return float(2 + steep * np.dot(off, off) + noise * rng.normal())

    return loss


def planted(power_width, power_vocab, off=lambda d, m: 0.0):
    """Returns the planted optimum η_E = 0.03 (d/64)^power_width (m/1024)^power_vocab, shifted by `off`, and η_H =
    0.2/d."""
    return lambda d, m: (0.03 * (d / 64) ** power_width * (m / 1024) ** power_vocab * np.exp(off(d, m)), 0.2 / d)


def truth(config, rule, constant=0.2):
    """Returns optima that equal the rates of a rule."""

    def best(width, vocab):
        rates = regimes.config.rule_lane(config, rule, constant, width, vocab, 0).learning_rates
        return rates["embedding"], rates["hidden"]

    return best


def everything(table, config, draw=True):
    """Returns summary, claims and evidence by rule of a table. Also draws the figure, which fails here if it cannot be
    drawn."""
    text = regimes.analysis.summary(table, config)
    figure = regimes.figure.figure(table, config, tier="none", corpus="none", partial=(1, 2))
    if draw:
        figure.draw_without_rendering()
    evidence = regimes.analysis.evidence(table, config)
    assert json.loads(records.dumps(evidence)) == evidence and set(evidence["rules"]) == set(regimes.config.RULES)
    assert (evidence["widths"], evidence["vocabs"], evidence["seeds"]) == ([32, 128], [256, 4096], 3)
    return text, figure, regimes.claims.claims(table, config, CONTEXT), evidence["rules"]


@pytest.mark.parametrize(
    "powers, verdict",
    [
        ((-0.5, 0.0), "supported"),
        slow((0.0, 0.0), "contradicted"),
        slow((-1.0, 0.3), "contradicted"),
        ((-0.25, -0.3), "contradicted"),
    ],
)
def test_claims_about_powers_follow_the_data(powers, verdict):
    """Uses 3 synthetic sweeps: a 95 % interval may miss once but not twice. Steps differ with the vocabulary."""
    right = 0
    for seed in range(3):
        table = table_of(GRID, bowl(planted(*powers), noise=0.01, seed=seed), follow=False, rules=False)
        made = regimes.claims.claims(table, GRID, CONTEXT)
        assert [c.value for c in made[:2]] == pytest.approx(powers, abs=0.05)
        assert made[0].note.startswith("9 of 9 cells")
        right += made[0].verdict == verdict
        assert made[1].verdict == NOT_TESTED and "fewer steps" in made[1].reason
        assert {c.verdict for c in made[2:]} == {"unresolved"}  # no lane of a rule has run
    assert right >= 2


def test_optima_without_a_power_law_resolve_nothing():
    moved = dict(zip(GRID.shapes, 0.8 * np.random.default_rng(0).standard_normal(9), strict=True))
    table = table_of(GRID, bowl(planted(-0.5, 0.0, off=lambda *at: moved[at])), follow=False, rules=False)
    made = regimes.claims.claims(table, GRID, CONTEXT)
    assert made[0].verdict == "unresolved" and made[0].note.startswith("9 of 9 cells")


@pytest.mark.parametrize("rule", regimes.config.RULES)
def test_claims_about_transfer_follow_the_data(rule):
    """The rule whose rates are optimal everywhere costs nothing. LVP loses to it, unless it is LVP."""
    table = table_of(SMALL, bowl(truth(SMALL, rule)))
    made = regimes.claims.claims(table, SMALL, CONTEXT)[2:]
    evidence = regimes.analysis.evidence(table, SMALL)["rules"]
    mean = {name: row["mean_gap"] for name, row in evidence.items()}
    assert evidence[rule]["constant"] == 0.2 and abs(mean[rule]) < 0.002
    assert all(gap > mean[rule] + 0.002 for name, gap in mean.items() if name != rule)
    for claim, (rival, title) in zip(made, RIVALS.items(), strict=True):
        assert f"LVP loses less than {title} at the others" in claim.statement
        assert claim.value == pytest.approx(mean[rival] - mean["lvp"], abs=2e-6)
        if rule in ("lvp", rival):
            assert claim.verdict == ("supported" if rule == "lvp" else "contradicted")


def by_setting(table):
    """Returns {(d, m): {(rates, stds): {seed: loss}}}, computed without pandas; diverged losses are infinite."""
    losses = defaultdict(lambda: defaultdict(dict))
    for r in table.to_dict("records"):
        setting = tuple(r[f"lane.{what}.{role}"] for what in ("learning_rates", "init_std") for role in ROLES)
        loss = r["train_bits_per_byte"] if r["status"] == "finished" else np.inf
        losses[r["cell.model.width"], r["cell.model.vocab"]][setting][r["lane.seed"]] = loss
    return losses


def by_seed(lanes, lane, config):
    """Returns the losses [seeds] of a lane's setting."""
    setting = (*(lane.learning_rates[r] for r in ROLES), *(lane.init_std[r] for r in ROLES))
    return np.array([lanes[setting][seed] for seed in config.seeds])


def diverges(*, at, rules=(), seeds=None, config=SMALL):
    """Returns a predicate: lanes of `rules` diverge at the shapes `at`, for `seeds` or for all seeds."""

    def diverged(width, vocab, lane):
        if (width, vocab) not in at or (seeds is not None and lane.seed not in seeds):
            return False
        own = [regimes.config.rule_lane(config, r, c, width, vocab, lane.seed) for r in rules for c in config.constants]
        return lane in own

    return diverged


def with_diverged(loss, diverged):
    return lambda *lane: None if diverged(*lane) else loss(*lane)


def known(table, shape):
    return losses_of_best_setting(
        select(table, regimes.analysis.shape_columns(*shape)), SMALL.seeds, regimes.analysis.LOSS
    )


def test_an_effect_of_a_seed_on_all_settings_is_no_gap():
    table = table_of(SMALL, bowl(planted(-0.3, 0.1)))
    shifted = table.assign(train_bits_per_byte=table["train_bits_per_byte"] * (1 + 0.1 * table["lane.seed"]))
    before, after = regimes.analysis.gaps(table, SMALL), regimes.analysis.gaps(shifted, SMALL)
    for rule in regimes.config.RULES:
        np.testing.assert_allclose(after[rule], before[rule], atol=1e-12)


@pytest.mark.parametrize("diverged", [False, True], ids=["all finished", "some diverged"])
def test_gaps_equal_their_definition(diverged):
    """Compares with a calculation without pandas, at a noise that makes every choice matter."""
    loss = bowl(planted(-0.3, 0.1), noise=0.2, seed=3)
    if diverged:
        loss = with_diverged(loss, diverges(at=SMALL.shapes[1:3], rules=["sp"], seeds=[1]))
    table = table_of(SMALL, loss)
    lanes, gaps = by_setting(table), regimes.analysis.gaps(table, SMALL)
    for rule in regimes.config.RULES:
        first = [regimes.config.rule_lane(SMALL, rule, c, *SMALL.shapes[0], 0) for c in SMALL.constants]
        means = [by_seed(lanes[SMALL.shapes[0]], lane, SMALL).mean() for lane in first]
        constant = SMALL.constants[int(np.argmin(means))]
        assert regimes.analysis.tuned_constant(table, SMALL, rule) == constant
        for i, shape in enumerate(SMALL.shapes[1:]):
            best = min((list(map(s.get, SMALL.seeds)) for s in lanes[shape].values()), key=np.mean)
            assert known(table, shape) == pytest.approx(best, rel=1e-14)
            there = by_seed(lanes[shape], regimes.config.rule_lane(SMALL, rule, constant, *shape, 0), SMALL)
            assert gaps[rule][i] == pytest.approx(there / best - 1, rel=1e-12)
    assert np.isinf(gaps["sp"]).sum() == (2 if diverged else 0)
    assert all(np.isfinite(gaps[rule]).all() for rule in regimes.config.RULES if rule != "sp")


def test_the_best_setting_has_finished_with_every_seed():
    table = table_of(SMALL, bowl(planted(-0.5, 0.0), noise=0.1))
    shape = SMALL.shapes[1]
    here = (table["cell.model.width"] == shape[0]) & (table["cell.model.vocab"] == shape[1])
    lucky = table[here]["train_bits_per_byte"].idxmin()
    means = table[here].groupby(LANE_COLUMNS)["train_bits_per_byte"].transform("mean")
    table.loc[lucky, "train_bits_per_byte"] = 0.1  # its setting then has the lowest known loss
    assert known(table, shape).mean() < means.min()
    setting = table.index[here][means == means[lucky]]
    without = table.drop(index=setting.drop(lucky)[0])  # not with a seed missing or diverged
    table.loc[setting.drop(lucky)[0], ["train_bits_per_byte", "status"]] = [np.nan, "diverged"]
    others = means[means != means[lucky]].min()
    assert known(without, shape).mean() == known(table, shape).mean() == pytest.approx(others)
    assert np.isnan(known(table, (8, 8))).all()


def test_mean_and_worst_gap_follow_their_definition():
    gap = np.array([[0.01, 0.03, 0.02], [0.20, 0.10, 0.18], [0.05, 0.30, 0.01]])
    made = regimes.analysis.mean_and_worst(gap)
    mean = stats.ttest_1samp(gap.mean(axis=0), 0).confidence_interval(0.95)
    assert made["mean"] == (pytest.approx(gap.mean()), pytest.approx((mean.low, mean.high)))
    worst, (low, high) = made["worst"]  # means over cells are 0.02, 0.16 and 0.12; by seed 0.20, 0.30 and 0.18
    assert worst == pytest.approx(0.16) and (low + high) / 2 == pytest.approx(worst)
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, 2) * np.std([0.20, 0.30, 0.18], ddof=1) / 3**0.5)
    assert regimes.analysis.mean_and_worst(gap[:, :1])["mean"] == (pytest.approx(0.26 / 3), None)
    gap[1, 1] = np.inf
    assert regimes.analysis.mean_and_worst(gap) == {"mean": (np.inf, None), "worst": (np.inf, None)}


# --- follow-up lanes --------------------------------------------------------------------------------------------------


def test_follow_up_carries_the_best_constant_to_every_other_cell():
    best = dict(zip(regimes.config.RULES, (0.1, 0.2, 0.4, 0.1), strict=True))
    good = [
        regimes.config.rule_lane(SMALL, rule, c, *SMALL.shapes[0], seed)
        for rule, c in best.items()
        for seed in SMALL.seeds
    ]
    rng = np.random.default_rng(0)

    def loss(width, vocab, lane):  # one seed of another constant is lucky, which must not count
        luck = lane.seed == 2 and lane not in good
        return float(3 - (lane in good) - 1.5 * luck + 0.01 * rng.normal())

    more = regimes.analysis.follow_up(table_of(SMALL, loss, follow=False), SMALL)
    assert list(more) == [c.label for c in regimes.config.cells(SMALL)][1:]
    for shape, lanes in zip(SMALL.shapes[1:], more.values(), strict=True):
        assert lanes == [
            regimes.config.rule_lane(SMALL, rule, c, *shape, seed) for rule, c in best.items() for seed in SMALL.seeds
        ]


def test_a_rule_that_diverged_everywhere_has_no_follow_up():
    diverged = diverges(at=SMALL.shapes[:1], rules=["mup"], seeds=[0])
    table = table_of(SMALL, with_diverged(bowl(planted(-0.5, 0.0)), diverged))
    assert regimes.analysis.tuned_constant(table, SMALL, "mup") is None
    more = regimes.analysis.follow_up(table, SMALL)
    for shape, lanes in zip(SMALL.shapes[1:], more.values(), strict=True):
        assert len(lanes) == 3 * len(SMALL.seeds)
        stds = {tuple(lane.init_std.values()) for lane in lanes}
        assert tuple(r.init_std for r in rule_table("mup", width=shape[0], vocab=shape[1]).rows) not in stds
    text, _, made, evidence = everything(table, SMALL, draw=False)
    assert set(evidence["mup"].values()) == {None} and None not in evidence["lvp"].values()
    assert [c.verdict for c in made[2:4]] == ["supported", "unresolved"]
    assert "nan" in next(line for line in text.splitlines() if line.startswith("μP"))


def test_a_smallest_cell_without_finished_lanes_has_no_follow_up():
    table = table_of(SMALL, lambda *_: None)
    assert set(map(len, regimes.analysis.follow_up(table, SMALL).values())) == {0}
    _, _, made, evidence = everything(table, SMALL)
    assert {c.verdict for c in made} == {"unresolved", NOT_TESTED}
    assert all(set(x.values()) == {None} for x in evidence.values())


# --- diverged and missing lanes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", [["sp"], ["sp", "lvp"]], ids=["one rule", "two rules at once"])
def test_a_diverged_lane_gives_an_infinite_gap(rules):
    diverged = diverges(at=SMALL.shapes[2:3], rules=rules, seeds=[1])
    table = table_of(SMALL, with_diverged(bowl(planted(-0.5, 0.0)), diverged))
    gaps = regimes.analysis.gaps(table, SMALL)
    for rule, gap in gaps.items():
        expected = np.zeros(gap.shape, bool)
        expected[1, 1] = rule in rules
        assert np.array_equal(np.isinf(gap), expected)
    text, figure, made, evidence = everything(table, SMALL, draw=len(rules) == 2)
    for rule, row in evidence.items():
        assert row["constant"] is not None
        assert {row[k] is None for k in row if k not in ("constant", "tuned_gap")} == {rule in rules}
    line = next(line for line in text.splitlines() if line.startswith("SP"))
    assert "inf" in line and line.endswith("d 128, m 256")
    assert [t.get_text() for t in figure.axes[4].texts].count("∞") == 2 * len(rules)
    assert [c.verdict for c in made[2:4]] == ["unresolved", "unresolved" if "lvp" in rules else "supported"]


NUM_FIRST = sum(len(c.lanes) for c in regimes.config.cells(SMALL))
PARTS = {
    "stage one": lambda table: table.iloc[:NUM_FIRST],
    "one lane": lambda table: table.iloc[:1],
    "a few lanes": lambda table: table.iloc[[0, 5, 30, 31, 80, -1]],
    "one seed": lambda table: table[table["lane.seed"] == 1],
    "the last cell": lambda table: table[table["cell.model.width"] * table["cell.model.vocab"] == 128 * 4096],
    "only diverged lanes in a cell": lambda table: table.assign(
        status=table["status"].where(table["cell.model.width"] == 32, "diverged")
    ),
}


@pytest.fixture(scope="module")
def whole():
    return table_of(SMALL, bowl(planted(-0.5, 0.0)))


@pytest.mark.parametrize("part", all_slow_but(("stage one", "only diverged lanes in a cell"), PARTS.values(), PARTS))
def test_a_partial_table_is_reported(whole, part):
    table = part(whole)
    assert 0 < len(table) and (len(table) < len(whole) or "diverged" in set(table["status"]))
    _, _, made, evidence = everything(table, SMALL, draw=False)
    assert {c.verdict for c in made[2:]} == {"unresolved"}
    assert {row["mean_gap"] for row in evidence.values()} == {None}
    gaps = np.array(list(regimes.analysis.gaps(table, SMALL).values()))
    assert not (gaps < -0.5).any()  # a finite loss over an infinite one


def test_a_complete_table_gives_every_result(whole):
    """Negative control for the partial tables."""
    text, figure, made, evidence = everything(whole, SMALL)
    assert "unresolved" not in {c.verdict for c in made[:1] + made[2:4]}
    assert all(None not in row.values() for row in evidence.values())
    assert f"power of width, the other held: {made[0].value:.2f}" in text and "power of vocab by slice" in text
    assert figure.axes[0].get_title() == "measured best η_E" and not figure.axes[4].texts
    assert "-0.0 " not in text and "nan" not in text
