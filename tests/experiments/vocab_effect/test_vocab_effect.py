"""The settings of `vocab_effect`, and its powers and claims on tables with planted optima."""

from dataclasses import replace

import numpy as np
import pytest

from lvp.analysis import Optimum
from lvp.analysis.claims import Question, Seeds
from lvp.errors import InputError
from lvp.experiments import vocab_effect, width_vocab
from lvp.experiments.common import slope_claims
from lvp.experiments.common.decoder_runs import geometric
from lvp.experiments.common.shape_powers import joint_powers, slope_along
from lvp.training import records
from lvp.training.records import configuration
from tests.marking import slow

CONTEXT = {"experiment": "vocab_effect", "preset": "none", "corpus": "none", "commit": "none"}
CONFIG = replace(vocab_effect.PRESETS["laptop"], rates=geometric(0.002, 0.512, 9), steps=100)


def planted(config, width_power, vocab_power, rng, noise=0.002, scatter=0.0):
    """Returns the table of runs whose best rate on the rows is 0.03 (d/64)^(a+1/2) (m/1024)^b, quadratic in ln η."""
    rows = []
    for (d, m), setting in zip(config.shapes, vocab_effect.config.settings(config), strict=True):
        best = 0.03 / 8 * (d / 64) ** width_power * (m / 1024) ** vocab_power * np.exp(scatter * rng.standard_normal())
        for run in setting.runs:
            loss = 3 + 0.1 * np.log(run.learning_rates["embedding"] / best) ** 2 + noise * rng.standard_normal()
            outcome = {"status": "finished", "train_loss": loss, "curve_steps": [10, 60, 100]}
            outcome["curve_losses"] = [loss + 2, loss + 1, loss]
            configured = {"cell": configuration(setting.setting), "lane": vars(run)}
            rows.append({"hash": "", "config": configured, "outcome": outcome, "provenance": {}})
    return records.table(rows)


def test_settings_have_the_runs_of_width_vocab():
    config = vocab_effect.PRESETS["laptop"]
    settings = vocab_effect.config.settings(config)
    assert {c.setting.steps for c in settings} == {config.steps} and len({c.label for c in settings}) == len(
        settings
    ) == 10
    assert {(c.setting.model.width, c.setting.model.vocab) for c in settings} >= {(32, 256), (64, 512), (128, 1024)}
    changed = {name: getattr(config, name) for name in ("rates", "slice_bytes", "valid_bytes")}
    alike = replace(width_vocab.PRESETS["laptop"], **changed)
    theirs = {(c.setting.model.width, c.setting.model.vocab): c for c in width_vocab.config.settings(alike)[:5]}
    for c in settings:
        same = theirs.get((c.setting.model.width, c.setting.model.vocab))
        assert same is None or (same.setting, same.runs) == (c.setting, c.runs)


@pytest.mark.parametrize(
    "powers, verdicts",
    [((-0.5, 0.0), {"supported"}), ((0.0, 0.3), {"contradicted"})],
)
def test_planted_powers_are_recovered_and_judged(powers, verdicts):
    table = planted(CONFIG, *powers, np.random.default_rng(0))
    claims = vocab_effect.claims.claims(table, CONFIG, CONTEXT)
    assert claims[0].value == pytest.approx(powers[0], abs=0.03)
    assert claims[1].value == pytest.approx(powers[1], abs=0.03)
    assert {claim.verdict for claim in claims[:2]} == verdicts
    by_slice = {claim.variant: claim.value for claim in claims[2:]}
    assert by_slice["m = 8 d"] == pytest.approx(sum(powers), abs=0.05)
    assert by_slice.keys() == {"m = 256", "m = 1024", "m = 4096", "m = 8 d"}


def test_summary_and_figure_read_prefixes_of_the_runs():
    table = planted(CONFIG, -0.5, 0.0, np.random.default_rng(0))
    text = vocab_effect.analysis.summary(table, CONFIG)
    assert "60 steps" in text and "d = 128" in text and "m = 8 d" in text
    for rows in (table, table[::7]):
        figure = vocab_effect.figure.figure(rows, CONFIG, preset="none", corpus="none", partial=None)
        assert len(figure.axes) == 3


@pytest.mark.parametrize("count", [pytest.param(8, id="few"), slow(200)])
def test_intervals_cover_the_planted_powers(count):
    rng, inside = np.random.default_rng(2), {"d": 0, "m": 0, "slice": 0}
    for _ in range(count):
        table = planted(CONFIG, -0.6, 0.1, rng, noise=0.01, scatter=0.1)
        best = vocab_effect.analysis.optima(table, CONFIG)
        fit = joint_powers(CONFIG.shapes, best)
        for name, power in (("d", -0.6), ("m", 0.1)):
            low, high = fit.intervals[name]
            inside[name] += low <= power <= high
        (growing,) = (part for part in CONFIG.slices if part.name == "m = 8 d")
        low, high = slope_along(growing, best).interval
        inside["slice"] += low <= -0.5 <= high
    least = 0.90 if count > 100 else 0.60
    assert all(least <= covered / count for covered in inside.values()), inside
    assert count < 100 or all(covered / count <= 0.98 for covered in inside.values()), inside


def test_no_single_size_decides_a_joint_power():
    """All widths follow d^(−1/2), or all but the largest, which moves the fitted power."""
    shapes = [(d, m) for d in (32, 64, 128, 256) for m in (256, 1024, 4096)]
    question = Question(
        statement="", source="our result", paper_value=None, claimed=-0.5, rivals=(0.0, -1.0), unit="power of d"
    )
    for lower, verdict, noted in ((1.0, "supported", ""), (0.6, "unresolved", "not without d 256")):
        wander = np.random.default_rng(0).normal(0, 0.005, len(shapes))
        rates = [d**-0.5 * lower ** (d == 256) for d, _ in shapes] * np.exp(wander)
        best = [Optimum(rate, 0.02, (0.96 * rate, 1.04 * rate), 1.0, "quadratic", ()) for rate in rates]
        claim = slope_claims.answer_jointly(question, "d", shapes, best, CONTEXT, Seeds((0, 1, 2)))
        assert claim.verdict == verdict and noted in claim.note and "without one d" in claim.note


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"token_rows": ("sqrt", "plain")}, "token_rows"),
        ({"vocabs": ()}, "vocabs"),
        ({"widths": (32,), "vocabs": (256,)}, "widths|vocabs"),
    ],
)
def test_unusable_configurations_are_refused(change, word):
    with pytest.raises(InputError, match=word):
        replace(CONFIG, **change)
