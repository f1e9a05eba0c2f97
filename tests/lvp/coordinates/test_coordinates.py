"""Coordinate checks recover planted powers, stay flat without growth, and show the powers of each rule's table."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from lvp import coordinates, optim, theory
from lvp.cli import main
from lvp.coordinates import Expected
from lvp.coordinates import decoder as of_decoder
from lvp.errors import InputError
from lvp.models import linear
from lvp.parametrization import RULES, table

WIDTHS = (64, 256, 1024, 4096)
SMALL = {"widths": (32, 64, 128), "vocab": 128, "layers": 1, "seeds": 2, "steps": 3}


def init(key, width):
    return {"w": jax.random.normal(key, (width,))}


def apply(params, batch, width):
    w = params["w"]
    return {
        "flat": w,
        "block/grows": batch * width**0.5 * w,
        "block/falls": w / width,
        "fixed": batch * jnp.ones(3),
        "lone": w[:1],
    }


def planted(rate=lambda width: width**-0.25, widths=WIDTHS, **changes):
    settings = dict(
        loss=lambda activations, batch: batch * jnp.sum(activations["flat"]),
        optimizer=lambda width: optim.sign_sgd(rate(width)),
        batch=jnp.float32(1.0),
        seeds=16,
    )
    return coordinates.check(init, apply, widths, **(settings | changes))


@pytest.fixture(scope="module")
def checked():
    return planted(steps=3)


def test_planted_powers_are_recovered(checked):
    for name, power in (("flat", 0.0), ("block/grows", 0.5), ("block/falls", -1.0)):
        initial, change = checked[name, "initial"], checked[name, "change"]
        assert abs(initial.fit.slope - power) < 4 * initial.fit.std < 0.2
        # Sign descent on a sum moves every entry by exactly the rate, d^(−1/4), per step.
        assert change.fit.slope == pytest.approx(power - 0.25, abs=1e-3)
        assert change.values[0] == pytest.approx(3 * 64**-0.25 * 64**power, rel=1e-5)
    verdicts = {name: checked[name, "initial"].verdict for name in checked.activations}
    assert verdicts.pop("lone") == "unresolved"  # it has one entry per width
    assert verdicts == {"flat": "flat", "block/grows": "grows", "block/falls": "vanishes", "fixed": "flat"}
    assert checked["fixed", "change"].verdict == "zero" and not checked["fixed", "change"].alarm
    assert checked["flat", "change"].verdict == "vanishes"
    assert checked["block/grows", "initial"].values.shape == (4, 16)
    # The mean of |w| of normal entries is √(2/π).
    assert checked["flat", "initial"].values.mean() == pytest.approx((2 / np.pi) ** 0.5, rel=0.03)


def test_only_unexpected_growth_raises_an_alarm(checked):
    grows = checked["block/grows", "initial"]
    assert grows.alarm
    assert not dataclasses.replace(grows, expected=Expected(0.5, 0.5, "planted")).alarm
    assert dataclasses.replace(grows, expected=Expected(-0.5, -0.5, "planted")).alarm
    growths = [
        dataclasses.replace(g, expected=Expected(0.0, 0.5, "as planted")) if g is grows else g for g in checked.growths
    ]
    text = str(dataclasses.replace(checked, growths=tuple(growths)))
    assert "block/grows at init: as planted" in text and "grows*" in text
    assert "flat change vanishes as d^-0.25" in text and "block/grows at init grows" not in text
    assert "block/grows at init grows as d^0." in str(checked)


@pytest.mark.slow
def test_verdicts_without_growth_and_with_divergence():
    """The batch may depend on the width; it is infinite at one width."""
    rate, batch = lambda width: 0.1, lambda width: jnp.float32(np.inf if width == 256 else 1.0)
    checked = planted(rate=rate, batch=batch)
    quantities = [checked["flat", quantity] for quantity in coordinates.QUANTITIES]
    assert [growth.verdict for growth in quantities] == ["flat"] * 3 and not any(g.alarm for g in quantities)
    assert checked["fixed", "initial"].verdict == "diverged" and checked["fixed", "initial"].alarm
    assert "has diverged" in str(checked)
    json.dumps(checked.as_dict(), allow_nan=False)


@pytest.mark.slow
def test_the_linear_network_has_the_predicted_exponent():
    """The closed forms predict −1/2 for the output at init, not 0."""
    predicted = theory.predicted_exponents("lvp")

    tables = {d: table("lvp", width=d, vocab=8 * d, base_width=32) for d in (32, 64, 128)}
    stds = lambda d: (tables[d]["embedding"].init_std, tables[d]["output"].init_std)  # noqa: E731
    power = predicted.initial
    growth = coordinates.check(
        lambda key, d: linear.init(key, d, 8 * d, *stds(d)),
        lambda params, tokens, d: {"output": linear.apply(params, tokens)},
        tables,
        loss=lambda activations, tokens: -jnp.mean(jax.nn.log_softmax(activations["output"])[jnp.arange(64), tokens]),
        optimizer=lambda d: optim.parametrized(optim.sign_sgd, tables[d], 0.1 / 32),
        batch=jnp.arange(64),
        steps=1,
        expected={("output", "initial"): Expected(power, power, "closed form")},
    )["output", "initial"]
    assert power == pytest.approx(-0.5) and growth.fit.slope == pytest.approx(power, abs=0.05)
    assert growth.verdict == "vanishes" and not growth.alarm
    assert dataclasses.replace(growth, expected=None).alarm  # a check that expects 0 everywhere would raise an alarm


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widths": (64, 128)}, "at least 3"),
        ({"widths": (64, 128, 0)}, "width"),
        ({"steps": 0}, "steps"),
        ({"seeds": 0}, "seeds"),
        ({"margin": 0}, "margin"),
        ({"expected": {("nothing", "change"): Expected(0, 0, "")}}, "nothing"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(InputError, match=message) as error:
        planted(**changes)
    assert "\n" not in str(error.value)


def test_a_rule_for_muon_is_refused():
    with pytest.raises(InputError, match="'nanochat' trains hidden matrices by Muon"):
        of_decoder.check("nanochat", (32, 64, 96))


def test_invalid_activations_are_refused():
    for bad in (
        lambda p, b, w: p["w"],
        lambda p, b, w: {},
        lambda p, b, w: {"x": p["w"][:0]},
        lambda p, b, w: {"x": p["w"] > 0},
    ):
        with pytest.raises(InputError, match="activation"):
            coordinates.check(
                init, bad, WIDTHS, loss=lambda a, b: 0.0, optimizer=lambda w: optim.sign_sgd(1.0), batch=jnp.float32(1)
            )


@pytest.fixture(scope="module")
def lvp_decoder():
    return of_decoder.check("lvp", **SMALL)


@pytest.mark.slow
def test_the_decoder_under_lvp_raises_no_alarm(lvp_decoder):
    assert not lvp_decoder.alarms
    assert {lvp_decoder["embedding", q].verdict for q in coordinates.QUANTITIES} == {"vanishes"}
    for name in set(lvp_decoder.activations) - {"embedding"}:
        assert lvp_decoder[name, "change"].verdict not in ("grows", "vanishes")
    assert lvp_decoder.activations[0] == "embedding" and lvp_decoder.activations[-1] == "logits"
    assert str(lvp_decoder).endswith(").") and "No alarm" in str(lvp_decoder)


@pytest.mark.slow
def test_the_decoder_under_sp_grows():
    checked = of_decoder.check("sp", **SMALL)
    grown = {(growth.activation, growth.quantity) for growth in checked.alarms if growth.verdict == "grows"}
    assert {("hidden", "change"), ("logits", "change")} <= grown
    assert checked["embedding", "initial"].verdict == "flat"


def test_expected_powers_follow_the_tables():
    widths = (64, 256, 1024)
    expected = {
        r: of_decoder._expected([table(r, width=d, vocab=8 * d, base_width=64, base_vocab=512) for d in widths])
        for r in RULES
    }
    assert expected["sp"] == {}
    assert set(expected["mup"]) == {("logits", "initial"), ("logits", "final")}
    assert expected["mup"]["logits", "initial"].low == pytest.approx(-0.5)
    for quantity in coordinates.QUANTITIES:
        lvp = expected["lvp"]["embedding", quantity]
        assert (lvp.low, lvp.high) == pytest.approx((-0.5, -0.5))
    assert -1 < expected["interpolated"]["embedding", "change"].low < -0.4


@pytest.mark.slow
def test_the_command_line(capsys, tmp_path, monkeypatch, lvp_decoder):
    asked = {}
    monkeypatch.setattr(of_decoder, "check", lambda **settings: asked.update(settings) or lvp_decoder)
    line = ["coordinates", "--widths", "32,64,128", "--vocab", "8d", "--layers", "1", "--seeds", "2", "--steps", "3"]
    picture = tmp_path / "growth.svg"
    assert main.main([*line, "--json", "--out", str(picture)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(lvp_decoder.as_dict()))
    assert picture.read_text().count("<svg") == 1 and list(tmp_path.iterdir()) == [picture]
    (panel, *_) = (axes for axes in lvp_decoder.figure().axes if axes.get_ylim()[1] > 0)
    assert panel.get_ylim()[1] / panel.get_ylim()[0] >= 10
    assert asked.pop("vocab")(32) == 256
    assert asked == {"rule": "lvp", "hidden_lr": 0.002} | {key: SMALL[key] for key in ("widths", "layers", "seeds")} | {
        "steps": 3,
        "token_rows": "plain",
    }
    assert main.main(["coordinates"]) == 0
    assert capsys.readouterr().out == f"{lvp_decoder}\n"
    assert (asked["widths"], asked["vocab"]) == (of_decoder.WIDTHS, of_decoder.VOCAB)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--rule lpv", "did you mean lvp?"),
        ("--widths 32,64", "at least 3"),
        ("--widths 32,64,100", "multiple of 32"),
        ("--widths 32;64", "--widths"),
        ("--vocab d", "--vocab"),
        ("--vocab 1", "vocab"),
        ("--out x.pdf", ".png or .svg"),
        ("--hidden-lr 0", "hidden_lr"),
        ("--layers 0", "layers"),
    ],
)
def test_bad_input_gives_a_one_line_error(capsys, line, message):
    try:
        code = main.main(["coordinates", *line.split()])
    except SystemExit as stopped:  # raised by argparse
        code = stopped.code
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.count("\n") == 1 and err.startswith("lvp: ") and message in err
