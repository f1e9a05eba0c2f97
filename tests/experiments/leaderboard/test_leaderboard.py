"""leaderboard: entries are transferred as by `optim.transfer`, planted losses give the expected verdicts, and a user's
rule takes part."""

import functools
from dataclasses import asdict, replace

import numpy as np
import optax
import pytest

import experiments
from experiments import leaderboard
from experiments.common import user_experiments
from experiments.leaderboard import analysis
from experiments.leaderboard.config import BASE, ENTRIES, RECOMMENDED, REFERENCE, Entry
from lvp import optim
from lvp.roles import ROLES
from lvp.training import records
from sweeps.__main__ import main

# Four entries and half of the constants: enough for the claims, and fast to plant. The planted references are best at
# LVP's ratio times 4, because some lanes of LVP are references with LVP's ratio.
CONFIG = replace(
    leaderboard.TIERS["laptop"],
    entries=("SP", "CompleteP", "μP", RECOMMENDED),
    constants=(0.05, 0.1, 0.2, 0.4),
    reference_ratios=(0.25, 1.0, 4.0, 16.0),
)
SIZES = CONFIG.sizes
PLANTED = {name: ENTRIES[name] for name in CONFIG.entries}
CONTEXT = {"experiment": "leaderboard", "tier": "laptop", "corpus": "none", "commit": "none"}


def table_of(config, lanes_by_label, gaps, entries=PLANTED):
    """Returns the table of planted lanes: a parabola over the constant at the base, and a gap at held-out sizes.

    Args:
      gaps: entry → gap to the reference at every held-out size.
    """
    losses = {}
    for (size_name, name), label in leaderboard.config.labels(config, entries).items():
        size = config.sizes[size_name]
        for seed in config.seeds:
            shift, noise = 1 + 0.01 * seed, np.random.default_rng([seed, len(losses)])
            if name == "reference":
                for constant in config.reference_constants:
                    for ratio in config.reference_ratios:
                        lane = leaderboard.config.reference_lane(size, constant, ratio, seed)
                        planted = 2 + 0.1 * np.log(constant / 0.2) ** 2 + 0.1 * np.log(ratio / 4) ** 2
                        losses.setdefault((label, repr(lane)), planted * shift)
                continue
            for constant in config.constants if size_name == BASE else (0.2,):
                lane = leaderboard.config.lane(config, entries[name], size, constant, seed)
                gap = 0.0 if size_name == BASE else gaps[name] + 0.001 * noise.normal()
                planted = 2 * (1 + gap) + 0.1 * np.log(constant / 0.2) ** 2
                losses[label, repr(lane)] = planted * shift
    rows = []
    cells = {c.label: c.cell for c in leaderboard.config.cells(config, entries)}
    for label, lanes in lanes_by_label.items():
        for lane in lanes:
            outcome = {"status": "finished", "valid_bits_per_byte": losses[label, repr(lane)]}
            config_of = {"cell": asdict(cells[label]), "lane": asdict(lane)}
            rows.append({"hash": str(len(rows)), "config": config_of, "outcome": outcome, "provenance": {}})
    return records.table(rows)


def whole(config, gaps, entries=PLANTED):
    """Returns the table of the lanes that tune and of their follow-up lanes."""
    first = {c.label: list(c.lanes) for c in leaderboard.config.cells(config, entries)}
    more = analysis.follow_up(table_of(config, first, gaps, entries), config, entries=entries)
    lanes = {label: own + [x for x in more[label] if x not in own] for label, own in first.items()}
    return table_of(config, lanes, gaps, entries)


def verdicts(table, config=CONFIG, entries=PLANTED):
    return [c.verdict for c in leaderboard.claims.claims(table, config, CONTEXT, entries=entries)]


def test_each_held_out_size_moves_one_axis_at_least_eightfold():
    base = vars(SIZES[BASE])
    assert len(SIZES) == 6
    for name, size in SIZES.items():
        ratios = {axis: value / base[axis] for axis, value in vars(size).items() if value != base[axis]}
        assert ratios == ({} if name == BASE else {name.split()[0]: 8.0})


@pytest.mark.parametrize("tier", leaderboard.TIERS)
def test_every_lane_can_be_trained_in_its_cell(tier):
    config = leaderboard.TIERS[tier]
    cells = leaderboard.EXPERIMENT.cells(config)
    assert len({c.label for c in cells}) == len(cells) and len(ENTRIES) >= 8
    for c in cells:
        assert len({repr(lane) for lane in c.lanes}) == len(c.lanes)
        for lane in c.lanes:
            c.cell.check(lane)


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if not entry.muon])
@pytest.mark.parametrize("size", SIZES)
def test_a_lane_has_the_settings_of_transfer(name, size):
    """The rates, stds, β, ε and multipliers of a lane and its cell are those of `optim.transfer` in a user's script."""
    entry, target = ENTRIES[name], SIZES[size]
    tx = optim.transfer(
        functools.partial(optax.adam),
        base=SIZES[BASE],
        target=target,
        rule=entry.rule,
        axes=entry.axes,
        learning_rate=0.4 / CONFIG.width,
        b1=CONFIG.b1,
        b2=CONFIG.b2,
        eps=CONFIG.eps,
    )
    lane = leaderboard.config.lane(CONFIG, entry, target, 0.4, 0)
    cell = leaderboard.config.cell_of(CONFIG, entry, target)
    rates = {role: float(tx.settings[role]["learning_rate"]) for role in ROLES}
    assert lane.learning_rates == pytest.approx(rates, rel=1e-9)
    assert lane.init_std == {role: tx.table[role].init_std for role in ROLES}
    options = cell.optimizer.options
    eps = options["eps"] if isinstance(options["eps"], dict) else dict.fromkeys(ROLES, options["eps"])
    assert cell.model.branch_multiplier == tx.table.branch_multiplier
    assert cell.steps * cell.batch * cell.model.context == pytest.approx(target.tokens, rel=0.01)
    assert (cell.model.layers, cell.model.width, cell.model.vocab) == (target.depth, target.width, target.vocab)
    b1, b2 = tx.scaling.betas(CONFIG.b1, CONFIG.b2)
    assert (options["b1"], options["b2"]) == (b1, b2)
    assert eps == pytest.approx({role: CONFIG.eps * tx.scaling[role].epsilon for role in ROLES})


def test_entries_with_the_same_rule_are_tuned_by_the_same_lanes():
    config = leaderboard.TIERS["laptop"]
    cells = {c.label: c for c in leaderboard.EXPERIMENT.cells(config)}
    rules = {entry.rule for entry in ENTRIES.values()}
    tuning = len(rules) * len(config.constants) + len(config.reference_constants) * len(config.reference_ratios)
    shared = len(set(config.reference_constants) & set(config.constants))  # LVP's ratio is a reference too
    at_base = sum(len(c.lanes) for label, c in cells.items() if label.startswith(BASE))
    assert at_base == 2 * (tuning - shared)


def test_claims_follow_the_planted_gaps():
    gaps = {name: 0.01 if name == RECOMMENDED else 0.1 for name in PLANTED}
    assert verdicts(whole(CONFIG, gaps)) == ["supported"] * len(PLANTED)


def test_claims_reverse_with_the_gaps():
    """Negative control."""
    gaps = {name: 0.1 if name == RECOMMENDED else 0.01 for name in PLANTED}
    assert verdicts(whole(CONFIG, gaps)) == ["contradicted"] * len(PLANTED)


def test_equal_gaps_decide_nothing_about_rivals():
    """Negative control."""
    table = whole(CONFIG, dict.fromkeys(PLANTED, 0.01))
    near, *rivals = verdicts(table)
    assert near == "supported" and set(rivals) == {"unresolved"}


def test_gaps_are_those_planted():
    gaps = {name: 0.02 * i for i, name in enumerate(PLANTED)}
    measured = analysis.gaps(whole(CONFIG, gaps), CONFIG, PLANTED)
    for name, by_size in measured.items():
        assert {size: float(gap.mean()) for size, gap in by_size.items()} == pytest.approx(
            {size: 0.0 if size == BASE else gaps[name] for size in SIZES}, abs=2e-3
        )
        assert analysis.over_sizes(by_size)["worst"].value == pytest.approx(gaps[name], abs=2e-3)


def test_a_reference_at_the_edge_of_its_grid_is_named():
    config = replace(CONFIG, reference_constants=(0.2, 0.4))
    table = whole(config, dict.fromkeys(PLANTED, 0.05))
    claim = leaderboard.claims.claims(table, config, CONTEXT, entries=PLANTED)[0]
    assert "edge of their grid: width × 8" in claim.note
    assert analysis.summary(table, config, entries=PLANTED).count("0.2, 4*") == 5


def test_a_diverged_entry_has_no_gap_and_no_verdict():
    table = whole(CONFIG, dict.fromkeys(PLANTED, 0.01))
    wide = (table["cell.model.width"] == SIZES["width × 8"].width) & (table["cell.model.branch_multiplier"] == 1)
    table.loc[wide & ~table["lane.seed"].isin(CONFIG.selecting_seeds), "status"] = "diverged"
    assert set(verdicts(table)) == {"unresolved"}
    assert leaderboard.EXPERIMENT.figure(table, CONFIG, tier="laptop", corpus="none", partial=None)


RULE = """
def rule(width, vocab):
    token, matrix = (width**-0.5, width**-0.5), (width**-0.5, 1 / width)
    return {"embedding": token, "position": token, "hidden": matrix, "output": matrix, "vector": (0.0, 1 / width)}
"""


def test_a_users_rule_takes_part(tmp_path):
    """The rule of this file is LVP's, so that its lanes are those of the recommended entry."""
    file = tmp_path / "mine.py"
    file.write_text(RULE)
    experiment = user_experiments.load(user_experiments.source(file))
    assert experiment.name == "leaderboard-mine"
    config = experiments.configured(experiment, "smoke")
    assert config.entries == (*leaderboard.TIERS["smoke"].entries, "mine")
    entries = {**ENTRIES, "mine": Entry(lambda width, vocab: None, ENTRIES[RECOMMENDED].axes)}
    assert set(entries) == set(experiment.cells.keywords["entries"])
    mine, ours = experiment.cells.keywords["entries"]["mine"], ENTRIES[RECOMMENDED]
    for size in SIZES.values():
        lanes = [leaderboard.config.lane(CONFIG, entry, size, 0.2, 0) for entry in (mine, ours)]
        assert lanes[0].learning_rates == pytest.approx(lanes[1].learning_rates)
    assert sum(len(c.lanes) for c in experiment.cells(config)) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "leaderboard", "--rule", "FILE", "--tier", "smoke"], "must define one experiment"),
        (["run", "width_vocab", "--rule", "FILE"], "use `run leaderboard --rule FILE.py`"),
        (["run", "leaderboard", "--rule", "mine"], "use `run leaderboard --rule FILE.py`"),
        (["run", "leaderboard", "--set", "entries=LVP,LVQ"], "entries must be of"),
        (["run", "leaderboard", "--set", "factor=1"], "factor must be at least 2"),
    ],
)
def test_bad_input_is_refused_with_one_line(arguments, message, tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text("x = 1\n")
    given = [str(file) if word == "FILE" else word for word in arguments]
    assert main([*given, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_the_reference_is_lvp():
    assert REFERENCE == ENTRIES["LVP"]
    for size in SIZES.values():
        reference = leaderboard.config.reference_lane(size, 0.2, 1.0, 0)
        assert reference.learning_rates["embedding"] == pytest.approx(0.2 / size.width**0.5)
        assert (
            reference.learning_rates["hidden"] == reference.learning_rates["output"] == pytest.approx(0.2 / size.width)
        )
