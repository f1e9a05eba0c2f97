# %% [markdown]
# # Why embeddings drift
#
# The rows of a trained language model's output matrix tend to point in the same direction. Their mean is far from zero,
# and they use only a part of the space. Stollenwerk & Stollenwerk (2025) show that Adam causes this. The gradients of
# an LM head sum to zero over the vocabulary, so plain SGD does not move the mean row. Adam has a separate step size for
# every token, so its updates do not sum to zero.
#
# This notebook shows the argument in three steps: a picture, a small head that is trained here, and the committed
# records of small Transformers under several optimizers.

# %% tags=["setup"]
from importlib.util import find_spec

if find_spec("lvp") is None:
    raise RuntimeError("This notebook needs lvp: pip install 'lvp[lab]', or pip install -e '.[lab]' in a clone.")

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
# observed token. All rows move along $h$: the row of the observed token forwards, the other rows backwards. The updates
# sum to zero. Adam divides each update by $\sqrt{\hat v_i}$, which is small for rare tokens. Rare tokens therefore move
# too far, and the mean (grey) moves with them.

# %%
# %matplotlib inline
from lvp.analysis.figure_style import sheet
from lvp.analysis.update_vectors import toys

sheet(toys(), columns=2, size=(4.2, 3.6), title="Updates of three embeddings (e1 is the true token)")

# %% [markdown]
# ## A small head
#
# Tokens follow Zipf's law. Each token is predicted from a hidden state that is correlated with it. Only the head is
# trained. `drift` is the distance of the mean row from its start, divided by the mean norm of a row. Coupled Adam
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
    """Returns the final state of the optimizer, and the loss and drift of every step."""

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
# All four optimizers learn. Their rates are not tuned, so do not compare the losses. SGD and Coupled Adam do not move
# the mean, except by rounding, because their updates sum to zero at any rate. Adam's steps differ between tokens
# because its second moment grows with the frequency of a token, roughly as $\hat v_i = A\,p_i$.

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
# The committed records of `experiments/mean_embedding/` show the same. A small decoder has a separate head (untied) or
# one matrix for embedding and head (tied). Each optimizer has its tuned rate. "√d" means that the embedding has √width
# times the rate of the other parameters, as in Hayou & Liu (2025).

# %%
from lvp.sweeps.committed import result

records = result("mean_embedding/laptop-wikitext2")
records.figure()

# %%
print(records.summary, end="\n\n")
for claim in records.claims:
    print(f"{claim.verdict:<13} {claim.full_statement}")

# %% [markdown]
# A tied matrix also has the gradients of the look-up, which do not sum to zero. So the mean of a tied matrix moves
# under any optimizer. Whether the drift increases the loss is a separate question: see the last panel and the
# *unresolved* claims.
#
# ## In your script
#
# Replace `optax.adamw` by `optim.coupled_adam`. By default it couples the head's second moment. With
# `couple=("output", "embedding")` it couples those of head and embedding.

# %%
tx = optim.coupled_adam(learning_rate, weight_decay=0.1, couple=("output", "embedding"))
params = {"embedding": {"embedding": meaning}, "head": {"kernel": head}}
moments = jax.tree.map(jnp.shape, optax.tree_utils.tree_get(tx.init(params), "nu"))
print("Adam's second moments have the parameters' shapes. The shapes of Coupled Adam's second moments:", moments)

# %% [markdown]
# `docs/embeddings.md` describes all measures of `lvp.measures`.
