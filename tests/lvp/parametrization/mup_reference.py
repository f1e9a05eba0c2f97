"""Writes mup_reference.json: what microsoft/mup (1.0.0) gives every parameter of an MLP and a GPT at two widths.

    pip install torch==2.13.0 mup==1.0.0
    python tests/lvp/parametrization/mup_reference.py

Rate and decay are those of `MuAdamW` at lr 1 and weight_decay 1. The std is measured: the parameter's std over its std
at the base, after `mup.init.normal_` (the readout keeps torch's init, which mup rescales). A readout also has the
factor on its output.
"""

import json
from pathlib import Path

BASE, WIDTHS, VOCAB, CONTEXT = 64, (128, 256), 4096, 128
FILE = Path(__file__).with_suffix(".json")


def build(width: int):
    import mup
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            for name in ("query", "key", "value", "out"):
                setattr(self, name, nn.Linear(width, width, bias=False))
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
            self.norm = nn.LayerNorm(width)

    mlp = {"first": nn.Linear(VOCAB, width, bias=False), "middle": nn.Linear(width, width)}
    gpt = {"embedding": nn.Embedding(VOCAB, width), "position": nn.Embedding(CONTEXT, width), "block": Block()}
    head = lambda: mup.MuReadout(width, VOCAB, bias=False)  # noqa: E731
    return {"mlp": nn.ModuleDict(mlp | {"head": head()}), "gpt": nn.ModuleDict(gpt | {"head": head()})}


def stds(model) -> dict[str, float]:
    import mup

    for name, parameter in model.named_parameters():
        if parameter.ndim > 1 and "head" not in name:
            mup.init.normal_(parameter, std=0.1)
    return {name: float(p.detach().std()) for name, p in model.named_parameters() if p.ndim > 1}


def numbers() -> dict:
    import mup
    import torch

    torch.manual_seed(0)
    found: dict = {}
    for width in WIDTHS:
        models, bases, deltas = build(width), build(BASE), build(2 * BASE)
        for kind, model in models.items():
            mup.set_base_shapes(model, bases[kind], delta=deltas[kind])
            base = build(BASE)[kind]
            mup.set_base_shapes(base, bases[kind], delta=deltas[kind])
            at_base, here = stds(base), stds(model)
            rows = {}
            for group in mup.MuAdamW(model.parameters(), lr=1.0, weight_decay=1.0).param_groups:
                for parameter in group["params"]:
                    (name,) = (name for name, p in model.named_parameters() if p is parameter)
                    rows[name] = {"rate": group["lr"], "decay": group["weight_decay"]}
                    if name in here:
                        rows[name]["std"] = here[name] / at_base[name]
            rows["head.weight"]["forward"] = 1 / model["head"].width_mult()
            found[f"{kind} {width}"] = rows
    return {"base": BASE, "vocab": VOCAB, "models": found}


if __name__ == "__main__":
    FILE.write_text(json.dumps(numbers(), indent=1, sort_keys=True) + "\n")
