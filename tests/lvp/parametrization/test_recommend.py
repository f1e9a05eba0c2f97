"""Recommendations: the papers' tables in numbers, identities of transfer, runnable code, and the committed evidence."""

import ast
import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import lvp.parametrization.evidence
from lvp import optim, parametrization
from lvp.cli import main
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder
from lvp.parametrization import RULES, Shape, table
from lvp.parametrization.recommend import recommend
from lvp.parametrization.rules import PAPER_RULES

SIZE = {"width": 2048, "vocab": 32064}
ROLES = ("embedding", "position", "hidden", "output", "vector")


def advised(width, vocab, hidden_lr, *, steps=None, **more):
    """Returns `recommend` for a model of these sizes; `from_width` and others are sizes of the smaller model."""
    sizes = {name: more.pop(name, None) for name in ("depth", "batch", "tokens")}
    smaller = {name: more.pop(f"from_{name}") for name in ("width", "vocab", *sizes) if f"from_{name}" in more}
    if steps and sizes["batch"]:
        sizes["tokens"] = steps * sizes["batch"]
    target = Shape(width, vocab, **sizes)
    return recommend(target, hidden_lr, base=replace(target, **smaller) if smaller else None, steps=steps, **more)


def printed(capsys, *arguments) -> str:
    assert main.main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def rates(advice) -> dict[str, float]:
    return {role.role: role.learning_rate for role in advice.roles}


# Table 2 of Hayou & Liu 2025 at d 2048 and a hidden rate of 3e-4, by hand: √2048 = 45.254834, 1/√2048 = 0.022097087.
@pytest.mark.parametrize(
    ("rule", "embedding", "vector", "embedding_std", "output_std"),
    [
        ("sp", 3e-4, 3e-4, 1.0, 0.022097087),
        ("mup", 0.6144, 0.6144, 1.0, 0.00048828125),
        ("lvp", 0.01357645, 3e-4, 0.022097087, 0.022097087),
    ],
)
def test_the_papers_table_by_hand(rule, embedding, vector, embedding_std, output_std):
    advice = advised(**SIZE, hidden_lr=3e-4, rule=rule)
    wanted = {"embedding": embedding, "position": embedding, "hidden": 3e-4, "output": 3e-4, "vector": vector}
    assert rates(advice) == pytest.approx(wanted, rel=1e-7)
    stds = {role.role: role.init_std for role in advice.roles}
    assert stds["embedding"] == stds["position"] == pytest.approx(embedding_std, rel=1e-7)
    assert stds["output"] == pytest.approx(output_std, rel=1e-7)
    assert stds["hidden"] == pytest.approx(0.022097087, rel=1e-7) and stds["vector"] == 0


def test_interpolated_by_hand():
    # κ 1: √((1 + 2/π · 2047) / (1 + 4094/(π · 32064))) = √(1304.1606 / 1.0406425)
    advice = advised(**SIZE, hidden_lr=1.0, rule="interpolated")
    assert advice["embedding"].learning_rate == pytest.approx(35.4009, rel=1e-5)
    assert advised(**SIZE, hidden_lr=1.0, rule="interpolated", kappa=0.0)["embedding"].learning_rate < 1


@pytest.mark.parametrize(
    ("rule", "hidden", "embedding", "given"),
    # From width 256 to 2048, a factor of 8: hidden 3e-3 and embedding 0.01 at 256; √(1/8) = 0.35355339.
    [
        ("sp", 3e-3, 3e-3, 0.01),
        ("mup", 3.75e-4, 3e-3 * 256, 0.01),
        ("lvp", 3.75e-4, 3e-3 * 16 * 0.35355339, 0.0035355339),
    ],
)
def test_transfer_by_hand(rule, hidden, embedding, given):
    advice = advised(**SIZE, hidden_lr=3e-3, from_width=256, rule=rule)
    assert advice["hidden"].learning_rate == pytest.approx(hidden, rel=1e-12)
    assert advice["embedding"].learning_rate == pytest.approx(embedding, rel=1e-7)
    own = advised(**SIZE, hidden_lr=3e-3, from_width=256, embedding_lr=0.01, rule=rule)
    assert own["embedding"].learning_rate == own["position"].learning_rate == pytest.approx(given, rel=1e-7)
    assert own["embedding"].base_learning_rate == 0.01
    for role in ("hidden", "output", "vector"):  # the embedding's given rate affects only the embedding
        assert own[role] == advice[role]


@pytest.mark.parametrize("rule", RULES)
def test_a_transfer_and_its_inverse_are_the_identity(rule):
    there = advised(width=768, vocab=50304, hidden_lr=3e-3, embedding_lr=0.02, rule=rule, from_width=96)
    back = advised(
        width=96,
        vocab=50304,
        hidden_lr=there["hidden"].learning_rate,
        embedding_lr=there["embedding"].learning_rate,
        rule=rule,
        from_width=768,
    )
    assert back["hidden"].learning_rate == pytest.approx(3e-3, rel=1e-13)
    assert back["embedding"].learning_rate == pytest.approx(0.02, rel=1e-13)
    if not rule.startswith("sp"):  # control: the transfer changed the rates
        assert there["hidden"].learning_rate != pytest.approx(3e-3)
    # Also through another vocabulary, and in two steps.
    far = {"vocab": 32064, "from_vocab": 1024, "rule": rule, "kappa": 0.3}
    direct = advised(width=512, from_width=64, hidden_lr=3e-3, **far)
    half = advised(width=128, vocab=4096, from_width=64, from_vocab=1024, hidden_lr=3e-3, rule=rule, kappa=0.3)
    given = {"hidden_lr": half["hidden"].learning_rate, "embedding_lr": half["embedding"].learning_rate}
    in_two_steps = advised(width=512, from_width=128, **given, **(far | {"from_vocab": 4096}))
    assert rates(in_two_steps) == pytest.approx(rates(direct), rel=1e-13)


@pytest.mark.parametrize("rule", RULES)
def test_a_transfer_to_the_same_width_changes_nothing(rule):
    plain = advised(**SIZE, hidden_lr=3e-4, rule=rule)
    same = advised(**SIZE, hidden_lr=3e-4, rule=rule, from_width=2048)
    assert rates(same) == rates(plain) and {role.multiplier for role in same.roles} == {1.0}
    own = advised(**SIZE, hidden_lr=3e-4, rule=rule, from_width=2048, embedding_lr=0.5)
    assert rates(own) == rates(plain) | {"embedding": 0.5, "position": 0.5}


def value(formula: str, d, m, d0, m0, kappa) -> float:
    code = formula.replace("−", "-").replace("₀", "0").replace("κ", "kappa").replace("π", "pi")
    code = re.sub(r"√(\w+)", r"sqrt(\1)", code).replace("√(", "sqrt(")
    code = re.sub(r"(?<=[\w)]) (?=[\w(])", "*", code)
    return float(eval(code, {"sqrt": math.sqrt, "pi": math.pi, "d": d, "m": m, "d0": d0, "m0": m0, "kappa": kappa}))


@pytest.mark.parametrize("rule", PAPER_RULES)
def test_formulas_equal_the_table(rule):
    for d, m, d0, m0, kappa in [(2048, 32064, 256, 1024, 0.3), (96, 256, 768, 50304, 1.0)]:
        here = table(rule, width=d, vocab=m, kappa=kappa)
        moved = table(rule, width=d, vocab=m, kappa=kappa, base_width=d0, base_vocab=m0, ratios=1)
        assert tuple(PAPER_RULES[rule].formulas) == tuple(here) == ROLES
        for role, formula in PAPER_RULES[rule].formulas.items():
            of = lambda text: value(text, d, m, d0, m0, kappa)  # noqa: B023, E731
            assert of(formula.init) == pytest.approx(here[role].init_std, rel=1e-12)
            assert of(formula.ratio) == pytest.approx(here[role].lr_multiplier, rel=1e-12)
            assert of(formula.move) == pytest.approx(moved[role].lr_multiplier, rel=1e-12)
            assert of(formula.forward) == pytest.approx(here[role].forward_multiplier, rel=1e-12)


MOVED = {"from_width": 32, "depth": 8, "from_depth": 2, "batch": 512, "from_batch": 256, "steps": 100}
MOVED |= {"from_tokens": 12800, "weight_decay": 0.1}
ASKED = [{"rule": rule} for rule in RULES] + [
    MOVED,
    MOVED | {"rule": "umup", "axes": {"depth": "depth_mup", "epsilon": "completed"}, "embedding_lr": 0.01},
    {"b1": 0.8, "eps": 1e-10},
    {"rule": "nanochat", "token_rows": "normalized"},
    {"rule": "nanochat", "b1": 0.8, "from_width": 32},
    {"rule": "nanochat", "depth": 8, "from_depth": 2, "axes": {"depth": "none"}},
    {"rule": "interpolated", "kappa": 0.17},
    {"rule": "lvp", "from_width": 32},
    {"rule": "lvp", "tied": True},
    {"rule": "mup", "tied": True, "from_width": 32, "embedding_lr": 0.02, "token_rows": "sqrt"},
    {"rule": "nanochat", "tied": True, "token_rows": "normalized"},
    {"rule": "mup", "from_width": 32, "embedding_lr": 0.02},
    {"rule": "interpolated", "kappa": 0.17, "from_width": 32, "from_vocab": 256, "embedding_lr": 0.02},
]


PARAMS = jax.jit(decoder(DecoderConfig(512, 64, layers=1, positions="learned", biases=True)).init)(jax.random.key(0))


@pytest.mark.parametrize("asked", ASKED, ids=lambda a: " ".join(map(str, a.values())))
def test_the_snippet_runs_and_has_the_rates(asked):
    advice = advised(width=64, vocab=512, hidden_lr=3e-3, **asked)
    given, code = PARAMS, advice.snippet
    if advice.tied:
        given = {name: leaf for name, leaf in PARAMS.items() if name not in ("embedding", "head")}
        given["wte"] = PARAMS["embedding"]["embedding"]
        code = code.replace("declarations = []", "declarations = [lvp.roles.Declaration('wte', 'tied')]")
    names = {"params": given, "lvp": lvp}
    exec(code, names)
    params = names["params"]
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, given)
    described = optim.describe(names["tx"], params).rows
    assert {row.role for row in described} == {role.role for role in advice.roles}
    for row in described:
        assert row.learning_rate == pytest.approx(advice[row.role].learning_rate, rel=3e-6)
        assert row.init_std == advice[row.role].init_std
        decay = advice[row.role].weight_decay or 0.0
        assert row.weight_decay == pytest.approx(decay * (row.role != "vector"))
    jax.eval_shape(names["tx"].init, params)
    for role in advice.roles:  # what the model itself multiplies is in a comment
        name = "token rows" if role is advice.embedding else role.role
        assert role.forward_multiplier == 1 or f"{name} × {role.forward_multiplier:.6g}" in advice.snippet
        assert role.head_multiplier == 1 or f"logits × {role.head_multiplier:.6g}" in advice.snippet
    branch = advice.table.branch_multiplier
    assert branch == 1 or f"residual branches × {branch:.6g}" in advice.snippet
    assert names["tx"].table.branch_multiplier == advice.table.branch_multiplier
    assert ("optax.contrib.muon" in advice.snippet) == PAPER_RULES[advice.rule].muon  # the hidden rate is Muon's
    if advice.moves_axes:
        assert names["tx"].scaling.betas(0.9, 0.999) == pytest.approx(advice.betas)
    for role in advice.roles:  # the snippet's factors equal `table`
        rate = advice.table[role.role].lr_multiplier * advice["hidden"].learning_rate
        assert rate == pytest.approx(role.learning_rate, rel=1e-12)


def test_the_text_quotes_the_committed_evidence():
    committed = json.loads((Path(__file__).parents[3] / "experiments/results/evidence.json").read_text())
    advice = advised(**SIZE, hidden_lr=3e-4)
    assert advice.evidence == committed and committed
    text = advice.with_evidence()
    for name, result in committed.items():
        assert f"{name}: preset {result['tier']}" in text and result["commit"] in text
        assert text.index("far outside of the measured range") < text.index(f"Measured ({name}")
        lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
        for entry, row in result["entries"].items():
            ((_, rule, rate, mean, worst, size),) = [x for x in lines if x[0] == entry + " *" * row["constant_at_edge"]]
            expected = f"{advice.embedding_by_rule[rule]:.4g}" if rule in RULES else "–"
            assert (rule, rate) == (row["rule"], expected)
            for words, which in ((mean, "mean"), (worst, "worst")):
                low, high = row[f"{which}_gap_interval"]
                assert words == f"{100 * row[f'{which}_gap']:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"
            assert row["gaps"][size] == max(row["gaps"].values())


def test_sizes_outside_the_measured_range_are_reported(monkeypatch):
    result = {"tier": "t", "corpus": "c", "commit": "0", "seeds": 3, "references_at_edge": ["depth × 8"]}
    result["measured"] = {"width": [64, 256], "vocab": [100, 1000], "depth": [2, 16]}
    row = {"rule": "lvp", "constant_at_edge": True, "mean_gap": None, "worst_gap": None}  # None: runs diverged
    row["gaps"] = {"width × 8": 0.1, "depth × 8": None}
    evidence = {"r": result | {"entries": {"LVP": row}}}
    monkeypatch.setattr(lvp.parametrization.evidence, "transfer", lambda: evidence)
    cases = {
        (128, 1000): ({"width": 1.0, "vocab": 1.0}, "Within the measured range: width 128 and vocab 1000."),
        (512, 1000): ({"width": 2.0, "vocab": 1.0}, "not far"),
        (16, 4000): ({"width": 4.0, "vocab": 4.0}, "far outside"),
    }
    for (width, vocab), (beyond, words) in cases.items():
        advice = advised(width=width, vocab=vocab, hidden_lr=1e-3)
        assert advice.beyond["r"] == beyond and words in advice.with_evidence()
        (line,) = [
            re.split(r"  +", x.strip()) for x in advice.with_evidence().splitlines() if x.strip().startswith("LVP *")
        ]
        assert line[3:] == ["diverged", "diverged", "depth × 8"]
        assert "References at the edge of a grid: depth × 8." in advice.with_evidence()
    assert "smaller than the smallest" in advice.with_evidence()
    deep = advised(width=128, vocab=1000, depth=64, from_depth=16, hidden_lr=1e-3)
    assert deep.beyond["r"]["depth"] == 4.0 and "depth 64 is 4 times the largest measured" in deep.with_evidence()
    monkeypatch.setattr(lvp.parametrization.evidence, "transfer", dict)
    assert "contains no committed results of transfer" in advised(**SIZE, hidden_lr=1e-3).with_evidence()


def test_rows_times_the_root_of_the_width_have_a_smaller_rate():
    """All rates of rows times √d are those of plain rows in the unit of the row as it enters."""
    for more in ({}, {"tied": True}, {"from_width": 64}):
        plain, times_root = (
            advised(width=256, vocab=4096, hidden_lr=1e-3, token_rows=x, **more) for x in ("plain", "sqrt")
        )
        root = 8 if more.get("from_width") else 16
        assert times_root.embedding.learning_rate == pytest.approx(plain.embedding.learning_rate / root)
        assert times_root.sweep == pytest.approx(
            [factor * times_root.embedding.learning_rate for factor in (0.5, 1, 2)]
        )
        assert times_root["position"].learning_rate == plain["position"].learning_rate
        assert not plain.warnings and f"√d = {root} times" in times_root.warnings[0]
    tuned = advised(width=256, vocab=4096, hidden_lr=1e-3, from_width=64, embedding_lr=0.01, token_rows="sqrt")
    assert tuned["embedding"].learning_rate == pytest.approx(0.005) and not tuned.warnings


def test_a_tuned_rate_that_the_rule_moves_far_is_tried_unmoved():
    """The rule moves the rate as √(d₀/d). Plain rows may want the rate of the small model."""
    near = advised(**SIZE, hidden_lr=1e-3, from_width=512, embedding_lr=0.01)
    assert near.sweep == pytest.approx([0.0025, 0.005, 0.01])  # half and twice the moved rate
    assert "unchanged" not in str(near) + near.with_evidence()
    between = advised(**SIZE, hidden_lr=1e-3, from_width=256, embedding_lr=0.01)
    assert between.sweep == pytest.approx([0.01 * 8**-0.5, 0.01 * 8**-0.25, 0.01]) and "unchanged" in str(between)
    far = advised(**SIZE, hidden_lr=1e-3, from_width=32, embedding_lr=0.01)
    assert far.sweep == pytest.approx([0.00125, 0.01 * 8**-0.5, 0.01])


@pytest.mark.parametrize("embedding_lr", [None, 0.01])
def test_rows_times_the_root_of_the_width_try_the_small_models_ratio(embedding_lr):
    """The rule moves the ratio of the two rates as √(d/d₀). On fresh text a constant ratio costs less."""
    given = {"hidden_lr": 1e-3, "embedding_lr": embedding_lr, "token_rows": "sqrt"}
    far = advised(**SIZE, from_width=32, **given)
    ratio = far["embedding"].base_learning_rate / 1e-3
    kept = ratio * far["hidden"].learning_rate
    assert far.sweep == pytest.approx([kept, kept * 8**0.5, kept * 8]) and far.sweep[2] == far.embedding.learning_rate
    assert "ratio" in str(far) and "keep the ratio" in far.with_evidence()
    near = advised(**SIZE, from_width=512, **given)
    assert near.sweep == pytest.approx([x * near.embedding.learning_rate for x in (0.5, 1, 2)])
    assert "keep the ratio" not in near.with_evidence()


def test_muon_keeps_its_rate_and_the_other_roles_have_adams():
    """Muon's update of a d × d matrix is d^(−1/2) per coordinate, and Adam's 0.2 with `consistent_rms`."""
    muon = advised(**SIZE, hidden_lr=0.02, optimizer="muon", weight_decay=0.1)
    adam = advised(**SIZE, hidden_lr=0.02 / (0.2 * 2048**0.5), weight_decay=0.1)
    for advice in muon.roles:
        if advice.role != "hidden":
            assert advice == adam[advice.role]
    assert muon["hidden"].learning_rate == 0.02 and muon["hidden"].decay_per_step == pytest.approx(0.002)
    assert muon.adam_lr == pytest.approx(adam.hidden_lr) and "Muon's rate 0.02" in str(muon)
    assert muon.sweep == pytest.approx([0.5 * x for x in (adam.sweep[0], 2 * adam.sweep[0], 4 * adam.sweep[0])])
    with pytest.raises(InputError, match="give Muon's rate tuned at width 2048, without base"):
        advised(**SIZE, hidden_lr=0.02, optimizer="muon", from_width=512)
    (warning,) = advised(**SIZE, hidden_lr=0.02).warnings  # control: taken for Adam's rate
    assert "--optimizer muon" in warning
    with pytest.raises(InputError, match="unknown optimizer 'mun'; did you mean muon"):
        advised(**SIZE, hidden_lr=0.02, optimizer="mun")


def test_json_equals_the_python_result(capsys):
    line = ["--width", 2048, "--vocab", 32064, "--hidden-lr", 3e-3, "--rule", "interpolated", "--kappa", 0.2]
    line += ["--from-width", 256, "--from-vocab", 8192, "--embedding-lr", 0.02]
    names = ("hidden_lr", "rule", "kappa", "from_width", "from_vocab", "embedding_lr")
    values = (3e-3, "interpolated", 0.2, 256, 8192, 0.02)
    advice = advised(**SIZE, **dict(zip(names, values, strict=True)))
    printed_advice = json.loads(printed(capsys, "recommend", *line, "--json"))
    assert printed_advice == json.loads(json.dumps(advice.as_dict()))
    assert printed_advice["roles"]["embedding"]["learning_rate"] == advice["embedding"].learning_rate
    assert printed(capsys, "recommend", *line) == f"{advice}\n"


def test_a_transfer_over_all_axes(capsys):
    """The numbers of `scale`, by hand for LVP with depth rule `completep`: m_N 8, m_L 4, m_B 4, m_D 40."""
    line = "recommend --width 512 --vocab 32k --hidden-lr 3e-3 --from-width 64 --depth 16 --from-depth 4 --batch 65536"
    line += " --from-batch 16384 --tokens 2e9 --from-tokens 50M --weight-decay 0.1"
    line += " --axis batch=sqrt_rate decay=constant_timescale"
    advice = json.loads(printed(capsys, *line.split(), "--json"))
    assert advice["branch_multiplier"] == 0.25 and advice["betas"] == [0.9, 0.999]
    hidden, embedding = advice["roles"]["hidden"], advice["roles"]["embedding"]
    assert hidden["learning_rate"] == pytest.approx(3e-3 * 2 / 8) and hidden["epsilon"] == 0.25e-8
    assert hidden["weight_decay"] == pytest.approx(0.1 * 4 / 10)  # rate / 4, steps × 10
    assert hidden["decay_per_step"] == pytest.approx(hidden["weight_decay"] * hidden["learning_rate"])
    assert advice["roles"]["vector"]["weight_decay"] == 0 and advice["steps"] == pytest.approx(2e9 / 65536)
    assert advice["sweep"] == pytest.approx([embedding["learning_rate"] * 4.0**k for k in range(3)])
    text = printed(capsys, *line.split(), "--evidence")
    assert "residual branches × 0.25" in text and "Try the embedding rates" in text and "depth_mup" in text
    for other in advice["alternatives"]:
        assert other["refused"] == (other["axis"] == "epsilon" and other["rule"] != "none")
        if other["chosen"]:
            assert other["hidden_lr"] == hidden["learning_rate"]
            assert other["embedding_lr"] == embedding["learning_rate"]
    (alone,) = (x for x in advice["alternatives"] if (x["axis"], x["rule"]) == ("depth", "depth_mup"))
    assert alone["hidden_lr"] == pytest.approx(hidden["learning_rate"] / 2) and alone["branch_multiplier"] == 0.5


def test_unit_init_is_the_same_run_at_the_base():
    advice = advised(**SIZE, hidden_lr=3e-3, from_width=256, rule="mup")
    other = {x.rule: x for x in advice.alternatives if x.axis == "width and vocab"}
    # Absorbed: rate · forward multiplier of u-μP at 2048 is μP's.
    assert other["umup"].hidden_lr * 2048**-0.5 == pytest.approx(other["mup"].hidden_lr)
    assert other["completep"].hidden_lr == other["mup"].hidden_lr == advice["hidden"].learning_rate


def test_probable_mistakes_are_named():
    assert advised(**SIZE, hidden_lr=3e-4, from_width=256).warnings == ()
    (swapped,) = advised(width=32064, vocab=2048, hidden_lr=1e-6).warnings
    assert "width 32064 is larger than vocab 2048" in swapped
    advice = advised(**SIZE, hidden_lr=3)
    rows, large = advice.warnings
    assert "embedding rate 135.8 is" in rows
    assert "hidden rate 3 is 136 times the init std" in large and f"warning: {large[:40]}" in advice.with_evidence()
    (base,) = advised(**SIZE, hidden_lr=1e-4, from_width=1024, from_vocab=512).warnings
    assert "from_width 1024" in base
    assert advised(**SIZE, hidden_lr=0.02, rule="nanochat", token_rows="normalized").warnings == ()  # Muon's rate


def test_the_answer_has_fifteen_lines_with_rates_and_code():
    lines = str(recommend(Shape(**SIZE), 3e-4)).splitlines()
    assert len(lines) == 15 and max(map(len, lines)) <= 120
    assert lines[2].split() == ["embedding,", "position", "0.01358", "0.0221"]
    assert "(--evidence: why). Transfer measured at width ≤ 256, vocab ≤ 2,048." in lines[6]
    assert "measured" not in str(recommend(Shape(width=512, vocab=2048), 3e-4))  # control: not far


def test_a_decay_that_forgets_the_training_is_named():
    """At d 2048 the embedding decays √2048 times as fast as hidden matrices: 1 / (0.0136 · 0.1) = 737 steps."""
    (warning,) = advised(**SIZE, hidden_lr=3e-4, steps=20_000, weight_decay=0.1).warnings
    assert "timescale of 737 of 20000 steps for embedding, position" in warning
    assert f"never occurs keeps {(1 - 0.1 * 3e-4 * 2048**0.5) ** 20_000:.2g} of its size." in warning
    equal = f"{0.1 / 2048**0.5:.3g}"
    assert f"weight_decay={{'embedding': {equal}, 'position': {equal}, 'hidden': 0.1, 'output': 0.1}}" in warning
    (unequal,) = advised(**SIZE, hidden_lr=3e-4, steps=7_000, weight_decay=0.1).warnings  # 7,370 steps hold a tenth
    assert "737 steps for embedding and 3.33e+04 for hidden" in unequal and f"'embedding': {equal}" in unequal
    assert advised(**SIZE, hidden_lr=3e-4, weight_decay=0.1).warnings == (unequal,)
    (equal,) = advised(**SIZE, hidden_lr=3e-4, steps=20_000, weight_decay=50.0, rule="sp").warnings  # control
    assert "never occurs" in equal and "timescale of hidden" not in equal


def test_decays_of_one_timescale_are_those_that_the_printed_code_takes():
    """The code gives λ of the smaller model; the rule `constant_timescale` multiplies it."""
    sizes = {"from_width": 256, "tokens": 10**9, "batch": 65536, "axes": {"decay": "constant_timescale"}}
    advice = advised(**SIZE, hidden_lr=3e-3, weight_decay=0.1, **sizes)
    (warning,) = advice.warnings
    given = ast.literal_eval(warning.partition("with weight_decay=")[2].partition(" at these rates")[0])
    moved = {role.role: role.weight_decay / 0.1 for role in advice.roles if role.weight_decay}  # of the rule
    assert moved["hidden"] != 1 and given["hidden"] == pytest.approx(0.1)
    rates = {role.role: role.learning_rate for role in advice.roles}
    per_step = [given[name] * moved[name] * rates[name] for name in given]
    assert per_step == pytest.approx([per_step[0]] * len(per_step), rel=1e-2)


def test_rules_that_change_beta_are_refused_beside_muon():
    sizes = {"from_width": 512, "batch": 1024, "from_batch": 256}
    with pytest.raises(InputError, match="multiply 1 − β₁ by 4, and Muon.*such as batch=sqrt_rate"):
        advised(**SIZE, hidden_lr=0.02, rule="nanochat", axes={"batch": "sqrt"}, **sizes)
    advised(**SIZE, hidden_lr=0.02, rule="nanochat", axes={"batch": "sqrt_rate"}, **sizes)


def test_changed_betas_are_a_warning():
    moved = {"from_width": 512, "batch": 1024, "from_batch": 256}
    assert advised(**SIZE, hidden_lr=1e-4, **moved).warnings == ()
    (warning,) = advised(**SIZE, hidden_lr=1e-4, axes={"batch": "sqrt"}, **moved).warnings
    assert warning == "the rules of batch and horizon change β₁ from 0.9 to 0.6, β₂ from 0.999 to 0.996."


def test_steps_and_decay_without_a_smaller_model():
    advice = advised(**SIZE, hidden_lr=1e-3, steps=1000, weight_decay=0.1)
    assert advice.steps == 1000 and advice.base is None and not advice.alternatives
    assert advice["hidden"].decay_per_step == pytest.approx(1e-4)
    assert "1000 steps" in advice.with_evidence() and f"{(1 - 1e-4) ** 1000:.3g}" in advice.with_evidence()


def test_tables_on_the_command_line(capsys):
    size = ["--width", 2048, "--vocab", 32064]
    tables = json.loads(printed(capsys, "table", *size, "--json"))
    assert tuple(tables) == RULES
    for rule, made in tables.items():
        rows = {row["role"]: row["lr_multiplier"] for row in made["rows"]}
        assert rows == {row.role: row.lr_multiplier for row in table(rule, **SIZE).rows}
    of_lvp = f"{table('lvp', **SIZE)}\n"
    assert printed(capsys, "table", *size, "--rule", "lvp") == of_lvp
    assert printed(capsys, "table", "--width", "2048", "--vocab", "32.064k", "--rule", "LVP") == of_lvp
    side = printed(capsys, "table", *size)
    (line,) = re.findall(r"^embedding  1 +2048 .*$", side, flags=re.MULTILINE)
    assert line.split()[1:] == ["1", "2048", "45.2548", "35.4009", "2048", "1", "2048"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --rule lpv", "did you mean lvp?"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --rule mupp", "did you mean mup?"),
        (
            "recommend --width 64 --vocab 512 --hidden-lr -3e-4",
            "must be a finite number above zero, got -0.0003",
        ),
        ("recommend --width 64 --vocab 512q --hidden-lr 1e-3", "--vocab"),
        ("recommend --width 64 --vocab 512 --hidden-lr 0", "hidden_lr"),
        ("recommend --width 64 --vocab 512 --hidden-lr nan", "hidden_lr"),
        ("recommend --width 64 --vocab 512 --hidden-lr fast", "--hidden-lr"),
        ("recommend --width 0 --vocab 512 --hidden-lr 1e-3", "width"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --from-width 0", "--from-width"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --from-vocab 64", "needs --from-width"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --embedding-lr 1", "give base (--from-width)"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --from-width 32 --embedding-lr -1", "embedding_lr"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --kappa 2", "kappa"),
        ("recommend --vocab 512 --hidden-lr 1e-3 --rows sqrt", "--width"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --rows squared", "unknown token_rows 'squared'"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --depth 0 --from-depth 2", "depth must be a whole number"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --depth 4 --from-depth 0", "--from-depth must be a whole"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --steps 0", "--steps must be a whole number"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --depth 4", "--depth 4 needs --from-depth"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --from-batch 4", "--from-batch 4 needs --batch"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --tokens 9 --steps 3", "pass only one"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --axis batch=sqrt", "needs a smaller model"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --axis colour=red", "unknown axis 'colour'"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --axis depth", "--axis takes key=value, got 'depth'"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --axis depth=x", "unknown rule of axis depth"),
        (
            "recommend --width 64 --vocab 512 --hidden-lr 1e-3 --from-width 32 --axis decay=constant_timescale",
            "needs weight_decay",
        ),
        (
            "recommend --width 64 --vocab 512 --hidden-lr 1e-3 --from-width 32 --axis epsilon=completed",
            "epsilon rule 'completed' assumes a head",
        ),
        (
            "recommend --width 64 --vocab 512 --hidden-lr 1e-3 --batch 16 --from-batch 1 --axis batch=sqrt",
            "b1 0.9 becomes -0.6",
        ),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --weight-decay -1", "weight_decay must be a finite"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --b2 1", "b2 must lie in"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --tokenizer x", "must be given together"),
        ("recommend --width 64 --vocab 512 --hidden-lr 1e-3 --tokenizer no --corpus no", "cannot read no"),
        ("recommend --width 64 --vocab 512 --hiden-lr 1e-3", "--hidden-lr"),
        ("recomend --width 64", "did you mean recommend?"),
        ("table --width 64 --vocab 512 --rule intrepolated", "did you mean interpolated?"),
        ("table --width 64", "--vocab"),
    ],
)
def test_bad_input_gives_a_one_line_error(capsys, line, message):
    try:
        code = main.main(line.split())
    except SystemExit as stopped:  # raised by argparse
        code = stopped.code
    out, err = capsys.readouterr()
    assert code == 2 and out == "" and err.count("\n") == 1 and err.startswith("lvp: ") and message in err


def test_invalid_counts_and_kappa_are_refused():
    for bad in ({"kappa": 0.1, "counts": [3, 1]}, {"counts": [1.5, 2.0]}, {"counts": [0, 0]}, {"counts": [1] * 600}):
        with pytest.raises(InputError):
            advised(width=64, vocab=512, hidden_lr=1e-3, rule="interpolated", **bad)
    with pytest.raises(InputError, match="role"):
        advised(**SIZE, hidden_lr=1e-3)["bias"]


def test_a_function_as_a_rule_gives_a_one_line_error():
    with pytest.raises(InputError, match="rule must be a name, got <function"):
        advised(**SIZE, hidden_lr=1e-3, rule=lambda width, vocab: {})


def test_counts_give_the_kappa_of_their_frequencies():
    counts = np.random.default_rng(0).permutation((1e6 / np.arange(1, 401) ** 1.1).astype(int))
    alpha = np.append(counts, [0] * 112) / counts.sum()
    advice = advised(width=64, vocab=512, hidden_lr=1e-3, rule="interpolated", counts=counts)
    wanted = table("interpolated", width=64, vocab=512, frequencies=alpha)
    assert advice.kappa == pytest.approx(wanted.kappa, rel=1e-12)
    assert advice["embedding"].multiplier == pytest.approx(wanted["embedding"].lr_multiplier, rel=1e-12)
    tokens, kappa = advice.tokens, np.sort(parametrization.attenuation(alpha))[::-1]
    assert tokens.unseen == 112 and tokens.vocab == 512 and tokens.tokens == counts.sum()
    assert tokens.kappa_top == pytest.approx(kappa[0]) and tokens.kappa_top > tokens.kappa > tokens.kappa_median
    assert "never seen" in advice.with_evidence() and "κ = 1" in advice.with_evidence()
    # The other rules do not depend on the counts. A few tokens are enough.
    with_counts = advised(width=64, vocab=512, hidden_lr=1e-3, counts=counts)
    assert rates(with_counts) == rates(advised(width=64, vocab=512, hidden_lr=1e-3))
    assert advised(width=64, vocab=512, hidden_lr=1e-3, counts=[5, 3]).tokens.tokens == 8
    json.dumps(advice.as_dict(), allow_nan=False)


def test_recommend_imports_no_heavy_package():
    code = (
        "import sys; from lvp.cli.main import main;"
        "main('recommend --width 64 --vocab 512 --hidden-lr 1e-3'.split());"
        "heavy = {'jax', 'flax', 'optax', 'scipy', 'matplotlib', 'sentencepiece'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
