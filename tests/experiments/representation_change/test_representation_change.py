"""representation_change: planted forms, ratios and cosines give the expected verdicts."""

import json
from dataclasses import replace

import numpy as np
import pytest

from lvp.analysis.claims import NOT_TESTED
from lvp.experiments import representation_change
from lvp.experiments.representation_change import equation_nine
from lvp.theory.representation_change import FORMS, squared_representation_change
from lvp.training import records

LAPTOP = replace(representation_change.PRESETS["laptop"], batch_sizes=(1, 480))
SMALL_BATCH = replace(LAPTOP, batch=32, micro_batches=8)
TWO = replace(LAPTOP, seeds=(0, 1))
CONTEXT = {"experiment": "representation_change", "preset": "laptop", "corpus": "none", "commit": "none"}
# Planted measurements of training, as functions of the fraction of steps.
FALLING = {
    "neuron_snr": lambda part: np.geomspace(3.0, 0.06, len(part)),
    "snr": lambda part: np.geomspace(6.0, 0.12, len(part)),
    "alignment": lambda part: np.where(part > 0, -0.3, np.nan),
    "cancelled": lambda part: np.full(len(part), 0.45),
}


def calculated(config, planted="exact", error=0.001, size=1.0):
    """Returns records of equation 9's settings in which the simulation equals `size` times the planted form, up to a
    relative error."""
    for label, setting, runs, _ in representation_change.config.calculations(config):
        for run in runs:
            sizes = config.snrs, run["batch"], setting.arguments["fan_in"]
            forms = {form: squared_representation_change(*sizes, form=form) for form in FORMS}
            lists = forms | {"simulated": size * forms[planted], "error": error * forms[planted]}
            outcome = {name: x.tolist() for name, x in lists.items()} | {"status": "finished", "draws": 9}
            yield label, {"arguments": dict(setting.arguments)}, run, outcome


def trained(config, **planted):
    """Returns records of the trained groups with a little noise between seeds."""
    part = np.array(config.measured_steps) / config.steps
    for name in config.groups:
        group = representation_change.config.GROUPS[name]
        for seed in config.seeds:
            made = {what: (FALLING | planted)[what](part) * (1 + 0.001 * seed) for what in FALLING}
            hidden = {what: [float(x) if np.isfinite(x) else None for x in values] for what, values in made.items()}
            measures = {"roles": {"hidden": hidden}, "matrices": {}}
            outcome = {"status": "finished", "valid_loss": 3.0, "valid_bits_per_byte": 2.0, "measures": measures}
            run = {"warmup_steps": representation_change.config.warmup_steps(config, group), "seed": seed}
            yield name, {"optimizer": {"kind": group.optimizer}, "batch": config.batch}, run, outcome


def table_of(*kinds):
    rows = [
        {"hash": f"{label}{run}", "config": {"cell": setting, "lane": run}, "outcome": outcome, "provenance": {}}
        for kind in kinds
        for label, setting, run, outcome in kind
    ]
    return records.table(json.loads(records.dumps(rows)))  # records on disk are JSON


def verdicts(table, config=LAPTOP):
    return {c.full_statement: c.verdict for c in representation_change.claims.claims(table, config, CONTEXT)}


def drawn(table, config=LAPTOP):
    return representation_change.figure.figure(table, config, preset="laptop", corpus="none", partial=(1, 2))


@pytest.mark.parametrize("preset", representation_change.PRESETS)
def test_settings_and_measured_steps_of_every_preset(preset):
    config = representation_change.PRESETS[preset]
    planned = representation_change.config.calculations(config)
    assert len({c.label for c in planned}) == len(planned) == len(config.fan_ins)
    assert all([run["batch"] for run in c.runs] == list(config.batch_sizes) for c in planned)
    assert all(records.dumps(dict(c.setting.arguments)) and c.setting.flops_per_run > 0 for c in planned)
    steps = config.measured_steps
    assert list(steps) == sorted(set(steps)) and steps[:2] == (0, 1) and steps[-1] == config.steps - 1
    assert config.batch % config.micro_batches == 0 and config.batch // config.micro_batches >= 1


def test_the_paper_preset_is_the_published_set_up():
    """Kosson et al. 2024, section 3 and figures 3 and 4."""
    paper = representation_change.PRESETS["paper"]
    shape = paper.layers, paper.width, paper.context, paper.batch, paper.steps, paper.gpt2
    assert shape == (12, 768, 1024, 480, 5000, True)
    assert (paper.b1, paper.b2, paper.eps, paper.weight_decay) == (0.9, 0.95, 1e-8, 0.1)
    assert (paper.warmup, paper.cooldown, paper.lion_rate) == (0.05, 0.5, 0.01)
    assert {480} <= set(paper.batch_sizes) and {768} <= set(paper.fan_ins) and {1 / 480} <= set(paper.snrs)


def test_groups_of_one_optimizer_share_a_setting():
    trained_settings = representation_change.config.trained(LAPTOP)
    assert [(c.label, c.setting.optimizer.kind, len(c.runs)) for c in trained_settings] == [
        ("LionAR", "lion_ar", 8),
        ("AdamW", "adamw", 4),
    ]
    warmups = [run.warmup_steps for run in trained_settings[0].runs]
    assert warmups == [0] * 4 + [round(0.05 * LAPTOP.steps)] * 4
    assert not representation_change.config.trained(replace(LAPTOP, groups=()))
    assert representation_change.config.settings(LAPTOP)[-2:] == trained_settings


@pytest.mark.parametrize("preset", representation_change.PRESETS)
def test_every_trained_setting_is_one_program(preset):
    config = representation_change.PRESETS[preset]
    for _, setting, runs, _ in representation_change.config.trained(config):
        for run in runs:
            setting.check(run)
        assert setting.optimizer.options["weight_decay"] == 0.1 and setting.micro_batch_size >= 2
        assert (setting.measured_steps, setting.model.tied) == (config.measured_steps, True)
        if preset == "paper":
            assert setting.num_params == pytest.approx(124.4e6, rel=1e-3) and setting.tokens_per_step == 480 * 1024


def test_a_calculated_run_contains_the_simulation_and_its_forms():
    arguments = {"fan_in": 8, "snrs": [0.01, 0.3], "numbers": 200_000, "seed": 1}
    calculation = equation_nine.calculate(arguments, {"batch": 50})
    assert records.dumps(calculation) and calculation["draws"] == 500
    for form in FORMS:
        np.testing.assert_array_equal(calculation[form], squared_representation_change([0.01, 0.3], 50, 8, form=form))
    assert np.all(
        np.abs(np.subtract(calculation["simulated"], calculation["exact"])) < 4 * np.array(calculation["error"])
    )
    few, many = (equation_nine.num_draws(arguments | {"numbers": n}, 50) for n in (1, 10**9))
    assert (few, many) == equation_nine.DRAWS


def test_claims_follow_the_planted_values():
    claim_verdicts = verdicts(table_of(calculated(LAPTOP), trained(LAPTOP)))
    assert len(claim_verdicts) == 4 * 2  # LionAR with and without warm-up
    assert set(claim_verdicts.values()) == {"supported"}


EXCEEDS = (
    "B φ exceeds 1 in at least 90% of training, with B = 480 sequences of {} tokens and φ the gradient's "
    "signal-to-noise ratio (LionAR)"
)
ALIGNED = "after the first 5% of steps gradient and momentum are negatively aligned on average (LionAR)"


def test_a_small_batch_is_judged_at_the_papers_length():
    """Shorter sequences have a smaller φ, so that the paper's batch may exceed 1/φ although it does not here."""
    for context, verdict in ((64, NOT_TESTED), (1024, "contradicted")):
        config, statement = replace(LAPTOP, context=context), EXCEEDS.format(context)
        small = lambda part: 0.001 + 0 * part  # noqa: E731
        assert verdicts(table_of(trained(config, neuron_snr=small, snr=small)), config)[statement] == verdict
        assert verdicts(table_of(trained(config)), config)[statement] == "supported"
        # Averages of φ that disagree decide nothing.
        assert verdicts(table_of(trained(config, snr=small)), config)[statement] == "unresolved"


def test_figure_4_is_tested_only_at_its_batch():
    for config, says in ((SMALL_BATCH, "the runs train with batch 32, the paper with 480"), (TWO, "2 judging seeds")):
        claims = representation_change.claims.claims(table_of(trained(config)), config, CONTEXT)
        reasons = {c.full_statement: c.reason for c in claims if "figure 4" in c.source}
        assert reasons[EXCEEDS.format(config.context)].startswith(says)
        assert reasons[ALIGNED].startswith(says)
    # φ falls from 6 to 0.12: 32 φ exceeds 1 throughout.
    assert representation_change.analysis.exceeds(
        representation_change.analysis.runs_by_seed(table_of(trained(LAPTOP)), LAPTOP, "LionAR"), LAPTOP, "snr", 32
    ) == pytest.approx(np.ones(4))


def test_the_fall_of_the_ratio_is_given_as_a_factor():
    for seeds in ((0,), (0, 1)):
        config = replace(LAPTOP, groups=("LionAR",), seeds=seeds)
        steps = {"neuron_snr": lambda part: np.where(part < 0.02, 4.0, 0.5), "snr": lambda part: 1.0 + part}
        claims = representation_change.claims.claims(table_of(trained(config, **steps)), config, CONTEXT)
        (claim,) = (c for c in claims if "is higher at the start" in c.statement)
        assert claim.value == pytest.approx(8.0) and (claim.interval is None) == (len(seeds) == 1)


def test_figure_fours_claims_reverse_with_training():
    """Negative control: momentum helps or cancels everything, and φ rises."""
    planted = {"alignment": lambda part: 0.2 + 0 * part, "cancelled": lambda part: 0.95 + 0 * part}
    planted |= dict.fromkeys(("neuron_snr", "snr"), lambda part: np.geomspace(0.06, 3.0, len(part)))
    claim_verdicts = verdicts(table_of(trained(LAPTOP, **planted)))
    wrong = [s for s, v in claim_verdicts.items() if v == "contradicted"]
    assert len(wrong) == 3 * 2
    assert {v for s, v in claim_verdicts.items() if s not in wrong} == {"supported"}


def test_the_reported_deviation_is_not_selected_by_noise():
    table = table_of(calculated(replace(LAPTOP, fan_ins=(8,))))
    (_, row) = list(equation_nine.rows_of(table).iterrows())[1]
    value, error, exact = equation_nine.deviation(row)
    assert value == pytest.approx(exact, rel=1e-9) and exact == pytest.approx(-0.09, abs=0.01) and error < 0.002
    noise = 5 * np.where(row["exact"] == row["exact"].max(), row["exact"], 0)
    row["simulated"] = row["simulated"] + noise  # the simulation is far off at another φ
    assert equation_nine.deviation(row)[0] == pytest.approx(value)


def test_means_over_training_weigh_steps_and_not_measurements():
    """Early measured steps lie closer together than late ones."""
    long = replace(LAPTOP, steps=800)
    steps = np.array(long.measured_steps, float)
    mean = representation_change.analysis.over_training
    values = np.stack([np.full(len(steps), 3.0), steps, np.where(steps < 1, np.nan, 3.0), np.full(len(steps), np.nan)])
    np.testing.assert_allclose(mean(values, long), [3.0, (long.steps - 1) / 2, 3.0, np.nan], rtol=0.02)
    assert abs(steps.mean() / (long.steps / 2) - 1) > 0.05  # control
    np.testing.assert_allclose(mean(values, long, start=0.5)[1], 0.75 * long.steps, rtol=0.02)
    few = replace(LAPTOP, steps=20, points=4)  # 1 % of the steps, which is less than one step
    assert mean(np.array([[7.0] + [1.0] * (len(few.measured_steps) - 1)]), few, stop=0.01) == 7.0


def test_single_steps_do_not_move_the_cancelled_part():
    def one_far(part):
        return np.where(np.arange(len(part)) == len(part) // 2, 1000.0, 0.45)

    for name in LAPTOP.groups:
        rows = representation_change.analysis.runs_by_seed(table_of(trained(LAPTOP, cancelled=one_far)), LAPTOP, name)
        np.testing.assert_allclose(representation_change.analysis.cancelled(rows, LAPTOP), 0.45, rtol=0.01)


def test_a_diverged_seed_is_not_left_out():
    table = table_of(calculated(LAPTOP), trained(LAPTOP))
    lost = (table["run.seed"] == 1) & (table["run.warmup_steps"] > 0)
    table.loc[lost, ["status", "valid_bits_per_byte"]] = ["diverged", np.nan]
    claim_verdicts = verdicts(table)
    assert {v for s, v in claim_verdicts.items() if "warm-up" in s} == {"unresolved"}
    assert {v for s, v in claim_verdicts.items() if "(LionAR)" in s} == {"supported"}
    assert "nan" not in representation_change.analysis.summary(table, LAPTOP) and drawn(table).axes


@pytest.mark.parametrize("kinds", [(), (calculated,), (trained,), (calculated, trained)], ids=lambda k: f"{len(k)}")
def test_a_partial_sweep_can_be_reported(kinds):
    table = table_of(*(kind(LAPTOP) for kind in kinds))
    for rows in (table, table[:1], table[::5]) if len(kinds) else (table,):
        rows = rows.dropna(axis=1, how="all")  # a table has no column without a value
        assert drawn(rows).axes and representation_change.analysis.summary(rows, LAPTOP)
        assert len(verdicts(rows)) == 8
    text = representation_change.analysis.summary(table, LAPTOP)
    assert ("simulated/equation 9" in text) == (calculated in kinds) and ("AdamW" in text) == (trained in kinds)


def test_no_legend_covers_a_panel():
    config = replace(LAPTOP, groups=("LionAR",))
    table = table_of(calculated(config), trained(config, neuron_snr=lambda part: 1 - 2 * part))
    figure = drawn(table, config)
    figure.draw_without_rendering()
    assert len(figure.axes) == 6
    for axes in figure.axes:
        assert not axes.get_legend().get_window_extent().overlaps(axes.get_window_extent())
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "log", "linear", "log", "linear", "linear"]
    (line,) = (x for x in figure.axes[3].get_lines() if x.get_label() == "LionAR")
    low = line.get_ydata()
    assert np.isnan(low).any() and np.nanmin(low) > 0
