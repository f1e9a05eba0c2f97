"""Width at a fixed vocabulary: the designs' lanes, claims that follow the data, and how a decoder's table is read."""

import json
from collections import defaultdict
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import experiments
from experiments import width_fixed_vocab
from experiments.decoder_runs import EMBEDDING, geometric, grid, where
from experiments.width_fixed_vocab import COMMON, FACTORS
from lvp import records
from lvp.errors import InputError

HIDDEN = "lane.learning_rates.hidden"
CONTEXT = {"experiment": "width_fixed_vocab", "tier": "none", "corpus": "none", "commit": "none"}
LAPTOP = width_fixed_vocab.TIERS["laptop"]
STAR = replace(LAPTOP, rates=geometric(0.004, 0.256, 7), embedding_std_factors=(1.0,), output_std_factors=(1.0, 4.0))
PART = replace(STAR, widths=(32, 48, 128), hidden_rates=(0.1, 0.2), output_rate_factors=(0.25, 1.0))
LEAN = replace(STAR, hidden_rates=(0.1, 0.2), output_rate_factors=(1.0, 4.0), output_std_factors=(1.0,))
FULL = replace(STAR, widths=(32, 64, 128), hidden_rates=(0.2, 0.4), design="full")


# --- the lanes --------------------------------------------------------------------------------------------------------


def key(lane):
    """All that tells a lane from another."""
    return tuple(lane.learning_rates.items()), tuple(lane.init_std.items()), lane.seed


@pytest.mark.parametrize("config", width_fixed_vocab.TIERS.values(), ids=width_fixed_vocab.TIERS)
def test_every_tier_has_each_lane_once(config):
    cells = width_fixed_vocab.cells(config)
    assert [c.cell.model.width for c in cells] == list(config.widths) and len({c.label for c in cells}) == len(cells)
    settings, factors = len(config.rates) * len(config.hidden_rates), [len(getattr(config, name)) for name in FACTORS]
    if config.design == "full":
        settings *= int(np.prod(factors))
    else:
        settings += len(config.rates) * sum(n - 1 for n in factors)
    for c in cells:
        assert (c.cell.model.vocab, c.cell.steps, c.epochs) == (config.vocab, config.steps, None)
        assert len(c.lanes) == settings * len(config.seeds) == len(set(map(key, c.lanes)))


def test_paper_tier_is_the_published_set_up():
    """Hayou & Liu 2025, appendix C.1."""
    paper = width_fixed_vocab.TIERS["paper"]
    assert (paper.design, paper.vocab, paper.widths) == ("full", 32768, tuple(2**k for k in range(8, 13)))
    assert (paper.seeds, paper.steps, paper.corpus, paper.slice_bytes) == ((0, 1), 10_000, "wikitext2", None)


@pytest.mark.parametrize("config", [LAPTOP, STAR, FULL], ids=["laptop", "star", "full"])
def test_all_of_star_is_inside_full(config):
    star, full = (width_fixed_vocab.cells(replace(config, design=design)) for design in ("star", "full"))
    for few, many in zip(star, full, strict=True):
        inside, all_of_it = set(map(key, few.lanes)), set(map(key, many.lanes))
        assert inside < all_of_it


def test_star_moves_one_factor_at_a_time_at_the_middle_hidden_rate():
    settings = width_fixed_vocab.settings(LAPTOP)
    for rate, hidden, factors in settings:
        away = [value for value in factors.values() if value != 1.0]
        assert len(away) <= 1 and rate in LAPTOP.rates and hidden in ((0.2,) if away else (0.1, 0.2, 0.4))
    for name in FACTORS:
        assert {factors[name] for _, _, factors in settings} == {0.25, 1.0, 4.0}


@pytest.mark.parametrize("config", [LAPTOP, FULL], ids=["star", "full"])
def test_stds_and_rates_are_the_settings(config):
    for c in width_fixed_vocab.cells(config):
        d, lanes = c.cell.model.width, iter(c.lanes)
        for (rate, hidden, factors), seed in product(width_fixed_vocab.settings(config), config.seeds):
            lane, std = next(lanes), d**-0.5
            output, embedding_std, output_std = factors.values()
            assert lane.seed == seed
            assert lane.learning_rates == pytest.approx(
                {"embedding": rate, "position": rate, "vector": hidden / d}
                | {"hidden": hidden / d, "output": output * hidden / d},
                rel=1e-14,
            )
            assert lane.init_std == pytest.approx(
                {"embedding": embedding_std * std, "position": embedding_std * std, "vector": std}
                | {"hidden": std, "output": output_std * std},
                rel=1e-14,
            )
        assert next(lanes, None) is None


def test_a_lane_in_numbers():
    factors = {"output_rate_factors": 4.0, "embedding_std_factors": 0.5, "output_std_factors": 2.0}
    lane = width_fixed_vocab.lane(64, 0.01, 0.32, factors, seed=7)
    rates = {"embedding": 0.01, "position": 0.01, "hidden": 0.005, "output": 0.02, "vector": 0.005}
    stds = {"embedding": 0.0625, "position": 0.0625, "hidden": 0.125, "output": 0.25, "vector": 0.125}
    assert (lane.learning_rates, lane.init_std, lane.seed) == (pytest.approx(rates), stds, 7)


# --- tables of known answer -------------------------------------------------------------------------------------------


def table_of(config, loss, diverged=lambda *_: False):
    """What a sweep would find where a lane ends at `loss(d, η_E, η_H d, factors)`, by way of JSON."""
    rows = []
    for c in width_fixed_vocab.cells(config):
        d, lanes = c.cell.model.width, iter(c.lanes)
        for setting, _ in product(width_fixed_vocab.settings(config), config.seeds):
            lost = diverged(d, *setting)
            outcome = {"status": "diverged", "train_loss": None}
            if not lost:
                outcome = {"status": "finished", "train_loss": float(loss(d, *setting))}
            lane = {"cell": {"model": {"width": d, "vocab": config.vocab}}, "lane": asdict(next(lanes))}
            rows.append({"hash": "", "config": lane, "outcome": outcome, "provenance": {}})
    return records.table(json.loads(records.dumps(rows)))


def bowl(power, better=None, by=1.2, noise=0.001, seed=0):
    """2 + a parabola in ln η_E about 0.03 (d/64)^power and one in ln η_H about 0.2/d; factors away from 1 cost 3 %, but
    `better` = (name, value) gains: the loss is divided by `by`."""
    rng = np.random.default_rng(seed)

    def loss(d, rate, hidden, factors):
        value = 2 + 0.3 * (np.log(rate / 0.03) - power * np.log(d / 64)) ** 2 + 0.3 * np.log(hidden / 0.2) ** 2
        for name, factor in factors.items():
            value *= 1 if factor == 1.0 else 1 / by if (name, factor) == better else 1.03
        return value * (1 + noise * rng.normal())

    return loss


def everything(table, config, draw=False):
    text = width_fixed_vocab.summary(table, config)
    figure = width_fixed_vocab.figure(table, config, tier="none", corpus="none", partial=(1, 2))
    if draw:
        figure.draw_without_rendering()
    return text, width_fixed_vocab.claims(table, config, CONTEXT)


@pytest.mark.parametrize(
    "power, verdict",
    [(-0.5, "supported"), (0.0, "unresolved"), (0.4, "contradicted"), (-1.4, "contradicted")],
)
def test_the_claim_about_the_exponent_follows_the_data(power, verdict):
    """Over 3 synthetic sweeps: an interval of 95 % may miss now and then, but not twice."""
    right = 0
    for seed in range(3):
        table = table_of(LEAN, bowl(power, noise=0.005, seed=seed))
        claim, near = width_fixed_vocab.claims(table, LEAN, CONTEXT)
        assert claim.value == pytest.approx(power, abs=0.05) and claim.note == "4 of 4 widths resolved"
        right += claim.verdict == verdict
        assert near.verdict == "supported"
    assert right >= 2


BETTER = {
    "another output rate": ("output_rate_factors", 4.0),
    "another output init": ("output_std_factors", 4.0),
}


@pytest.mark.parametrize("config", [STAR, FULL], ids=["star", "full"])
@pytest.mark.parametrize("better", BETTER.values(), ids=BETTER)
def test_equal_settings_that_cost_a_fifth_are_not_near_optimal(config, better):
    table = table_of(config, bowl(-0.5, better=better))
    text, (_, claim) = width_fixed_vocab.summary(table, config), width_fixed_vocab.claims(table, config, CONTEXT)
    assert claim.verdict == "contradicted" and claim.value == pytest.approx(0.2, abs=0.005)
    assert claim.interval[0] < claim.value < claim.interval[1] < 0.21
    line = next(line for line in text.splitlines() if line.startswith(f"{FACTORS[better[0]]} = {better[1]:g} "))
    assert [float(x) for x in line.split()[-len(config.widths) :]] == pytest.approx(
        [-100 / 6] * len(config.widths), abs=0.5
    )


def test_a_cost_near_the_tolerance_is_unresolved():
    table = table_of(STAR, bowl(-0.5, better=("output_rate_factors", 4.0), by=1.05, noise=0.02))
    low, high = width_fixed_vocab.near_optimal(table, STAR)[1]
    assert low < STAR.tolerance < high
    assert width_fixed_vocab.claims(table, STAR, CONTEXT)[1].verdict == "unresolved"
    strict = replace(STAR, tolerance=high + 0.01)
    assert width_fixed_vocab.claims(table, strict, CONTEXT)[1].verdict == "supported"


@pytest.mark.parametrize("config", [STAR, FULL], ids=["star", "full"])
def test_gaps_are_what_they_are_said_to_be(config):
    """Against the table without pandas, at noise that makes every choice matter."""
    lost = config.rates[2]
    table = table_of(config, bowl(-0.5, noise=0.1), diverged=lambda d, rate, *_: d == 32 and rate == lost)
    found = defaultdict(lambda: defaultdict(list))
    for r in table.sort_values("lane.seed", kind="stable").to_dict("records"):
        std, hidden = r["cell.model.width"] ** -0.5, r[HIDDEN]
        ratios = (r["lane.learning_rates.output"] / hidden, r["lane.init_std.embedding"] / std)
        factors = tuple(round(x, 9) for x in (*ratios, r["lane.init_std.output"] / std))
        loss = r["train_loss"] if r["status"] == "finished" else np.inf
        found[r["cell.model.width"]][r[EMBEDDING], hidden, factors].append(loss)
    expected = []
    for width in config.widths:
        best = min(found[width].values(), key=np.mean)
        common = min((v for k, v in found[width].items() if k[2] == (1.0, 1.0, 1.0)), key=np.mean)
        expected.append(np.array(common) / best - 1)
    assert np.abs(expected).max() > 0.01
    assert width_fixed_vocab.gaps(table, config) == pytest.approx(np.array(expected), rel=1e-12)
    value, interval = width_fixed_vocab.near_optimal(table, config)
    by_width = np.mean(expected, axis=1)
    theirs = stats.ttest_1samp(by_width, 0).confidence_interval(0.95)
    assert value == pytest.approx(by_width.mean()) and interval == pytest.approx((theirs.low, theirs.high))


def test_the_curve_is_that_of_the_best_hidden_rate():
    def loss(d, rate, hidden, factors):
        best, gain = 0.4 if d == 48 else 0.1, 1.0 * (factors != COMMON)
        return 2 + abs(np.log(hidden / best)) - gain + 0.1 * np.log(rate / 0.03) ** 2

    table = table_of(STAR, loss)
    assert [width_fixed_vocab.best_hidden(table, STAR, d) for d in STAR.widths] == [0.1, 0.4, 0.1, 0.1]
    for curve in width_fixed_vocab.curves(table, STAR):
        expected = 2 + 0.1 * np.log(np.array(STAR.rates) / 0.03) ** 2
        assert curve == pytest.approx(np.stack([expected] * len(STAR.seeds)), rel=1e-12)


# --- diverged and missing lanes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole():
    return table_of(PART, bowl(-0.5))


PARTS = {
    "one lane": lambda table: table.iloc[:1],
    "a few lanes": lambda table: table.iloc[[0, 5, 30, 31, 80, -1]],
    "one seed": lambda table: table[table["lane.seed"] == 1],
    "nothing at factors of one": lambda table: table[table["lane.learning_rates.output"] < table[HIDDEN]],
    "nothing at other factors": lambda table: table[
        (table["lane.learning_rates.output"] == table[HIDDEN])
        & np.isclose(table["lane.init_std.output"], table["cell.model.width"] ** -0.5)
    ],
    "all diverged": lambda table: table.assign(status="diverged", train_loss=None),
    "one width diverged": lambda table: table.assign(
        status=table["status"].where(table["cell.model.width"] != 48, "diverged")
    ),
}
JUDGED = {"nothing at other factors": ["supported", "supported"]}


@pytest.mark.parametrize("part", PARTS)
def test_a_partial_table_is_no_crash(whole, part):
    table = PARTS[part](whole)
    assert 0 < len(table) and (len(table) < len(whole) or "diverged" in set(table["status"]))
    _, made = everything(table, PART, draw=part == "a few lanes")
    assert [c.verdict for c in made] == JUDGED.get(part, ["unresolved", "unresolved"])
    records.dumps([c.to_dict() for c in made])  # strict JSON, or it raises


def test_a_whole_table_says_everything(whole):
    """The negative control of the parts."""
    text, made = everything(whole, PART, draw=True)
    assert [c.verdict for c in made] == ["supported", "supported"]
    assert f"ln(width): {made[0].value:.2f}" in text and "nan" not in text
    # A value of a factor a line, none for its common value.
    assert [line[:14].strip() for line in text.splitlines()[-2:]] == ["η_W/η_H = 0.25", "σ_W √d = 4"]


def test_settings_that_are_all_equal_leave_nothing_to_compare():
    config = replace(LEAN, output_rate_factors=(1.0,))
    text, made = everything(table_of(config, bowl(-0.5)), config, draw=True)
    assert [c.verdict for c in made] == ["supported", "supported"] and made[1].value == 0
    assert text.splitlines()[-1].startswith("setting")


# --- a table's lanes as a grid ----------------------------------------------------------------------------------------


def lanes(*rows):
    return pd.DataFrame(rows, columns=[EMBEDDING, "lane.seed", "train_loss", "status"])


def test_grid_puts_every_lane_at_its_seed_and_rate():
    rows = lanes(
        (0.2, 5, 1.25, "finished"),
        (0.1, 3, 1.13, "finished"),
        (0.2, 3, None, "diverged"),
        (0.3, 3, 9.0, "finished"),  # another rate
        (0.1, 4, 9.0, "finished"),  # another seed
        (0.1 + 1e-12, 5, 9.0, "finished"),  # nearly is not the same
    )
    found = grid(rows, (0.1, 0.2), (3, 5))
    assert np.array_equal(found, [[1.13, np.inf], [np.nan, 1.25]], equal_nan=True)
    assert np.array_equal(grid(rows.iloc[::-1], (0.1, 0.2), (3, 5)), found, equal_nan=True)
    assert np.array_equal(grid(rows, (0.2, 0.1), (5, 3)), found[::-1, ::-1], equal_nan=True)


def test_a_diverged_lane_is_infinite_whatever_its_loss():
    rows = lanes((0.1, 0, 3.0, "diverged"), (0.2, 0, np.nan, "diverged"))
    assert np.array_equal(grid(rows, (0.1, 0.2), (0,)), [[np.inf, np.inf]])


def test_an_empty_table_is_a_grid_of_missing_lanes():
    assert np.isnan(grid(lanes(), (0.1, 0.2), (0, 1, 2))).all() and grid(lanes(), (0.1,), (0,)).shape == (1, 1)


def test_grid_reads_another_loss():
    rows = lanes((0.1, 0, 1.5, "finished"), (0.2, 0, 1.6, "diverged")).assign(valid_loss=[2.5, 2.6])
    assert np.array_equal(grid(rows, (0.1, 0.2), (0,), "valid_loss"), [[2.5, np.inf]])


def test_where_wants_all_values_at_once():
    rows = lanes((0.1, 0, 1.0, "finished"), (0.1, 1, 2.0, "finished"), (0.2, 0, 3.0, "diverged"))
    assert list(where(rows, {EMBEDDING: 0.1, "lane.seed": 0})["train_loss"]) == [1.0]
    assert list(where(rows, {"lane.seed": 0})["train_loss"]) == [1.0, 3.0]
    assert len(where(rows, {"lane.seed": 9})) == 0 and where(rows, {}).equals(rows)


# --- configurations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "values, says",
    [
        ({"widths": ""}, "widths is empty"),
        ({"rates": ""}, "rates is empty"),
        ({"hidden_rates": ""}, "hidden_rates is empty"),
        ({"seeds": ""}, "seeds is empty"),
        *(({name: ""}, f"{name} is empty") for name in FACTORS),
        *(({name: "0.25,4"}, f"{name} must hold 1") for name in FACTORS),
        *(({name: "1,1"}, f"{name} holds a value twice") for name in FACTORS),
        *(({name: "-4,1"}, f"{name} must be finite and above zero, got -4") for name in FACTORS),
        ({"widths": "32,32"}, "widths holds a value twice"),
        ({"rates": "0.1,0.2"}, "rates needs at least 3"),
        ({"rates": "-0.1,0.1,0.2"}, "rates must be finite and above zero, got -0.1"),
        ({"hidden_rates": "0,0.1"}, "hidden_rates must be finite and above zero"),
        ({"hidden_rates": "0.1,0.1"}, "hidden_rates holds a value twice"),
        ({"design": "cross"}, "design must be one of full, star, got 'cross'"),
        ({"tolerance": "0"}, "tolerance"),
        ({"tolerance": "nan"}, "tolerance"),
        ({"tolerance": "inf"}, "tolerance"),
        ({"steps": 0}, "steps"),
        ({"vocab": 0}, "vocab"),
        ({"widths": "0,32"}, "widths must be finite and above zero, got 0"),
        ({"batch": 0}, "batch"),
        ({"vocabs": "256"}, "did you mean vocab"),
    ],
)
def test_unusable_values_get_one_line(values, says):
    with pytest.raises(InputError, match=says) as caught:
        width_fixed_vocab.cells(experiments.configured("width_fixed_vocab", "smoke", values))
    assert "\n" not in str(caught.value)
