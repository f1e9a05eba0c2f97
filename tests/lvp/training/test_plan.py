"""Plans: a program that does not fit is reported, and the time is the model's FLOPs over the makers' peak."""

import dataclasses
import json

import jax
import pytest
from jax.experimental import topologies

from lvp.cli import main, settings
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig, hayou_liu_1b
from lvp.parallel.hardware import ACCELERATORS, GIB, accelerator
from lvp.training import DataConfig, OptimizerConfig, Setting, plan

SETTING = Setting(hayou_liu_1b(), DataConfig("none", order="rows"), 64, 10, OptimizerConfig("adamw"), micro_batches=2)
MEMORY = {
    "parameters": 2 * GIB,
    "optimizer": 4 * GIB,
    "rest of the state, data": GIB,
    "activations and temporaries": 8 * GIB,
}


def made(**changes):
    sizes = {"data": 1, "fsdp": 16, "model": 1}
    fields = dict(topology="v5e:4x4", sizes=sizes, setting=SETTING, accelerator=ACCELERATORS["v5e"], memory=MEMORY)
    return plan.Plan(**(fields | changes))


def test_used_memory_is_compared_with_available_memory():
    assert made().used == 15 * GIB and made().fits
    assert not made(memory=MEMORY | {"activations and temporaries": 10 * GIB}).fits
    assert made(accelerator=None).fits is None  # the memory of a host is unknown


def test_the_lower_bound_of_the_time_by_hand():
    tokens = 64 * 4096
    # 6 per weight in a matrix product (all but the look-up and the norms), and attention's 12 per key, for 32 heads of
    # 128.
    weights = 1_842_710_528 - 32064 * 2048 - 49 * 2048
    keys = 2048 * (1 - 2048 / 8192)
    assert made().flops == pytest.approx(tokens * (6 * weights + 12 * 24 * keys * 4096))
    assert made().seconds == pytest.approx(made().flops / 16 / 197e12)
    assert made(accelerator=None).seconds is None and "at peak" not in plan.table(made(accelerator=None))


def test_remedies_end_at_one_row_per_device():
    setting = dataclasses.replace(SETTING, micro_batches=1, model=dataclasses.replace(SETTING.model, remat="none"))
    sizes = made().sizes
    remedies = plan.remedies(setting, sizes)
    words = ["--remat block", "--remat block --micro-batches 2", "--remat block --micro-batches 4"]
    assert [w for w, _ in remedies] == words
    assert remedies[-1][1].micro_batch_size == 16 and remedies[-1][1].model.remat == "block"
    assert plan.remedies(dataclasses.replace(SETTING, micro_batches=4), sizes) == []


@pytest.mark.parametrize("refused", ["by the compiler", "by our count"])
def test_a_program_that_does_not_fit_gets_the_next_remedy(refused, monkeypatch, capsys):
    """The first try and the first remedy are too large, the second remedy fits."""
    asked = []

    def plan_(setting, topology, mesh):
        asked.append((setting.model.remat, setting.micro_batches))
        if setting.micro_batches > 1:
            return made(setting=setting)
        if refused == "by the compiler":
            raise plan.TooLarge("used 18G of 15.75G hbm")
        return made(setting=setting, memory=MEMORY | {"optimizer": 20 * GIB})

    monkeypatch.setattr(plan, "plan", plan_)
    monkeypatch.setattr(plan, "devices_of", lambda _: ([None] * 16, None))
    assert main.main(["plan", "1b", "--topology", "v5e:4x4", "--batch", "64", "--remat", "none"]) == 0
    printed = capsys.readouterr()
    assert asked == [("none", 1), ("block", 1), ("block", 2)]
    assert "it fits with --remat block --micro-batches 2" in printed.out and printed.err.count("does not fit") == 2


def test_without_a_remedy_more_devices_are_needed(monkeypatch, capsys):
    monkeypatch.setattr(plan, "plan", lambda *_: made(memory=MEMORY | {"optimizer": 20 * GIB}))
    monkeypatch.setattr(plan, "devices_of", lambda _: ([None] * 16, None))
    assert main.main(["plan", "1b", "--topology", "v5e:4x4", "--batch", "16"]) == 2
    assert "use more devices or another --mesh" in capsys.readouterr().err


def test_a_program_refused_by_the_compiler_is_too_large():
    def refuse():
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Ran out of memory. Used 18.64G of 15.75G hbm. Exceeded by"
        )

    with pytest.raises(plan.TooLarge, match="v5e: .*18.64G of 15.75G hbm"):
        plan.compiled_or_too_large(refuse, "v5e")

    def fail():
        raise jax.errors.JaxRuntimeError("INTERNAL: bug")

    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        plan.compiled_or_too_large(fail, "v5e")


@pytest.mark.parametrize("setting", [["--remat", "none"], ["--set", "norm=none"], ["--set", "window=none"]], ids=str)
def test_none_is_a_choice_or_an_absent_value(setting):
    changes = dict([setting[1].split("=")]) if setting[0] == "--set" else {"remat": "none"}
    ((name, _),) = changes.items()
    assert getattr(settings.decoder("1b", changes), name) == (None if name == "window" else "none")


def test_the_table_names_its_subject():
    text = plan.table(made())
    for words in (
        "v5e:4x4: 16 devices, mesh data 1 × fsdp 16 × model 1",
        "1.84 B parameters",
        "of 16.0 GiB",
        "a lower bound",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ("v9:4x4", "must be like v5e:4x4, v5p:2x2x4, v6e:4x4, h100:8 or host:8, got 'v9:4x4'"),
        ("h200:8", "topology must be like"),
        ("h100:0", "topology h100:0: write h100:8 for eight GPUs"),
        ("v5e", "topology must be like"),
        ("host:no", "write host:8 for eight"),
        ("host:0", "write host:8"),
        ("host:4096", "XLA_FLAGS=--xla_force_host_platform_device_count=4096"),
    ],
)
def test_unknown_topologies_are_named(topology, words):
    with pytest.raises(InputError, match=words):
        plan.devices_of(topology)


def test_without_libtpu_the_error_gives_the_command(monkeypatch):
    def refuse(**_):
        raise NotImplementedError("JAX TPU support not installed; cannot generate TPU topology. See elsewhere")

    monkeypatch.setattr(topologies, "get_topology_desc", refuse)
    with pytest.raises(InputError, match=r"libtpu, which is not installed: pip install 'lvp\[lab,tpu\]'"):
        plan.devices_of("v5e:4x4")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v5 lite", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("cpu", None),
    ],
)
def test_devices_are_identified_by_jaxs_name(kind, name):
    assert accelerator(kind) == ACCELERATORS.get(name)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["2b"], "unknown model '2b'; did you mean 1b?"),
        (["1b", "--set", "widht=4"], "unknown field of the model 'widht'; did you mean width?"),
        (["1b", "--set", "width=four"], "width: must be a whole number"),
        (["1b", "--set", "kv_heads=5"], "kv_heads 5 does not divide the 32 heads"),
        (["1b", "--set", "width"], "--set takes key=value, got 'width'"),
        (["1b", "--batch", "0"], "batch must be at least 1"),
        (["1b", "--micro-batches", "3"], "micro_batches (3) must divide batch (256)"),
        (["1b", "--optimizer", "adan"], "optimizer must be one of"),
        (["1b", "--mehs", "model=2"], "unknown argument '--mehs'; did you mean --mesh?"),
        (["missing.json"], "missing.json"),
    ],
    ids=str,
)
def test_bad_input_gives_a_one_line_error_and_exit_code_2(arguments, words, capsys, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    try:
        code = main.main(["plan", *arguments, "--topology", "host:1"])
    except SystemExit as error:
        code = error.code
    printed = capsys.readouterr().err
    assert code == 2 and printed.startswith("lvp: ") and printed.count("\n") == 1 and words in printed


def test_a_model_may_be_a_file(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"vocab": 50, "width": 24, "head_dim": 8}))
    assert settings.decoder(str(path), {"layers": "3"}) == DecoderConfig(50, 24, layers=3, head_dim=8)
    path.write_text(json.dumps({"width": 24}))
    with pytest.raises(InputError, match="vocab"):
        settings.decoder(str(path), {})
