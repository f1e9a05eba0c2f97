"""Published numbers in this library's units, by hand, and their agreement with the rules."""

import pytest

from lvp.parametrization import AXES
from lvp.parametrization.axes import Ratios
from lvp.parametrization.published import POWER_LAWS, SWEEPS, TUNED
from lvp.parametrization.rules import PAPER_RULES


def test_the_ratio_of_modded_nanogpt():
    modded, nanochat = TUNED
    # 700 at std 1 and width 768: 700 / √768 = 25.26 at std 768^(-1/2), and 25.26 / √768 = 0.911.
    assert modded.ratio == pytest.approx(25.259, rel=1e-4)
    assert modded.ratio_over_lvp == pytest.approx(0.9115, rel=1e-3)
    assert nanochat.ratio is None and nanochat.ratio_over_lvp is None  # Muon's rate


def test_exponents_are_compared_at_the_same_init():
    exponents = [law.width_exponent for law in POWER_LAWS]
    assert exponents == [-1.0, -1.0, -0.5, -0.5, None, None]


def test_the_slopes_of_megatron():
    slopes = {sweep.rule: sweep.slope for sweep in SWEEPS}
    assert slopes["sp"] == pytest.approx(-1.0, abs=0.001)
    # Four equal rates and twice the rate at the last of five widths: Σ x y / Σ x² = 2 / 10 in powers of two.
    assert slopes["mup"] == pytest.approx(0.2, abs=0.001)


def test_the_rules_use_the_published_numbers():
    nanochat, tuned = PAPER_RULES["nanochat"].rows(768, 65536, 1.0), TUNED[1]
    assert nanochat["embedding"] == (tuned.embedding_std, 0.3) and nanochat["output"][1] == 0.008
    assert nanochat["hidden"][1] == tuned.hidden_lr
    for name, exponent in {"marin": -0.2813, "marin_2": -0.395}.items():
        rates = AXES["horizon"][name].factors(Ratios(tokens=10.0)).rate
        assert set(rates.values()) == {10**exponent}
