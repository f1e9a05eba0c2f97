"""The experiments that calculate: their quantities against definitions, their claims against tables of known answer."""

import numpy as np
import pandas as pd
import pytest

from experiments import feature_learning, token_frequencies
from lvp import data, theory
from lvp.errors import InputError

CONTEXT = {"experiment": "none", "tier": "none", "corpus": "none", "commit": "none"}


@pytest.mark.parametrize("experiment", [token_frequencies, feature_learning], ids=lambda m: m.__name__)
def test_cells_of_every_tier_have_names_of_their_own(experiment):
    for config in experiment.TIERS.values():
        cells = experiment.cells(config)
        assert len({c.label for c in cells}) == len(cells) and all(c.cell.flops_per_lane > 0 for c in cells)
        assert all(c.cell.vocab <= 32768 for c in cells)


@pytest.fixture
def zipf(tmp_path):
    return data.prepare("zipf:1", vocab=512, slice_bytes=None, valid_bytes=None, cache=tmp_path)


def test_mean_squares_are_those_of_the_frequencies(zipf):
    found = token_frequencies.calculate({"ranks": [10, 500]}, {"vocab": 512}, zipf)
    alpha = zipf.frequencies()
    assert found["peak_ratio"] == pytest.approx(512 * alpha.max() ** 2 / np.sum(alpha**2), rel=1e-12)
    assert found["mean_square_of_top"] == pytest.approx(1 / found["peak_ratio"], rel=1e-12)
    assert found["exponent"] == pytest.approx(1, abs=0.05) and found["unseen"] == 0


def frequencies_table(power):
    vocabs = np.array([256, 512, 1024, 2048])
    noise = np.array([1.01, 0.99, 1.0, 1.005])
    ratio = vocabs.astype(float) ** power * noise
    return pd.DataFrame({"lane.vocab": vocabs, "peak_ratio": ratio, "mean_square_of_top": 1 / ratio})


@pytest.mark.parametrize("power, verdict", [(1.0, "supported"), (0.0, "contradicted"), (0.5, "contradicted")])
def test_frequency_claims(power, verdict):
    claims = token_frequencies.claims(frequencies_table(power), token_frequencies.TIERS["laptop"], CONTEXT)
    assert [c.verdict for c in claims] == [verdict, verdict]
    assert claims[0].value == pytest.approx(power, abs=0.02)


def test_parts_of_a_step_are_those_of_theory(zipf):
    arguments = {"width": 16, "vocab": 512, "draws": 40, "seed": 0, "steps": [1, 3], "rate": 0.2}
    found = feature_learning.calculate(arguments, {"arm": feature_learning.THEOREM}, zipf)
    for part in feature_learning.PARTS:
        assert abs(found[part] - found[f"{part}_exact"]) < 4 * found[f"{part}_error"]
    assert found["embedding_paper"] == theory.embedding_component(16, 512, 1.0, 1.0)
    assert found["top_paper"] > 1.05 * found["top_exact"]
    arm = feature_learning.calculate(arguments, {"arm": "Adam, cross-entropy"}, zipf)
    assert {f"{part}_step{t}" for part in feature_learning.PARTS for t in (1, 3)} <= set(arm)
    assert arm["embedding_step3"] > arm["embedding_step1"] > 0


def learning_table(config, form):
    """What would be measured if `form` were exact for the projection, and every arm had LVP's power."""
    rows = []
    for regime, pairs in feature_learning.regimes(config).items():
        for d, m in pairs:
            alpha = 1.0 / np.arange(1, m + 1)
            alpha /= alpha.sum()
            shape = {"cell.arguments.regime": regime, "cell.arguments.width": d}
            forms = {"embedding": [theory.embedding_component(d, m, 1.0, 1.0)] * 2}
            for part, token in (("top", 0), ("rare", m // 2)):
                forms[part] = [theory.projection_component(d, 1.0, 1.0, alpha, exact=e)[token] for e in (True, False)]
            row = {"lane.arm": feature_learning.THEOREM}
            for part, (exact, paper) in forms.items():
                value = exact if form == "exact" else paper
                row |= {part: value, f"{part}_error": 0.003 * value, f"{part}_exact": exact, f"{part}_paper": paper}
            rows.append(shape | row)
            for arm in feature_learning.ARMS if regime == "m = 8 d" else ():
                scale = {"embedding": d**-1.0, "top": d**-1.5, "rare": d**-1.5}
                steps = {f"{p}_step{t}": scale[p] * forms[p][0] for p in forms for t in config.steps}
                errors = {k.replace("_step", "_error_step"): 0.01 * v for k, v in steps.items()}
                rows.append(shape | {"lane.arm": arm} | steps | errors)
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    "form, verdicts",
    [("exact", ["supported", "contradicted", "supported"]), ("paper", ["supported"] * 2 + ["contradicted"])],
)
def test_learning_claims(form, verdicts):
    config = feature_learning.TIERS["laptop"]
    table = learning_table(config, form)
    claims = feature_learning.claims(table, config, CONTEXT)
    assert [c.verdict for c in claims] == verdicts + ["supported"] * 2 * len(feature_learning.ARMS)
    assert feature_learning.figure(table, config, tier="laptop", corpus="none", partial=None).axes
    assert all(arm in feature_learning.summary(table, config) for arm in feature_learning.ARMS)


@pytest.mark.parametrize("change", [{"widths": (8,)}, {"draws": 1}, {"steps": ()}, {"steps": (0, 1)}])
def test_unusable_configurations_are_refused(change):
    with pytest.raises(InputError, match=next(iter(change))):
        feature_learning.Config(**change)
    with pytest.raises(InputError, match="first_rank"):
        token_frequencies.Config(first_rank=10, last_rank=10)
