"""warmup: planted gaps, norms and angles give the expected verdicts."""

from collections import Counter
from dataclasses import asdict, replace

import numpy as np
import pytest

from lvp import experiments
from lvp.analysis.claims import NOT_TESTED
from lvp.errors import InputError
from lvp.experiments import warmup
from lvp.experiments.common.decoder_runs import geometric
from lvp.experiments.warmup import analysis
from lvp.experiments.warmup import config as warmup_runs
from lvp.experiments.warmup.config import GROUPS
from lvp.training import records

LAPTOP = warmup_runs.PRESETS["laptop"]
# All groups on small grids without reserve. High momentum is 0.92: the horizon of 0.98 is 12 % of the steps.
CONFIG = replace(
    LAPTOP,
    seeds=(0, 1),
    more_seeds=tuple(range(100, 108)),
    warmups=(0.0, 0.05, 0.2),
    reserve=0,
    adam_rates=geometric(0.008, 0.0508, 5),
    high_adam_rates=geometric(0.008, 0.064, 4),
    rotational_rates=geometric(0.015, 0.08, 4),
    high_rotational_rates=geometric(0.0126, 0.4, 5),
    still_rates=geometric(0.0015, 0.02, 4),
    held_rates=geometric(0.006, 0.0753, 5),
    high_momentum=0.92,
    groups=tuple(GROUPS),
)
CONTEXT = {"experiment": "warmup", "preset": "laptop", "corpus": "none", "commit": "none"}
# Planted cost of leaving out warm-up, and the planted loss of a group above LionAR's.
GAP = {"AdamW": 0.3, "AdamW, no β₁ correction": 0.2, "LionA": 0.2, "LionAR": 0.1, "LionA, high momentum": 0.1}
GAP |= {"LionA, init × 1/3": 0.3}
CURVATURE = {"LionAR": 0.02}  # of the loss over the logarithm of the rate; 0.2 in the other groups
LEAD = {"training loss": 0.2}  # of runs without warm-up, after a tenth of the steps
WORSE = {"LionAR, no momentum": 0.4, "LionAR, measured RRC held": 0.1}
# Ratio of the first measured step to the steps that follow the schedule.
EARLY = {"AdamW": {"norm": 3.0, "angle": 3.0}, "LionA": {"angle": 2.0}, "LionAR": {"representation_change": 2.0}}
EARLY |= {"LionA, init × 1/3": {"angle": 4.0}}


def outcome(config, name, rate, warmup_steps, seed):
    rates = warmup_runs.rates_of(config, name)
    loss = 3 + CURVATURE.get(name, 0.2) * np.log(rate / rates[1]) ** 2 + WORSE.get(name, 0) + 0.01 * (seed % 7)
    loss += GAP.get(name, 0) * (warmup_steps == 0)
    noise = np.random.default_rng([seed, warmup_steps, list(GROUPS).index(name)])  # distinct for every group
    loss += 0.002 * noise.normal()
    measured = {}
    for what in ("norm", "angle", "representation_change"):
        values = 0.1 * analysis.schedule(config, warmup_steps / config.steps)
        values[0] *= EARLY.get(name, {}).get(what, 1.0)
        measured[what] = list(values)
    matrices = {"block_0/mlp/up/kernel": measured, "tied_embedding/embedding": measured}
    hidden = {k: measured[k] for k in ("norm", "angle")} | {"snr": [0.1] + [0.05] * (len(config.measured_steps) - 1)}
    measures = {"roles": {"hidden": hidden}, "matrices": matrices}
    at_first = 5.0 - LEAD["training loss"] * (warmup_steps == 0) + 0.002 * noise.normal()
    curve = {"curve_steps": [40, 400], "curve_losses": [at_first, loss]}
    return {"status": "finished", "train_loss": loss, "valid_loss": loss, "measures": measures} | curve


def table_of(config, settings):
    rows = []
    for name in config.groups:
        (runs, setting) = [
            (c.runs, c.setting) for c in settings if c.setting == warmup_runs.group_setting(config, name)
        ][0]
        described, group = asdict(setting), warmup_runs.group_run(config, name, 0.1, 0.0, 0)
        for run in runs:
            if (run.options, run.init_std) == (group.options, group.init_std):
                made = outcome(config, name, run.learning_rates["hidden"], run.warmup_steps, run.seed)
                config_of = {"cell": described, "lane": vars(run)}
                rows.append({"hash": str(len(rows)), "config": config_of, "outcome": made, "provenance": {}})
    return records.table(rows)


@pytest.fixture(scope="module")
def whole():
    return followed(CONFIG)


def followed(config):
    """Returns the table of the first runs and of their follow-up runs, in rounds as a driver trains them."""
    settings = warmup_runs.settings(config)
    while True:
        table = table_of(config, settings)
        more = warmup.analysis.follow_up(table, config)
        new = {c.label: [run for run in more[c.label] if run not in c.runs] for c in settings}
        if not any(new.values()):
            return table
        settings = [c._replace(runs=[*c.runs, *new[c.label]]) for c in settings]


LARGER_RATES = [
    "without warm-up, a rate above the best costs AdamW and LionA more loss than LionAR "
    f"({name} at 2 times its best rate, LionAR at {factor} times)"
    for name in ("AdamW", "LionA")
    for factor in (2, 4)
]
HIGH = warmup.claims.HIGH
LASTING = "without warm-up AdamW ends at a higher loss (than with the best warm-up)"


def verdicts(table, config=CONFIG):
    return {c.full_statement: c.verdict for c in warmup.claims.claims(table, config, CONTEXT)}


def test_groups_share_programs_where_only_traced_numbers_differ(whole):
    settings = warmup_runs.settings(CONFIG)
    # Three groups are LionAR with different β, and three are LionA with different init stds.
    assert len(CONFIG.groups) == 12 and len(settings) == 8
    assert sum(len(c.runs) for c in settings) == (7 * 5 + 4 * 4) * 3 * 2
    # LionA's stable rate is not its best. One group has AdamW's rate. Multiples of the best rate: 1 + 1 + 2.
    assert len(whole) == (7 * 5 + 4 * 4) * 3 * 2 + 11 * 3 * 8 + 2 * 8 + 8 + 4 * 8
    by_label = {c.label: c for c in settings}
    assert {run.options["b"] for run in by_label["LionAR"].runs} == {0.9, 0.92, 0.0}
    for c in settings:
        assert c.setting.micro_batches > 1 and c.setting.cooldown == 0.5
        for run in c.runs:
            c.setting.check(run)
    assert by_label["LionAR, RRC held"].setting.optimizer.options["weight_decay"] == 3.2


def test_a_grid_grows_until_the_best_rate_is_inside():
    """The planted best rate is the second of the grid, which is in reserve. The stable rates end at the fourth rate."""
    config = replace(LAPTOP, groups=("LionA", "LionAR"), more_seeds=(100, 101, 102))
    first = warmup_runs.settings(config)
    table = followed(config)
    for name in config.groups:
        rates = warmup_runs.rates_of(config, name)
        (setting,) = [c for c in first if c.setting == warmup_runs.group_setting(config, name)]
        assert {run.learning_rates["hidden"] for run in setting.runs} == set(rates[2:-2])
        rows = table[table["setting.optimizer.kind"] == GROUPS[name].kind]
        by_seed = rows.groupby("run.seed")["run.learning_rates.hidden"].agg(set)
        assert all(by_seed[seed] == set(rates[:-2]) for seed in config.seeds)
        further = {rate for rate, _ in analysis.further_points(table, config, name)}
        assert all(by_seed[seed] == {rates[1]} | further for seed in config.more_seeds)
        assert not any(analysis.at_edge(table, config, name, w) for w in config.warmups)
    limit = {c.label: c.runs for c in warmup_runs.all_runs(config)}
    for setting in first:
        assert all(run in limit[setting.label] for run in setting.runs)
    assert len(table) <= sum(map(len, limit.values()))


def test_a_grid_without_a_finished_rate_grows_downwards():
    config = replace(LAPTOP, groups=("AdamW",))
    table = table_of(config, warmup_runs.settings(config))
    table[["status", "valid_loss"]] = ["diverged", np.nan]
    assert analysis.next_rates(table, config, "AdamW", 0.0) == [0.008]
    assert analysis.next_rates(table.iloc[:0], config, "AdamW", 0.0) == []


def test_claims_follow_the_planted_values(whole):
    claim_verdicts = verdicts(whole)
    assert set(claim_verdicts.values()) == {"supported"}
    assert analysis.gap(whole, CONFIG, "AdamW", [0.05, 0.2]).value == pytest.approx(0.3, abs=0.01)


@pytest.mark.slow
def test_claims_reverse_with_the_data(monkeypatch):
    """Negative control: no gaps where the paper has them, one where it has none, and early spikes elsewhere."""
    monkeypatch.setitem(GAP, "AdamW", 0.0)
    monkeypatch.setitem(GAP, "LionAR, high momentum", 0.3)
    monkeypatch.setitem(WORSE, "LionAR, no momentum", -0.1)
    monkeypatch.setitem(WORSE, "LionAR, high momentum only", 0.2)
    monkeypatch.setitem(EARLY, "LionAR", {"angle": 2.0, "representation_change": 0.5})
    monkeypatch.setitem(EARLY, "AdamW, no β₁ correction", {"norm": 2.5})
    monkeypatch.setitem(EARLY, "LionA, init × 3", {"angle": 5.0})
    monkeypatch.setitem(GAP, "LionA, init × 3", 0.4)
    monkeypatch.setitem(CURVATURE, "LionAR", 0.5)
    monkeypatch.setitem(LEAD, "training loss", -0.2)
    claim_verdicts = verdicts(followed(CONFIG))
    wrong = {statement for statement, verdict in claim_verdicts.items() if verdict == "contradicted"}
    assert wrong == {
        "under LionA and LionAR warm-up lowers the final loss less than under AdamW (LionA)",
        "under LionA and LionAR warm-up lowers the final loss less than under AdamW (LionAR)",
        "without warm-up the first update exceeds the median one at constant rate, in the measure of that optimizer's "
        "figure (LionAR, "
        "relative change of representations)",
        "LionAR without momentum ends at least 0.05 nats above LionAR",
        f"{HIGH} (LionAR)",
        "without warm-up AdamW ends at a higher loss (than with the best warm-up)",
        "without warm-up AdamW ends at a higher loss (than with 20% of warm-up)",
        "without warm-up AdamW ends at a higher loss (than with 5% of warm-up)",
        "at the same rate, AdamW trains faster at first without warm-up than with it",
        "without warm-up AdamW ends at a higher loss (than with 20% of warm-up at the same rate)",
        "the excess of AdamW's first updates comes mostly from the correction of β₁'s bias",
        "at high momentum Nesterov's form and inverse bias correction lower LionAR's loss by at most 0.05 nats",
        "smaller initial weights make LionA's first angles larger, relative to later angles",
        "warm-up lowers LionA's final loss more if the initial weights are smaller",
        *LARGER_RATES,
    }


@pytest.mark.slow
def test_equal_groups_support_no_difference(monkeypatch):
    """Negative control: no gaps, no group worse, no spikes. Gaps below the threshold do not count."""
    for planted in (GAP, WORSE, EARLY):
        for name in list(planted):
            monkeypatch.setitem(planted, name, {} if planted is EARLY else 0.002)
    monkeypatch.setitem(CURVATURE, "LionAR", 0.2)
    monkeypatch.setitem(LEAD, "training loss", 0.0)
    claim_verdicts = verdicts(followed(CONFIG))
    supported = {statement for statement, verdict in claim_verdicts.items() if verdict == "supported"}
    assert supported == {
        "LionAR whose updates are divided by their measured relative representation change gains nothing from warm-up",
        f"{HIGH} (LionAR)",
        "at high momentum Nesterov's form and inverse bias correction lower LionAR's loss by at most 0.05 nats",
    }


@pytest.mark.slow
def test_a_verdict_that_depends_on_a_grid_edge_is_unresolved(whole):
    """The best rate moves to the first rate of the grid: first for AdamW without warm-up only, then for AdamW with
    it."""
    rates = CONFIG.adam_rates
    swap = {rates[0]: rates[1], rates[1]: rates[0]}
    for without, verdict in ((True, "unresolved"), (False, "supported")):
        table = whole.copy()
        swapped = (table["setting.optimizer.kind"] == "adamw") & ((table["run.warmup_steps"] == 0) == without)
        swapped &= table["run.learning_rates.hidden"].isin(swap)
        table.loc[swapped, "run.learning_rates.hidden"] = table["run.learning_rates.hidden"][swapped].map(swap)
        (claim,) = [c for c in warmup.claims.claims(table, CONFIG, CONTEXT) if c.full_statement == LASTING]
        assert claim.verdict == verdict  # with warm-up a better rate could only widen the gap
        assert ("edge of its grid: AdamW at 0%" in claim.note) == without


def test_verdicts_use_other_seeds_than_the_choice_of_rate(whole):
    table = whole.copy()
    first = table["run.seed"].isin(CONFIG.seeds)
    table.loc[first, "valid_loss"] -= 1.0  # the shift does not change the best rates
    for name in (name for name in CONFIG.groups if not GROUPS[name].rate_of):
        gaps = [analysis.gap(sweep, CONFIG, name, [0.2]).value for sweep in (table, whole)]
        assert gaps[0] == gaps[1]


def test_the_drawn_schedule_equals_the_trained_schedule():
    from lvp import optim

    for part in CONFIG.warmups:
        rate = optim.trapezoid(1.0, CONFIG.steps, part, CONFIG.cooldown)
        trained = [float(rate(step)) for step in CONFIG.measured_steps]
        np.testing.assert_allclose(analysis.schedule(CONFIG, part), trained, rtol=1e-6)


@pytest.mark.slow
def test_diverged_rates_are_skipped_and_groups_reported(whole):
    table = whole.copy()
    best = table["run.learning_rates.hidden"] == CONFIG.adam_rates[1]
    table.loc[best & (table["setting.optimizer.kind"] == "adamw"), ["status", "valid_loss"]] = ["diverged", np.nan]
    assert analysis.best_rate(table, CONFIG, "AdamW", 0.0) in (CONFIG.adam_rates[0], CONFIG.adam_rates[2])
    lost = table["setting.optimizer.kind"] == "lion_a"
    table.loc[lost, ["status", "valid_loss"]] = ["diverged", np.nan]
    claim_verdicts = verdicts(table)
    assert claim_verdicts["without warm-up LionA ends at a higher loss (than with the best warm-up)"] == "unresolved"
    assert claim_verdicts["without warm-up LionAR ends at a higher loss (than with the best warm-up)"] == "supported"
    assert "nan" not in warmup.analysis.summary(table, CONFIG)
    assert warmup.figure.figure(table, CONFIG, preset="laptop", corpus="none", partial=(1, 2)).axes


def test_missing_groups_have_no_claims():
    config = replace(CONFIG, groups=("LionAR",))
    table = followed(config)
    asked = verdicts(table, config)
    assert asked and all("LionAR" in statement for statement in asked)
    assert "LionAR" in warmup.analysis.summary(table, config)
    assert warmup.figure.figure(table, config, preset="laptop", corpus="none", partial=None).axes


def test_the_paper_preset_is_the_published_set_up():
    config = warmup_runs.PRESETS["paper"]
    setting = warmup_runs.group_setting(config, "AdamW")
    model = setting.model
    assert (model.layers, model.width, model.head_dim, model.context, model.tied) == (12, 768, 64, 1024, True)
    assert (setting.batch, setting.steps, setting.cooldown) == (480, 5000, 0.5)
    assert setting.optimizer.options == {"weight_decay": 0.1, "b2": 0.95, "eps": 1e-8}
    assert warmup_runs.group_run(config, "AdamW", 1e-3, 0.05, 0).options == {"b1": 0.9}
    # nanoGPT's values
    assert (setting.clip_norm, model.vocab, model.biases, model.gelu) == (1.0, 50304, False, "exact")
    assert model.init_factor("block_0/mlp/down/kernel") == 24**-0.5 and model.norm_epsilon == 1e-5
    laptop = warmup_runs.group_setting(warmup_runs.PRESETS["laptop"], "AdamW")
    assert (laptop.clip_norm, laptop.model.biases, laptop.model.gelu) == (None, True, "tanh")


def test_micro_batches_that_do_not_divide_the_batch_are_refused():
    with pytest.raises(InputError, match=r"micro_batches \(5\) must divide batch"):
        warmup_runs.settings(experiments.configured("warmup", "laptop", {"micro_batches": 5}))


def test_momentum_over_a_large_part_of_training_is_not_tested():
    """β = 0.98 averages over 50 steps: 12 % of 400 steps, and 1 % of the paper's 5000."""
    config = replace(CONFIG, high_momentum=0.98, groups=("LionAR, high momentum",))
    claims = warmup.claims.claims(followed(config), config, CONTEXT)
    reasons = {(claim.verdict, claim.reason) for claim in claims if "high momentum" in claim.statement}
    assert reasons == {(NOT_TESTED, "β = 0.98 averages over 50 steps, 12% of training; paper: 1%")}


def test_a_rate_at_the_edge_of_stability_decides_nothing():
    """The selecting seeds miss that LionA is unstable at its best rate, as two seeds did in training."""
    config = replace(CONFIG, groups=("LionA",))
    table = followed(config).copy()
    best = analysis.best_rate(table, config, "LionA", 0.05)
    unstable = (table["run.learning_rates.hidden"] == best) & (table["run.warmup_steps"] > 0)
    table.loc[unstable & table["run.seed"].isin(config.more_seeds[::2]), "valid_loss"] += 1.0
    by_seed = analysis.gap_at_best_rates(table, config, "LionA", 0.05)
    assert (
        by_seed.value < -0.2
        and verdicts(table, config)["without warm-up LionA ends at a higher loss (than with the best warm-up)"]
        == "unresolved"
    )


def stable_claim(table, config):
    (claim,) = [c for c in warmup.claims.claims(table, config, CONTEXT) if "the largest rate" in c.variant]
    return claim


@pytest.mark.parametrize("loss", [5.0, np.nan], ids=["a large loss", "diverged"])
def test_a_few_unstable_seeds_do_not_cancel_the_claim(loss):
    config = replace(CONFIG, groups=("LionA",), adam_rates=(0.01, 0.014, 0.0196, 0.04))  # the last is unstable
    table = followed(config).copy()
    before = stable_claim(table, config)
    assert before.verdict == "supported" and "for 8 of 8 judging seeds" in before.note
    stable = analysis.stable_rate(table, config, "LionA")
    without = (table["run.learning_rates.hidden"] == stable) & (table["run.warmup_steps"] == 0)
    table.loc[without & (table["run.seed"] == config.more_seeds[0]), "valid_loss"] = loss
    after = stable_claim(table, config)
    assert after.verdict == "unresolved" and "for 7 of 8 judging seeds" in after.note
    table.loc[without & table["run.seed"].isin(config.more_seeds[:2]), "valid_loss"] = loss
    assert stable_claim(table, config).reason.endswith("unstable with 2 of 8 judging seeds")  # more than a fifth


def test_instability_alone_supports_no_gap():
    """Negative control: no gap, and the largest number of unstable judging seeds at which the claim is judged."""
    config = replace(
        CONFIG, groups=("LionA",), adam_rates=(0.01, 0.014, 0.0196, 0.04), more_seeds=tuple(range(100, 116))
    )
    table = followed(config).copy()
    without = table["run.warmup_steps"] == 0
    table.loc[without, "valid_loss"] -= GAP["LionA"]
    stable = analysis.stable_rate(table, config, "LionA")
    for unstable, judged in ((3, True), (4, False)):
        seeds = table["run.seed"].isin(config.more_seeds[:unstable])
        table.loc[without & seeds & (table["run.learning_rates.hidden"] == stable), "valid_loss"] = 5.0
        claim = stable_claim(table, config)
        assert claim.verdict == ("unresolved" if judged else NOT_TESTED)


def test_a_gap_of_another_sign_leaves_the_claim_open():
    """The next rate is not stable without warm-up. Warm-up helps at the stable rate, and hurts at the next rate."""
    config = replace(CONFIG, groups=("LionA",), adam_rates=(0.01, 0.014, 0.0196, 0.04))
    table = followed(config).copy()
    above = (table["run.learning_rates.hidden"] == 0.04) & (table["run.warmup_steps"] > 0)
    gap, stable = analysis.gap_above_stable_rate(table, config, "LionA")
    assert gap == pytest.approx(GAP["LionA"], abs=0.01) and stable == 0
    table.loc[above, "valid_loss"] += 1.0
    claim = stable_claim(table, config)
    assert claim.verdict == "unresolved" and "would be supported, but the gap at the next rate" in claim.note
    table.loc[above, "valid_loss"] = np.nan
    assert stable_claim(table, config).verdict == "supported"  # negative control: the next rate is unknown


def test_only_a_held_rrc_tests_claims_about_it(monkeypatch):
    config = replace(CONFIG, groups=("LionAR", "LionAR, measured RRC held"))
    for first, untested in ((2.0, True), (1.2, False)):
        monkeypatch.setitem(EARLY, "LionAR, measured RRC held", {"representation_change": first})
        about = [c for c in warmup.claims.claims(followed(config), config, CONTEXT) if "are divided by" in c.statement]
        assert [c.verdict == NOT_TESTED for c in about] == [untested] * 2
        assert all(("is 2.0 times" in c.reason) == untested for c in about)


def test_the_last_tried_rate_may_not_be_the_largest_stable():
    config = replace(CONFIG, groups=("LionA",), adam_rates=(0.0127, 0.016, 0.0202))  # all stable
    claim = stable_claim(followed(config), config)
    assert (claim.verdict, claim.reason) == (
        NOT_TESTED,
        "the largest rate tried, 0.0202, is stable without warm-up",
    )


def test_a_small_rate_with_a_large_loss_is_stable():
    """Without warm-up every seed is unstable from the second rate on. The loss at the first rate is 0.3 above the best
    mean: undertrained, but the same for all seeds."""
    config = replace(CONFIG, groups=("LionA",), adam_rates=(0.008, 0.016, 0.032))
    losses = np.array([[3.8, 3.81], [3.4, 3.65], [4.0, 4.5]])  # [rates, seeds]
    table = followed(config).copy()
    for rate, by_seed in zip(config.adam_rates, losses, strict=True):
        for seed, loss in zip(config.seeds, by_seed, strict=True):
            chosen = (table["run.learning_rates.hidden"] == rate) & (table["run.seed"] == seed)
            table.loc[chosen & (table["run.warmup_steps"] == 0), "valid_loss"] = loss
    assert analysis.best_rate(table, config, "LionA", 0.0) == 0.016
    assert analysis.stable_rate(table, config, "LionA") == 0.008


def test_the_stable_rate_is_the_largest_stable_one(whole):
    rates = warmup_runs.rates_of(CONFIG, "LionA")
    means = analysis.losses(whole, CONFIG, "LionA", 0.0).mean(axis=1)
    stable = [rate for rate, loss in zip(rates, means, strict=True) if loss < means.min() + analysis.UNSTABLE - 0.02]
    assert analysis.stable_rate(whole, CONFIG, "LionA") == max(stable)
    table = whole.copy()
    spoilt = (table["setting.optimizer.kind"] == "lion_a") & (table["run.learning_rates.hidden"] == max(stable))
    table.loc[spoilt & (table["run.seed"] == CONFIG.seeds[0]), "valid_loss"] += 1.0
    assert analysis.stable_rate(table, CONFIG, "LionA") == sorted(stable)[-2]


@pytest.mark.slow
@pytest.mark.parametrize(("helps", "wrong"), [(0.1, "contradicted"), (0.0, "supported")])
def test_the_claim_about_the_gap_is_rarely_wrong(helps, wrong):
    """Draws 100 sweeps of the laptop preset. Without warm-up the loss is larger by `helps`.

    At any warm-up a run loses 0.3 nats with a probability that grows with the rate, as near the edge of stability.
    """
    config = replace(LAPTOP, groups=("AdamW",), reserve=0)
    (setting,) = warmup_runs.settings(config)
    judging = [
        warmup_runs.group_run(config, "AdamW", rate, w, seed)
        for rate in config.adam_rates
        for w in config.warmups
        for seed in config.more_seeds
    ]
    table = table_of(config, [setting._replace(runs=[*setting.runs, *judging])])
    rates = table["run.learning_rates.hidden"].to_numpy()
    unstable = 1 / (1 + np.exp(-4 * np.log(rates / 0.02)))
    means = 3.4 + 0.06 * np.log(rates / 0.02) ** 2 + helps * (table["run.warmup_steps"] == 0)
    rng, counts = np.random.default_rng(0), Counter()
    for _ in range(100):
        losses = means + 0.02 * rng.normal(size=len(table)) + 0.3 * (rng.random(len(table)) < unstable)
        claims = warmup.claims.claims(table.assign(valid_loss=losses), config, CONTEXT)
        counts.update(claim.verdict for claim in claims if claim.full_statement == LASTING)
    assert counts.total() == 100 and counts[wrong] <= 5


@pytest.mark.filterwarnings("error")
def test_the_predicted_representation_change_is_equation_9(whole):
    """Planted: φ falls from 0.1 to 0.05, LionAR's angle is constant, and its representation change falls to a half."""
    text = analysis.summary(whole, CONFIG)
    b, (first, later) = CONFIG.batch, (0.1, 0.05)
    predicted = np.sqrt((1 + b * first) / (1 + first) * (1 + later) / (1 + b * later))
    rows = [line.split() for line in text.splitlines() if line.startswith("LionAR  ")]
    by_rate = [row[1:] for row in rows if len(row) == 6]
    assert by_rate == [[f"{rate:.4g}", "2.00", f"{predicted:.2f}", "1.00", "2.00"] for rate in CONFIG.rotational_rates]


def test_early_updates_are_unknown_without_a_later_step(whole):
    """Two measured steps: the first one, and one of the cool-down."""
    few = replace(CONFIG, points=2)
    rows = whole.assign(**{c: whole[c].map(lambda x: x[:1] + x[-1:]) for c in whole if c.startswith("measures.roles")})
    assert np.isnan(analysis.early(rows, few, "AdamW", "norm")).all()
    assert np.isfinite(analysis.early(whole, CONFIG, "AdamW", "norm")).all()  # control
