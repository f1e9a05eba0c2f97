"""leaderboard: entries are transferred as by `optim.transfer`, planted losses give the expected verdicts, and a user's
rule takes part."""

import functools
import json
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import optax
import pytest

from lvp import experiments, optim
from lvp.experiments import leaderboard
from lvp.experiments.common import user_experiments
from lvp.experiments.common.transferred_entries import ENTRIES, Entry, run_of, setting_of
from lvp.experiments.leaderboard import analysis
from lvp.experiments.leaderboard.config import BASE, RECOMMENDED, Reference
from lvp.parametrization import table as rule_table
from lvp.parametrization.scaling import scale
from lvp.roles import ROLES
from lvp.sweeps.__main__ import main
from lvp.training import Run, records

# Four entries and half of the constants: enough for the claims, and fast to plant. The planted references are best at
# LVP's ratio times 4, because some runs of LVP are references with LVP's ratio.
CONFIG = replace(
    leaderboard.PRESETS["laptop"], entries=(RECOMMENDED, "SP", "CompleteP", "μP"), constants=(0.05, 0.1, 0.2, 0.4)
)
SIZES = CONFIG.sizes
PLANTED = {name: ENTRIES[name] for name in CONFIG.entries}
CONTEXT = {"experiment": "leaderboard", "preset": "laptop", "corpus": "none", "commit": "none"}


def table_of(config, runs_by_label, gaps, entries=PLANTED):
    """Returns the table of planted runs: parabolas over the tuned numbers, and a gap at held-out sizes.

    Args:
      gaps: entry → gap to the reference at every held-out size; infinite for an entry that diverges there.
    """
    label_of, losses = leaderboard.config.labels(config, entries), {}
    for (size_name, size), seed in product(config.sizes.items(), config.seeds):
        for reference in leaderboard.config.references(config):
            planted = 2 + 0.1 * np.log(reference.constant / 0.2) ** 2 + 0.1 * np.log(reference.ratio / 4) ** 2
            losses[label_of[size_name, reference.entry], repr(reference.run(size, seed))] = planted
    for (size_name, size), seed, name in product(config.sizes.items(), config.seeds, entries):
        noise = np.random.default_rng([seed, len(losses)])
        for constant in config.constants if size_name == BASE else (0.2,):
            planned = run_of(config, entries[name], size, constant, seed)
            gap = 0.0 if size_name == BASE else gaps[name] + 0.001 * noise.normal()
            losses[label_of[size_name, name], repr(planned)] = 2 * (1 + gap) + 0.1 * np.log(constant / 0.2) ** 2
    rows = []
    described = {c.label: asdict(c.setting) for c in leaderboard.config.settings(config, entries)}
    for label, runs in runs_by_label.items():
        for run in runs:
            loss = losses[label, repr(run)] * (1 + 0.001 * run.seed)
            diverged = {"status": "diverged", "valid_bits_per_byte": None}
            outcome = {"status": "finished", "valid_bits_per_byte": loss} if np.isfinite(loss) else diverged
            config_of = {"cell": described[label], "lane": vars(run)}
            rows.append({"hash": str(len(rows)), "config": config_of, "outcome": outcome, "provenance": {}})
    return records.table(rows)


def whole(config, gaps, entries=PLANTED):
    """Returns the table of the runs that tune and of their follow-up runs."""
    first = {c.label: list(c.runs) for c in leaderboard.config.settings(config, entries)}
    more = analysis.follow_up(table_of(config, first, gaps, entries), config, entries=entries)
    runs = {label: own + [x for x in more[label] if x not in own] for label, own in first.items()}
    return table_of(config, runs, gaps, entries)


def verdicts(table, config=CONFIG, entries=PLANTED):
    return [c.verdict for c in leaderboard.claims.claims(table, config, CONTEXT, entries=entries)]


def test_each_held_out_size_moves_one_axis_at_least_eightfold():
    base = vars(SIZES[BASE])
    assert len(SIZES) == 6
    for name, size in SIZES.items():
        ratios = {axis: value / base[axis] for axis, value in vars(size).items() if value != base[axis]}
        assert ratios == ({} if name == BASE else {name.split()[0]: 8.0})


@pytest.mark.parametrize("preset", leaderboard.PRESETS)
def test_every_run_can_be_trained_in_its_setting(preset):
    config = leaderboard.PRESETS[preset]
    settings = leaderboard.EXPERIMENT.settings(config)
    assert len({c.label for c in settings}) == len(settings) and len(ENTRIES) >= 8
    for c in settings:
        assert len({repr(run) for run in c.runs}) == len(c.runs)
        for run in c.runs:
            c.setting.check(run)


@pytest.mark.parametrize("name", ENTRIES)
@pytest.mark.parametrize("size", SIZES)
def test_a_run_has_the_settings_of_transfer(name, size):
    """Rates, stds, β, ε and multipliers of a run and its setting are those of `optim.transfer` in a user's script."""
    entry, target = ENTRIES[name], SIZES[size]
    constants = {"b1": CONFIG.b1, "b2": CONFIG.b2, "eps": CONFIG.eps}
    factory = functools.partial(optax.adam)
    if entry.optimizer == "muon":  # it has other names for β₁ and β₂
        factory = dict.fromkeys(ROLES, functools.partial(optax.adam, **constants))
        factory["hidden"], constants = optax.contrib.muon, {}
    scaling = scale(SIZES[BASE], target, entry.rule, axes=entry.axes, token_rows=entry.token_rows)
    tx = optim.transfer(factory, scaling, 0.4 / CONFIG.width, **constants)
    planned = run_of(CONFIG, entry, target, 0.4, 0)
    setting = setting_of(CONFIG, entry, target)
    rates = {role: float(tx.settings[role]["learning_rate"]) for role in ROLES}
    assert planned.learning_rates == pytest.approx(rates, rel=1e-9)
    assert planned.init_std == {role: tx.table[role].init_std for role in ROLES}
    options = setting.optimizer.options
    eps = options["eps"] if isinstance(options["eps"], dict) else dict.fromkeys(ROLES, options["eps"])
    assert setting.model.branch_multiplier == tx.table.branch_multiplier
    assert setting.steps * setting.batch * setting.model.context == pytest.approx(target.tokens, rel=0.01)
    assert (setting.model.layers, setting.model.width, setting.model.vocab) == (
        target.depth,
        target.width,
        target.vocab,
    )
    b1, b2 = tx.scaling.betas(CONFIG.b1, CONFIG.b2)
    prefix = "adam_" if entry.optimizer == "muon" else ""
    assert (options[f"{prefix}b1"], options[f"{prefix}b2"]) == (b1, b2)
    assert eps == pytest.approx({role: CONFIG.eps * tx.scaling[role].epsilon for role in ROLES})


def test_entries_with_the_same_rule_are_tuned_by_the_same_runs():
    config = leaderboard.PRESETS["laptop"]
    runs = {c.label: c.runs for c in leaderboard.EXPERIMENT.settings(config)}
    rules = {entry.rule for entry in ENTRIES.values()}
    tuning = len(rules) * len(config.constants) + len(config.reference_constants) * len(config.reference_ratios)
    shared = len(set(config.reference_constants) & set(config.constants))  # LVP's ratio is a reference too
    at_base = sum(len(of_setting) for label, of_setting in runs.items() if label.startswith(BASE))
    assert at_base == config.selecting * (tuning - shared)


def test_claims_follow_the_planted_gaps():
    gaps = {name: 0.01 if name == RECOMMENDED else 0.1 for name in PLANTED}
    assert verdicts(whole(CONFIG, gaps)) == ["supported"] * len(PLANTED)


def test_a_difference_that_hangs_on_one_size_vanishes_without_it():
    reading = analysis.read(whole(CONFIG, dict.fromkeys(PLANTED, 0.01)), CONFIG, PLANTED)
    rival = next(name for name in PLANTED if name != RECOMMENDED)
    ours, theirs = (reading.entries[name].gaps for name in (RECOMMENDED, rival))
    for size in SIZES:
        theirs[size] = ours[size] + 0.2 * (size == list(SIZES)[-1])
    assert reading.mean_gaps(rival).mean() - reading.mean_gaps(RECOMMENDED).mean() == pytest.approx(0.04)
    rest = [(reading.mean_gaps(rival, size) - reading.mean_gaps(RECOMMENDED, size)).mean() for size in SIZES]
    assert rest[1:] == pytest.approx([0.05, 0.05, 0.05, 0.05, 0.0])  # the first size is the base


def test_claims_reverse_with_the_gaps():
    """Negative control."""
    gaps = {name: 0.1 if name == RECOMMENDED else 0.01 for name in PLANTED}
    assert verdicts(whole(CONFIG, gaps)) == ["contradicted"] * len(PLANTED)


@pytest.mark.slow
def test_equal_gaps_decide_nothing_about_rivals():
    """Negative control."""
    table = whole(CONFIG, dict.fromkeys(PLANTED, 0.01))
    near, *rivals = verdicts(table)
    assert near == "supported" and set(rivals) == {"unresolved"}


def test_gaps_are_those_planted():
    gaps = {name: 0.02 * (1 + i) for i, name in enumerate(PLANTED)}
    reading = analysis.read(whole(CONFIG, gaps), CONFIG, PLANTED)
    for name, each in reading.entries.items():
        planted = {size: 0.0 if size == BASE else gaps[name] for size in SIZES}
        assert {size: gap.mean() for size, gap in each.gaps.items()} == pytest.approx(planted, abs=2e-3)
        assert reading.worst(name).value == pytest.approx(gaps[name], abs=2e-3) and each.constant == 0.2
    assert {best.reference[1:] for size, best in reading.references.items() if size != BASE} == {(0.2, 4.0)}
    # The judging seeds' losses are higher, but not as high as that of another reference. A twin is not another one.
    twins = ("width × 8", "vocab × 8", "tokens × 8")
    assert {reading.references[size].regret for size in twins} == {0.0}


@pytest.mark.slow
def test_a_verdict_on_the_edge_of_a_grid_is_unresolved():
    """The best reference has the largest ratio of the grid, so that a better reference may lie beyond."""
    config = replace(CONFIG, reference_ratios=(0.25, 1.0, 4.0))
    gaps = {name: 0.001 if name == RECOMMENDED else 0.1 for name in PLANTED}
    near, *rivals = leaderboard.claims.claims(whole(config, gaps), config, CONTEXT, entries=PLANTED)
    assert near.verdict == "unresolved" and "reference of depth × 8" in near.note
    assert {rival.verdict for rival in rivals} == {"supported"}


@pytest.mark.slow
def test_the_interval_allows_for_a_bad_reference():
    """The selecting seeds disagree about the references with the best ratio, which are bad on the judging seeds."""
    table = whole(CONFIG, dict.fromkeys(PLANTED, 0.005))
    best = analysis.read(table, CONFIG, PLANTED)
    unlucky = table.copy()
    ratio = table["run.learning_rates.embedding"] / table["run.learning_rates.hidden"]
    of_reference = np.isclose(ratio, 4 * table["setting.model.width"] ** 0.5)
    judging = of_reference & ~table["run.seed"].isin(CONFIG.selecting_seeds)
    unlucky.loc[judging, "valid_bits_per_byte"] *= 1.2
    agreed = analysis.read(unlucky, CONFIG, PLANTED)  # control: nothing to allow for
    assert agreed.worst("SP").interval[1] < agreed.worst("SP").value + 0.05
    for seed, factor in zip(CONFIG.selecting_seeds, (0.8, 1.2), strict=True):
        unlucky.loc[of_reference & (table["run.seed"] == seed), "valid_bits_per_byte"] *= factor
    worse = analysis.read(unlucky, CONFIG, PLANTED)
    assert worse.worst("SP").value < best.worst("SP").value
    assert worse.worst("SP").interval[1] > worse.worst("SP").value + 0.05
    assert max(each.regret for size, each in worse.references.items() if size != BASE) > 0.05


def test_the_evidence_has_the_numbers_of_the_reading():
    table = whole(CONFIG, {name: np.inf if name == "SP" else 0.03 for name in PLANTED})
    evidence, reading = analysis.evidence(table, CONFIG, entries=PLANTED), analysis.read(table, CONFIG, PLANTED)
    assert json.loads(records.dumps(evidence)) == evidence and set(evidence["entries"]) == set(PLANTED)
    assert evidence["seeds"] == len(CONFIG.judging_seeds) and evidence["references_at_edge"] == []
    assert evidence["measured"] == {axis: [least, 8 * least] for axis, least in vars(SIZES[BASE]).items()}
    for name, row in evidence["entries"].items():
        assert (row["rule"], row["constant"], row["constant_at_edge"]) == (PLANTED[name].rule, 0.2, False)
        assert set(row["gaps"]) == set(SIZES) - {BASE} and row["base_gap"] == pytest.approx(0, abs=2e-3)
        if name == "SP":
            assert {row["mean_gap"], row["worst_gap"], row["worst_gap_interval"], *row["gaps"].values()} == {None}
        else:
            assert row["worst_gap"] == pytest.approx(reading.worst(name).value, abs=1e-6)
            assert row["mean_gap_interval"] == pytest.approx(reading.mean(name).interval, abs=1e-6)


@pytest.mark.slow
def test_a_diverged_rival_loses_and_a_favourite_too():
    gaps = dict.fromkeys(PLANTED, 0.01)
    table = whole(CONFIG, gaps | {"SP": np.inf})
    assert verdicts(table)[1] == "supported" and verdicts(table)[0] != "contradicted"
    assert analysis.summary(table, CONFIG, entries=PLANTED).count("inf") >= len(SIZES) - 1
    assert leaderboard.figure.figure(table, CONFIG, preset="laptop", corpus="none", partial=None, entries=PLANTED)
    assert set(verdicts(whole(CONFIG, gaps | {RECOMMENDED: np.inf}))) == {"contradicted"}


@pytest.mark.slow
def test_a_diverged_reference_has_no_gap():
    table = whole(CONFIG, dict.fromkeys(PLANTED, 0.01))
    tuned = analysis.read(table, CONFIG, entries=PLANTED)
    name, reference = next(iter(tuned.references.items()))
    losses = reference.losses.copy()
    losses[0] = np.inf
    references = dict(tuned.references) | {name: replace(reference, losses=losses)}
    entry = analysis._tuned_entry(table, CONFIG, PLANTED["SP"], references)
    assert np.isnan(entry.gaps[name][0]) and np.isfinite(entry.gaps[name][1:]).all()


@pytest.mark.slow
def test_unfinished_sweeps_have_a_summary_and_a_figure():
    runs = {c.label: list(c.runs) for c in leaderboard.config.settings(CONFIG, PLANTED)}
    for few in ({label: own[:1] * (own[:1] != []) for label, own in runs.items()}, runs):
        table = table_of(CONFIG, few, dict.fromkeys(PLANTED, 0.01))
        assert analysis.summary(table, CONFIG, entries=PLANTED)
        assert leaderboard.figure.figure(table, CONFIG, preset="laptop", corpus="none", partial=(1, 2), entries=PLANTED)
        assert not {"supported", "contradicted"} & set(verdicts(table))


RULE = """
def rule(width, vocab):
    token, matrix = (width**-0.5, width**-0.5), (width**-0.5, 1 / width)
    return {"embedding": token, "position": token, "hidden": matrix, "output": matrix, "vector": (0.0, 1 / width)}
"""


def test_a_users_rule_takes_part(tmp_path):
    """The rule of this file is LVP's, so that its runs are those of the recommended entry."""
    file = tmp_path / "mine.py"
    file.write_text(RULE)
    experiment = experiments.load("mine", user_experiments.source(file))
    assert experiment.name == "leaderboard-mine"
    config = experiments.configured(experiment, "smoke")
    assert config.entries == (*leaderboard.PRESETS["smoke"].entries, "mine")
    mine, ours = experiment.settings.keywords["entries"]["mine"], ENTRIES[RECOMMENDED]
    for size in SIZES.values():
        runs = [run_of(CONFIG, entry, size, 0.2, 0) for entry in (mine, ours)]
        assert runs[0].learning_rates == pytest.approx(runs[1].learning_rates)
        assert runs[0].init_std == pytest.approx(runs[1].init_std)
    assert sum(len(c.runs) for c in experiment.settings(config)) > 0


@pytest.mark.slow
def test_entries_that_differ_in_the_vectors_only_are_told_apart():
    slow = {"embedding": (0.1, 0.1), "position": (0.1, 0.1), "hidden": (0.1, 0.1), "output": (0.1, 0.1)}
    rules = {name: Entry(make_rule(slow | {"vector": (0.0, rate)}), {}) for name, rate in (("a", 0.1), ("b", 0.2))}
    entries = rules | {RECOMMENDED: ENTRIES[RECOMMENDED]}
    config = replace(CONFIG, entries=tuple(entries))
    reading = analysis.read(whole(config, {"a": 0.02, "b": 0.04, RECOMMENDED: 0.01}, entries), config, entries)
    measured = {name: reading.worst(name).value for name in rules}
    assert measured == pytest.approx({"a": 0.02, "b": 0.04}, abs=2e-3)


def make_rule(rows):
    """Returns a rule with the same rows at every size."""
    return lambda width, vocab: rows


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "leaderboard", "--rule", "FILE", "--preset", "smoke"], "must define one experiment"),
        (["run", "width_vocab", "--rule", "FILE"], "use `run leaderboard --rule FILE.py`"),
        (["run", "leaderboard", "--rule", "mine"], "use `run leaderboard --rule FILE.py`"),
        (["run", "leaderboard", "--set", "entries=LVP,LVQ"], "entries must hold only"),
        (["run", "leaderboard", "--set", "factor=1"], "factor must be at least 2"),
        (["resume", "runs", "--rule", "FILE"], "resume continues a sweep as it began"),
    ],
)
def test_bad_input_is_refused_with_one_line(arguments, message, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n")
    given = [str(file) if word == "FILE" else word for word in arguments]
    out = [] if "resume" in given else ["--out", str(tmp_path / "out")]
    assert main([*given, *out]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("stem", "content", "message"),
    [
        ("LVP", RULE, "has an entry 'LVP': rename the file"),
        ("my rule", RULE, "digits, - and _; rename"),
        ("mine", "def rule(width):\n    return {}\n", "mine.py:1: TypeError"),
        ("mine", "def rule(width, vocab):\n    return 1 / 0\n", "mine.py:2: ZeroDivisionError"),
        ("mine", RULE.replace('"vector"', '"router": token, "vector"'), "and no others"),
    ],
)
def test_an_unusable_rule_is_refused_with_one_line(stem, content, message, tmp_path, capsys):
    file = tmp_path / f"{stem}.py"
    file.write_text(content)
    assert main(["run", "leaderboard", "--rule", str(file), "--preset", "smoke", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_a_reference_with_lvps_ratio_is_lvp():
    """At the ratio 1 a reference has LVP's rates and stds at every size."""
    for size in SIZES.values():
        run = Reference(RECOMMENDED, 0.2, 1.0).run(size, 0)
        lvp = Run.under(rule_table("lvp", width=size.width, vocab=size.vocab), 0.2 / size.width, 0)
        assert run.learning_rates == pytest.approx(lvp.learning_rates) and run.init_std == lvp.init_std
