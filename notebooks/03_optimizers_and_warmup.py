# %% [markdown]
# # Which optimizers need warm-up, and why
#
# Training usually starts with a low learning rate that rises during the first steps. Kosson, Messmer & Jaggi (2024) ask
# why this warm-up helps: by which measure are an optimizer's first updates too large, and which changes make warm-up
# unnecessary?
#
# This notebook first shows AdamW's large first updates, in closed form and in a run of a few optax lines. Then it shows
# the committed records: optimizers with and without warm-up, the change of representations by an update, and the
# effects of updates that are too large on a network. It trains no network.

# %% tags=["setup"]
from importlib.util import find_spec

if find_spec("lvp") is None:
    raise RuntimeError("This notebook needs lvp: pip install 'lvp[lab]', or pip install -e '.[lab]' in a clone.")

# %% tags=["parameters"]
steps = 60
weights = 20_000  # number of weights in the example; a large number gives smooth averages
learning_rate = 1e-3
b1 = 0.9

# %% [markdown]
# ## AdamW's first updates
#
# Here the gradients are noise of the same size in every step. The figure shows the root mean square of the updates, in
# units of the learning rate. Adam divides a mean of gradients by the root of a mean of squared gradients. In the first
# step, the mean contains one gradient, so every weight moves by the full rate. Later the noise averages out. By
# equation 1 of the paper, the bias correction of the first moment amplifies update $t$ by
# $\sqrt{(1+\beta_1^t)/(1-\beta_1^t)}$, compared with an average over many steps. Lion does not have this effect.

# %%
# %matplotlib inline
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax

from lvp import optim
from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series

optimizers = {
    "optax.adamw": optax.adamw(learning_rate, b1=b1, weight_decay=0.0),
    "optim.adamw, no β₁ correction": optim.adamw(learning_rate, b1=b1, weight_decay=0.0, bias_correction_first=False),
    "optim.lion_a": optim.lion_a(learning_rate, b=b1, weight_decay=0.0),
    "optax.adamw, warm-up": optax.adamw(optim.trapezoid(learning_rate, steps, 0.5, 0.0), b1=b1, weight_decay=0.0),
}


def sizes(tx):
    """Returns the RMS of every update, divided by the learning rate."""

    def step(carry, key):
        params, state = carry
        updates, state = tx.update(jax.random.normal(key, params.shape), state, params)
        return (optax.apply_updates(params, updates), state), jnp.sqrt(jnp.mean(updates**2)) / learning_rate

    params = jnp.zeros(weights)
    return jax.lax.scan(step, (params, tx.init(params)), jax.random.split(jax.random.key(0), steps))[1]


t = np.arange(1, steps + 1)
settled = np.sqrt((1 - b1) / (1 + b1))  # RMS of an average with β₁ of unit noise
series = [Series(name, t, np.asarray(sizes(tx)), line=True) for name, tx in optimizers.items()]
formula = settled * np.sqrt((1 + b1**t) / (1 - b1**t))
series[0] = replace(series[0], predicted=formula, predicted_label="equation 1")
figure = sheet([Panel("size of updates, gradients of noise", "step", "RMS over the rate", series)], columns=1, title="")
figure.set_size_inches(7, 5.5)
figure

# %% [markdown]
# Noise is the extreme case, because real gradients agree at the start of training. Without warm-up, AdamW's first steps
# are several times as large as later steps at the same learning rate.
#
# ## The effect of warm-up in training
#
# The committed sweep trains GPT-2's decoder at a small size (`experiments/warmup/`). Each optimizer has its own grid of
# rates and several lengths of warm-up. The *gap* is the validation loss without warm-up minus the validation loss with
# the best warm-up, each at its best rate. A positive gap means that warm-up helps. Bars are 95 % intervals over seeds
# that were not used to choose the rates. They allow for every length of warm-up and for a wrong choice of rates.

# %%
from lvp.analysis.heat_maps import Dots
from lvp.experiments.warmup import analysis as reading
from lvp.sweeps.committed import result

warmup = result("warmup/laptop-wikitext2")
table, config = warmup.table, warmup.config
warmups = [part for part in config.warmups if part]
gaps = {name: reading.gap(table, config, name, warmups) for name in config.groups}
values, bars = zip(*gaps.values(), strict=True)
labels = [name.replace(", ", ",\n") for name in gaps]
figure = sheet(
    [Dots("what no warm-up costs", labels, [("gap", values, bars)], "nats per token")],
    columns=1,
    title="Gap to the best warm-up",
    preset=warmup.sweep["tier"],
    corpus=warmup.sweep["config"]["corpus"],
)
figure.set_size_inches(11, 5)
figure

# %% [markdown]
# The loss over rates shows the cause of AdamW's gap. Warm-up permits larger rates. It does not lower the loss at every
# rate.

# %%
panels = []
for name in ("AdamW", "LionA", "LionAR"):
    rates, curves = reading.rates_of(config, name), []
    for part in config.warmups:
        means = reading.losses(table, config, name, part).mean(axis=1)
        curves.append(Series(f"{part:.0%}", rates, means, fitted=means))
    style = {"legend": "warm-up", "ordered": True}
    panels.append(Panel(name, "peak learning rate", "validation loss (nats per token)", curves, **style))
sheet(panels, title="Validation loss, means over seeds", columns=3, size=(3.7, 3.9))

# %% [markdown]
# By which measure are the first updates too large? The figure shows the first update divided by a typical later update
# (the median at constant rate), for the hidden matrices and without warm-up. The measures are the *norm*, the *angle*
# by which the update rotates a matrix, and the *relative representation change* (RRC) of the layers' outputs. A ratio
# of 1 means no excess.

# %%
measures = {"norm": "norm", "angle": "angle", "representation_change": "RRC"}
series = [
    Series(label, np.arange(len(config.groups)), [reading.early(table, config, a, m).mean() for a in config.groups])
    for m, label in measures.items()
]
panel = Panel(
    "first update over later updates",
    "",
    "ratio",
    series,
    named_ticks=False,
    xscale="linear",
    levels=[(1.0, "no excess")],
)
figure = sheet([panel], columns=1, title="How large is the first update?")
figure.axes[0].set_xticks(range(len(config.groups)), labels, fontsize=8)
figure.set_size_inches(11, 5.5)
figure

# %% [markdown]
# The verdicts on the paper's claims at this size:

# %%
for claim in warmup.claims:
    print(f"{claim.verdict:<13} {claim.full_statement}")

# %% [markdown]
# ## Why representations change most at the start
#
# An update of fixed size changes a layer's outputs more if the gradients of different sequences agree. Equation 9 of
# the paper gives the change from the gradient's signal-to-noise ratio φ and the batch size $B$. The upper row of the
# figure compares the equation with a simulation. The lower row shows φ and the alignment of gradient and momentum in
# training.

# %%
change = result("representation_change/laptop-wikitext2")
change.figure()

# %%
for claim in change.claims:
    print(f"{claim.verdict:<13} {claim.full_statement}")

# %% [markdown]
# ## Lasting effects of updates that are too large
#
# A ResNet on small images trains with a multiple of its rate in the first epochs and the normal rate afterwards. If the
# large updates only caused a bad start, the network would recover. But some ReLUs stay dead: no image activates them.

# %%
large = result("large_updates/laptop-digits")
print(large.summary, end="\n\n")
for claim in large.claims:
    print(f"{claim.verdict:<13} {claim.full_statement}")

# %% [markdown]
# The figure with the curves over training is in `experiments/results/large_updates/`.
#
# ## In your script
#
# All of these are optax optimizers. The code shows a schedule with warm-up, and two optimizers with smaller first
# updates:

# %%
schedule = optim.trapezoid(learning_rate, total_steps=1_000, warmup=0.05, cooldown=0.5)  # rises, stays, falls
choices = {
    "AdamW with warm-up": optim.adamw(schedule),
    "AdamW without β₁'s correction": optim.adamw(optim.trapezoid(learning_rate, 1_000), bias_correction_first=False),
    "Lion, inverse bias correction": optim.lion_a(
        optim.trapezoid(learning_rate, 1_000), b=0.98, nesterov=True, inverse_bias_correction=True
    ),
}
params = {"kernel": jnp.ones((64, 64))}
gradients = {"kernel": jax.random.normal(jax.random.key(0), (64, 64))}
for name, tx in choices.items():
    updates, _ = jax.jit(tx.update)(gradients, tx.init(params), params)
    first = float(jnp.sqrt(jnp.mean(updates["kernel"] ** 2)))
    print(f"{name:<32} first update: {first / learning_rate:.3f} × the peak rate")

# %% [markdown]
# See also `docs/warmup.md`. To repeat the sweep, run
# `python -m lvp.sweeps run warmup --preset laptop --corpus wikitext2`.
