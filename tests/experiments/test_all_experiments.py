"""The presets of all experiments, and values that no experiment can use: an error of one line names field and bound."""

import pytest

from lvp import experiments
from lvp.errors import InputError
from lvp.experiments.width_fixed_vocab.config import FACTORS
from lvp.training import task_for

# (experiment, preset) → (values, words of the error)
CASES = {
    ("fresh_text", "laptop"): [
        ({"groups": ("paper", "gpt")}, "groups must hold only paper, today, decayed, muon; got 'gpt'"),
        ({"widths": (64, 128), "vocabs": (512,)}, "one value per shape, got 2 widths and 1 vocabs"),
        ({"widths": (64, 64), "vocabs": (512, 512)}, "hold a shape twice"),
        ({"order": "random"}, "order must be one of windows, rows"),
        ({"epochs": 1.0}, r"epochs must be at most 0\.99, so that no row is drawn twice"),
        ({"epochs": 0.0}, "epochs must be finite and above zero"),
        ({"most_ratios": 4}, "most_ratios must be at least 5"),
        ({"ratio_reach": 1}, "ratio_reach must be at least 2"),
        ({"margin": -0.1}, "margin"),
        ({"cooldown": 1.5}, "cooldown"),
        ({"seeds": (0, 1)}, "seeds"),
    ],
    ("large_updates", "laptop"): [
        ({"groups": "standard,odd"}, "groups must hold only"),
        ({"first_epochs": "30"}, "first_epochs"),
        ({"scales": "8,128"}, "the smallest of scales must be 1"),
        ({"scales": "1"}, "scales needs at least 2"),
        ({"seeds": "0,0"}, "seeds holds a value twice"),
        ({"points": "1"}, "points"),
        ({"groups": ""}, "groups must hold at least one"),
        ({"rate": "0"}, "rate"),
        ({"first_images": "0"}, "first_images must be at least 1"),
    ],
    ("mean_embedding", "laptop"): [
        ({"groups": "Adam,Adan"}, "groups must hold only"),
        ({"heads": "free"}, "heads must hold only"),
        ({"measured": "0,1.5"}, "measured"),
        ({"sgd_rates": "0"}, "sgd_rates"),
    ],
    ("muon", "laptop"): [
        ({"powers": (0.0, 1.0)}, r"powers must contain 0 \(one rate\) and 0\.5"),
        ({"factors": (0.5, 1.0)}, "must have the same length"),
        ({"seeds": (0, 1)}, "seeds"),
        ({"width": 0}, "width"),
    ],
    ("representation_change", "laptop"): [
        ({"groups": "LionAR,Lion"}, "groups must hold only LionAR, "),
        ({"fan_ins": ""}, "fan_ins is empty"),
        ({"snrs": "0"}, "snrs"),
        ({"batch_sizes": "0,1"}, "batch_sizes"),
        ({"numbers": "0"}, "numbers"),
        ({"points": "1"}, "points"),
        ({"warmup": "0.8"}, "warmup and cooldown must be .* with a sum of at most 1"),
        ({"micro_batches": "1"}, "micro_batches must be at least 2"),
        ({"lion_rate": "0"}, "lion_rate"),
    ],
    ("row_growth", "laptop"): [
        ({"widths": "32,128"}, "widths must contain 64"),
        ({"horizons": "300"}, "horizons must contain 1500"),
        ({"amplitude_factors": "0.25,4"}, "amplitude_factors must contain 1"),
        ({"positions": "rotary"}, "positions must begin with sinusoidal"),
        ({"token_rows": "normalized"}, "token_rows must hold only sqrt, plain"),
        ({"optimizers": "sgd"}, "optimizers must hold only adam, lion_a"),
        ({"lowest_rate": "17"}, "must be below highest_rate"),
        ({"num_rates": "2"}, "num_rates must be at least 3"),
        ({"lowest_rate": "15.99999"}, "gives equal rates"),
        ({"points": "1"}, "points"),
        ({"long_seeds": "0"}, "long_seeds must be at least 1"),
        ({"long_rates": "2"}, "long_rates must be at least 3"),
    ],
    ("tied", "laptop"): [({"groups": "lvp_own"}, "groups"), ({"rates_times_width": "0.1,0.2"}, "at least 3")],
    ("warmup", "laptop"): [
        ({"steps": "95"}, "steps=95 must be at least 100: the reference warm-up of 20% has 19 steps and needs 20"),
        ({"warmups": "0,0.2,0.6"}, "with a sum of at most 1"),
        ({"warmups": "0,0.1"}, "must contain 0 and reference=0.2"),
        ({"groups": "AdamW,Adan"}, "groups must hold only"),
        ({"more_seeds": "1,2,3"}, r"cannot judge the rates that seeds=\(.*\) selected: seeds 1.* selected"),
        ({"more_seeds": "100,101"}, "2 judging seeds: a claim needs at least 3"),
        ({"more_seeds": "100,100"}, "more_seeds holds a value twice"),
        ({"high_momentum": "1"}, "high_momentum must be below 1"),
        ({"points": "0"}, "points"),
        ({"micro_batches": "1"}, "micro_batches must be at least 2"),
        ({"groups": ""}, "groups must hold at least one"),
        ({"held_decay": "0"}, "held_decay"),
    ],
    ("warmup_batch", "laptop"): [
        ({"batches": "128"}, "batches needs at least 2"),
        (
            {"batches": "512,2048"},
            r"batches=\(512, 2048\): batch 2048 at equal tokens .* steps=50 must be at least 100",
        ),
        ({"more_seeds": "1,2,3"}, r"cannot judge the rates that seeds=\(.*\) selected"),
    ],
    ("width_fixed_vocab", "smoke"): [
        *(({x: ""}, f"{x} is empty") for x in ("widths", "rates", "hidden_rates", "seeds", *FACTORS)),
        *(({name: "0.25,4"}, f"{name} must contain 1") for name in FACTORS),
        *(({x: "1,1"}, f"{x} holds a value twice") for x in ("widths", "hidden_rates", *FACTORS)),
        *(({x: "-4,1,2"}, f"{x} must be .*above zero, got -4") for x in ("widths", "rates", "hidden_rates", *FACTORS)),
        ({"rates": "0.1,0.2"}, "rates needs at least 3"),
        ({"design": "cross"}, "design must be one of full, star, got 'cross'"),
        *(({"tolerance": x}, "tolerance") for x in ("0", "nan", "inf")),
        *(({x: 0}, x) for x in ("steps", "vocab", "batch")),
        ({"vocabs": "256"}, "did you mean vocab"),
    ],
    ("width_vocab", "smoke"): [
        ({"width": "32"}, "did you mean widths"),
        ({"colour": "red"}, "unknown key of width_vocab 'colour'"),
        ({"widths": "32,x"}, "widths: .*'x'"),
        ({"widths": ""}, "widths is empty"),
        ({"widths": "0,32"}, "widths must be finite and above zero, got 0"),
        ({"rates": "0.1,0.1"}, "twice"),
        ({"rates": "0.1,0.2"}, "at least 3"),
        ({"rates": "0"}, "rates must be finite and above zero"),
        ({"rates": "nan"}, "got 'nan'"),
        ({"rates": "-0.1"}, "got -0.1"),
        ({"seeds": "-1"}, "seeds"),
        ({"steps": "many"}, "steps: .*'many'"),
        ({"vocab_per_width": 0}, "vocab_per_width"),
        ({"eps": "nan"}, "eps"),
        ({"b1": "1"}, "b1"),
        ({"tolerance": "-1"}, "tolerance"),
        ({"token_rows": "sqr"}, "token_rows must hold only plain, sqrt, normalized"),
        ({"token_rows": "plain,plain"}, "none twice"),
        ({"design": "star"}, "design must be one of grid, adaptive, got 'star'"),
        ({"design": "adaptive"}, "at least 5 rates, got 4; use a grid"),
    ],
    ("width_vocab", "workstation"): [
        ({"tuning_seeds": "2,3"}, "tuning_seeds and seeds share 2"),
        ({"tuning_seeds": "none"}, "tuning_seeds"),
        ({"hidden_constants": "0.1,0.2"}, "hidden_constants needs at least 3 values, got 2"),
        ({"hidden_constants": "0,0.2,0.4"}, "hidden_constants"),
        ({"hidden_constants": ()}, "tuning_seeds=3, 4 needs hidden_constants"),
    ],
}


@pytest.mark.parametrize(
    ("name", "preset", "values", "says"),
    [pytest.param(*key, *case, id=f"{key[0]}-{i}") for key, cases in CASES.items() for i, case in enumerate(cases)],
)
def test_unusable_values_give_a_one_line_error(name, preset, values, says):
    with pytest.raises(InputError, match=says) as caught:
        experiments.load(name).settings(experiments.configured(name, preset, values))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_preset_has_distinct_trainable_runs(name):
    experiment = experiments.load(name)
    for preset in experiment.presets:
        planned = experiment.settings(experiments.configured(name, preset))
        assert len({each.label for each in planned}) == len(planned)
        assert any(each.runs for each in planned)  # the runs of some settings depend on results
        for each in planned:
            assert each.setting.flops_per_run > 0 and len({str(run) for run in each.runs}) == len(each.runs)
            task_for(each.setting).check_runs(each.runs)
