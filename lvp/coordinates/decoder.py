"""The coordinate check of the built-in decoder under a rule of `lvp.parametrization`."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lvp import optim
from lvp.coordinates import growth
from lvp.coordinates.growth import Coordinates, Expected
from lvp.errors import InputError
from lvp.models.configs import DecoderConfig, forward_multipliers
from lvp.models.decoder import decoder
from lvp.models.layers import entering
from lvp.parametrization import Rule, Table, check_whole, table
from lvp.parametrization.rules import PAPER_RULES

WIDTHS = (32, 64, 128, 256)
VOCAB = 1024
HIDDEN_LR = 0.002
HEAD_DIM = 32  # constant, so that the number of heads grows with the width
ROWS, CONTEXT = 8, 64
_FLAT = 1e-6


def check(
    rule: Rule = "lvp",
    widths: Sequence[int] = WIDTHS,
    *,
    vocab: int | Callable[[int], int] = VOCAB,
    hidden_lr: float = HIDDEN_LR,
    layers: int = 2,
    steps: int = 4,
    seeds: int = 4,
    token_rows: str = "plain",
) -> Coordinates:
    """Runs the check for a decoder (LayerNorm, GeLU, rotary positions, heads of 32) trained by Adam.

    The data are one batch of 8 × 64 random tokens, drawn by Zipf's law of exponent 1 and equal at all widths with the
    same vocabulary. Positions are rotary, because added positions of amplitude 1 are much larger than embedding rows of
    norm 1. The activations are the tokens' rows as they enter the model, the output of every matrix of the blocks, the
    residual stream after the last norm ("hidden") and the logits.

    Args:
      rule: as in `lvp.parametrization.table`.
      widths: three or more, multiples of 32.
      vocab: m, or a function of the width (m = 8 d: `lambda d: 8 * d`).
      hidden_lr: the hidden matrices' rate at the smallest width. The rule gives the other rates there, and all rates at
        the other widths.
      layers, steps, seeds: 1 or more.
      token_rows: how rows enter the model, one of `lvp.parametrization.TOKEN_ROWS`.

    Returns:
      `lvp.coordinates.Coordinates`. Its expected powers follow from the rule's own table, for the embedding's rows
      (which Adam moves by about the rate per step) and for the logits at init and after the steps.

    Raises:
      InputError: there are fewer than three different widths, or one is not a multiple of 32; vocab, layers, steps or
        seeds is out of range; the rate is not finite and above zero; the rule is unknown, is for Muon, or is a function
        that gives no valid row for a role; token_rows is unknown or does not go together with the rule.
    """
    widths = _checked(widths, hidden_lr)
    if isinstance(rule, str) and (known := PAPER_RULES.get(rule)) and known.muon:
        raise InputError(
            f"rule {rule!r} trains hidden matrices by Muon, and the check trains by Adam; use another rule"
        )
    vocab_of = vocab if callable(vocab) else lambda _: vocab
    base: dict[str, Any] = {"token_rows": token_rows}
    if widths:
        base |= {"base_width": widths[0], "base_vocab": vocab_of(widths[0])}
    tables = {width: table(rule, width=width, vocab=vocab_of(width), **base) for width in widths}
    models = {width: decoder(_config(tables[width], layers)) for width in widths}
    stds = {width: {row.role: row.init_std for row in made.rows} for width, made in tables.items()}
    name = tables[widths[0]].rule if widths else rule
    vocab_text = "m = " + (", ".join(str(vocab_of(d)) for d in widths) if callable(vocab) else str(vocab))
    return growth.check(
        lambda key, width: models[width].init(key, stds[width]),
        lambda params, tokens, width: _activations(models[width], params, tokens[:, :-1]),
        widths,
        loss=_loss,
        optimizer=lambda width: optim.parametrized(optax.adam, tables[width], hidden_lr),
        batch=lambda width: _tokens(vocab_of(width)),
        steps=steps,
        seeds=seeds,
        expected=_expected(list(tables.values())),
        title=f"{name}: decoder of {layers} blocks, {vocab_text}, token rows {token_rows}, hidden rate {hidden_lr:g} "
        "at the smallest width",
    )


def _checked(widths: Sequence[int], hidden_lr: float) -> list[int]:
    widths = sorted({check_whole("width", width, 1) for width in widths})
    for width in widths:
        if width % HEAD_DIM:
            raise InputError(f"width {width} must be a multiple of {HEAD_DIM}, the size of a head")
    if not 0 < hidden_lr < float("inf"):
        raise InputError(f"hidden_lr must be a finite number above zero, got {hidden_lr!r}")
    return widths


def _config(made: Table, layers: int) -> DecoderConfig:
    form: dict[str, Any] = {"context": CONTEXT, "head_dim": HEAD_DIM, "positions": "rotary"}
    return DecoderConfig(made.vocab, made.width, layers=layers, **form, **forward_multipliers(made))


def _tokens(vocab: int) -> jax.Array:
    """int32 [rows, context + 1]."""
    weights = 1 / np.arange(1, vocab + 1)
    drawn = np.random.default_rng(0).choice(vocab, (ROWS, CONTEXT + 1), p=weights / weights.sum())
    return jnp.asarray(drawn, jnp.int32)


def _activations(model, params, tokens_BT) -> dict[str, jax.Array]:
    hidden_BTD, inputs = model.apply(params, tokens_BT, capture=True)
    activations = {"embedding": entering(model.config, params["embedding"]["embedding"][tokens_BT])}
    for path, x_NI in sorted(inputs.items()):
        *parents, last = path.split("/")
        if last != "kernel" or parents == ["head"]:
            continue
        matrix = params
        for key in (*parents, last):
            matrix = matrix[key]
        activations["/".join(parents)] = x_NI @ matrix * model.config.hidden_multiplier
    logits = hidden_BTD.reshape(-1, hidden_BTD.shape[-1]) @ model.head(params)
    return activations | {"hidden": hidden_BTD, "logits": logits}


def _loss(activations, tokens):
    logits = activations["logits"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:].reshape(-1, 1), axis=1))


def _expected(tables: list[Table]) -> dict[tuple[str, str], Expected]:
    """The powers other than 0 that follow from the tables."""
    logs = np.log([t.width for t in tables])

    def power(values) -> float:
        return float(np.polyfit(logs, np.log(values), 1)[0])

    if tables[0].token_rows == "normalized":
        init = rate = 0.0
    else:
        init = power([t["embedding"].init_std * t["embedding"].forward_multiplier for t in tables])
        rate = power([t["embedding"].lr_multiplier * t["embedding"].forward_multiplier for t in tables])
    logits = power([t["output"].init_std * t["output"].forward_multiplier * t.width**0.5 for t in tables])
    rows = f"the rule's own init, d^{init:.2f}, and rate, d^{rate:.2f}, of the embedding"
    head = f"the rule's own init of the head makes normalised activations into logits of d^{logits:.2f}"
    powers = {
        ("embedding", "initial"): Expected(init, init, rows),
        ("embedding", "final"): Expected(min(init, rate), max(init, rate), rows),
        ("embedding", "change"): Expected(rate, rate, rows),
        ("logits", "initial"): Expected(logits, logits, head),
        # The change, of order one, dominates later in training.
        ("logits", "final"): Expected(min(logits, 0.0), max(logits, 0.0), head),
    }
    return {key: expected for key, expected in powers.items() if max(abs(expected.low), abs(expected.high)) > _FLAT}
