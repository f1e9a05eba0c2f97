# %% [markdown]
# # Why embeddings drift
#
# The rows of a trained language model's output matrix tend to point the same way: their mean is far from zero, and they
# use little of the space they have. Stollenwerk & Stollenwerk (2025) say why: Adam does it. The gradients of an LM head
# sum to zero over the vocabulary, so plain SGD leaves the mean row where it was; Adam gives every token a step size of
# its own, and what summed to zero no longer does.
#
# Here is that argument in three steps: a picture, a tiny head that trains in seconds, and the committed records of
# small Transformers under several optimizers.

# %% tags=["setup"]
import os
import sys
from pathlib import Path

here = Path.cwd()
root = next((p for p in (here, *here.parents) if (p / "sweeps" / "__main__.py").is_file()), None)
if root is None:
    raise RuntimeError("Run this notebook from a clone: pip install -e '.[lab]' in it, and open notebooks/ there.")
os.chdir(root)  # paths are the clone's
sys.path.insert(0, str(root))

# %% tags=["parameters"]
vocab = 256
width = 32
steps = 300
batch = 64
learning_rate = 3e-3

# %% [markdown]
# ## Three embeddings, one token
#
# With hidden state $h$ and probabilities $p$, the gradient of row $i$ is $(p_i - \delta_{it})\,h$, where $t$ is the
# token that came. All rows move along $h$: the true one forwards, the others backwards, and the moves cancel. Adam
# divides each by $\sqrt{\hat v_i}$, which is small for rare tokens, so these move too far and the mean (grey) follows.

# %%
# %matplotlib inline
from lvp.analysis.figure_style import sheet
from lvp.analysis.update_vectors import toys

sheet(toys(), columns=2, size=(4.2, 3.6), title="Updates of three embeddings (e1 is the true token)")

# %% [markdown]
# ## A head that trains in seconds
#
# Tokens follow Zipf's law; each is predicted from a hidden state that is correlated with it. Only the head is trained.
# `drift` is the distance of the mean row from where it started, over the mean norm of a row. Coupled Adam
# (`optim.coupled_adam`) is Adam with one second moment for the whole vocabulary.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import optax

from lvp import measures, optim
from lvp.analysis.power_laws import Panel, Series

frequencies = 1.0 / np.arange(1, vocab + 1)
frequencies = jnp.asarray(frequencies / frequencies.sum())
keys = jax.random.split(jax.random.key(0), 4)
meaning = jax.random.normal(keys[0], (vocab, width))
head = jax.random.normal(keys[1], (width, vocab)) / width**0.5
tokens = jax.random.choice(keys[2], vocab, (steps, batch), p=frequencies)
hidden = (1 + meaning[tokens] + 2 * jax.random.normal(keys[3], (steps, batch, width))) / width**0.5
optimizers = {
    "SGD": optax.sgd(100 * learning_rate),
    "Adam": optax.adam(learning_rate),
    "Coupled Adam": optim.coupled_adam(learning_rate, weight_decay=0.0),
    "LionA": optim.lion_a(learning_rate, weight_decay=0.0),
}


def loss(params, h, t):
    return optax.softmax_cross_entropy_with_integer_labels(h @ params["head"]["kernel"], t).mean()


def train(tx):
    """Loss and drift at every step, and the optimizer's state at the end."""

    def step(carry, data):
        params, state = carry
        value, gradients = jax.value_and_grad(loss)(params, *data)
        updates, state = tx.update(gradients, state, params)
        params = optax.apply_updates(params, updates)
        rows = params["head"]["kernel"].T
        moved = jnp.linalg.norm(rows.mean(axis=0) - head.T.mean(axis=0))
        drift = moved / jnp.linalg.norm(rows, axis=1).mean()
        return (params, state), (value, drift)

    params = {"head": {"kernel": head}}
    (_, state), seen = jax.lax.scan(step, (params, tx.init(params)), (hidden, tokens))
    return state, *map(np.asarray, seen)


trained = {name: train(tx) for name, tx in optimizers.items()}
for name, (_, value, drift) in trained.items():
    print(f"{name:<14} loss {value[0]:.2f} → {value[-steps // 10 :].mean():.2f}, drift {drift[-1]:.2g}")

# %% [markdown]
# All of them learn (at rates that nobody tuned, so these losses do not compare). SGD and Coupled Adam leave the mean
# where it was, to rounding: that is no matter of tuning, but of a sum that is zero. What sets Adam's steps apart is its
# second moment, which grows with the frequency of a token, roughly as $\hat v_i = A\,p_i$.

# %%
(adam,) = [s for s in jax.tree.leaves(trained["Adam"][0], is_leaf=lambda s: hasattr(s, "nu")) if hasattr(s, "nu")]
second_moment, p = np.asarray(adam.nu["head"]["kernel"]).mean(axis=0), np.asarray(frequencies)
fit = measures.second_moment_fit(second_moment, frequencies)
print(f"R² of v̂ against frequency: {fit['r_squared']:.2f}")

t = np.arange(1, steps + 1)
# A drift of exactly zero has no place on a logarithmic axis.
drifts = [Series(name, t, np.maximum(drift, 1e-9), line=True) for name, (_, _, drift) in trained.items()]
line = float(fit["slope_through_origin"]) * p
moments = [Series("a token", p, second_moment, predicted=line, predicted_label="A p")]
sheet(
    [
        Panel("drift of the mean row", "step", "‖μ − μ₀‖ / mean ‖e_i‖", drifts, named_ticks=False),
        Panel("Adam's second moment, last step", "frequency p", "mean v̂ of a token", moments, named_ticks=False),
    ],
    title="A head alone, under four optimizers",
    columns=2,
    size=(5, 4.4),
)

# %% [markdown]
# ## In Transformers
#
# The same from the committed records of `experiments/mean_embedding/`: a small decoder with a head of its
# own (untied) or one matrix for embedding and head (tied), each optimizer at its tuned rate. "√d" gives the embedding
# √width times the others' rate, as Hayou & Liu (2025) would.

# %%
from sweeps.reporting import results

records = results.result("mean_embedding/laptop-wikitext2")
records.figure()

# %%
print(records.summary(), end="\n\n")
for claim in records.claims():
    print(f"{claim.verdict:<13} {claim.statement}")

# %% [markdown]
# A tied matrix also gets the gradients of the look-up, which do not sum to zero: there the mean moves a little under
# any optimizer. Whether drift costs loss is another question than whether it happens; the last panel and the
# *unresolved* claims are about that.
#
# ## In your script
#
# `optim.coupled_adam` stands where `optax.adamw` stood; by default it couples the head, and with
# `couple=("output", "embedding")` both.

# %%
tx = optim.coupled_adam(learning_rate, weight_decay=0.1, couple=("output", "embedding"))
params = {"embedding": {"embedding": meaning}, "head": {"kernel": head}}
moments = jax.tree.map(jnp.shape, optax.tree_utils.tree_get(tx.init(params), "nu"))
print("Adam's second moment has the parameters' shapes. Coupled Adam's, here:", moments)

# %% [markdown]
# More: `docs/embeddings.md`, with every measure that `lvp.measures` takes in training.
