# %% [markdown]
# # Choose an embedding learning rate
#
# Most training scripts give a language model one learning rate. Its parameters play different roles, though: a row of
# the embedding is touched only when its token occurs, a hidden matrix in every position of every step. How fast each
# role should learn, and how large it should start, depends on the width $d$ and the vocabulary size $m$.
#
# Here you get, for a model of **your** size, the learning rate and the initial standard deviation of every role, the
# formula and the paper behind each, and how far your size lies from those at which the rules were measured. Nothing is
# trained; it takes seconds.

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

# %% [markdown]
# ## Your model
#
# `hidden_lr` is the learning rate of the hidden matrices, the one number that has to be tuned. `rule` is one of `sp`
# (standard), `mup` (μP), `lvp` (Hayou & Liu 2025, for a vocabulary that is large beside the width) and `interpolated`.

# %% tags=["parameters"]
width = 2048
vocab = 32_064
hidden_lr = 3e-4
rule = "lvp"

small_width = 256  # if you tune a small model and move its rates: its width, and its best hidden rate
small_hidden_lr = 3e-3

# %% [markdown]
# ## Every role's rate and init
#
# The first table holds the answer. Below it: what the rule rests on, what it has cost where it was measured (all rules,
# so that they compare), a warning if your size lies far outside, and the lines for your training script.

# %%
# %matplotlib inline
from lvp.parametrization.recommend import recommend

advice = recommend(width=width, vocab=vocab, hidden_lr=hidden_lr, rule=rule)
print(advice)

# %% [markdown]
# ## Tune small, train large
#
# Usually the rate is tuned on a narrow model. A rule says how each role's rate moves with width; it is not the same for
# all of them. `at …` is the rate in the small model.

# %%
moved = recommend(width=width, vocab=vocab, hidden_lr=small_hidden_lr, from_width=small_width, rule=rule)
for role in moved.roles:
    print(
        f"{role.role:<10} at {small_width}: {role.base_learning_rate:<8.4g} at {width}: {role.learning_rate:<10.4g}"
        f" factor {role.formula} = {role.multiplier:.4g}"
    )

# %% [markdown]
# ## In your training script
#
# `optim.parametrized` makes an optax optimizer with a rate per role out of any optax optimizer: after that, `init` and
# `update` are used as always. `optim.describe` says what every parameter gets, before anything is allocated.

# %%
import jax
import optax

from lvp import optim
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder

schedule = optim.trapezoid(hidden_lr, total_steps=10_000, warmup=0.02)
tx = optim.parametrized(optax.adamw, rule, width=width, vocab=vocab, learning_rate=schedule, weight_decay=0.1)

model = decoder(DecoderConfig(vocab=vocab, width=width))
shapes = jax.eval_shape(model.init, jax.random.key(0))
print(optim.describe(tx, shapes))

# %% [markdown]
# Which parameter has which role is decided by its path. The names of `lvp.models` are known; others
# you declare, with regular expressions. A parameter that nobody declared is an error that names it: nothing falls back
# to a default rate in silence.

# %%
from lvp.errors import InputError
from lvp.roles import Declaration

mine = {"wte": (vocab, width), "layers": {"w": (width, width)}, "lm_head": (width, vocab)}
mine = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, "float32"), mine, is_leaf=lambda s: isinstance(s, tuple))
declared = [Declaration("wte", "embedding"), Declaration("lm_head", "output", fan_in=(0,))]
try:
    optim.describe(tx, mine, declarations=declared)
except InputError as error:
    print("refused:", error)

print(optim.describe(tx, mine, declarations=[*declared, Declaration("layers/.*", "hidden")]))

# %% [markdown]
# A check that needs no trust: without weight decay, Adam's first step moves every weight by exactly its learning rate,
# whatever the gradient. So the first update of a small model shows the rates themselves.

# %%
import jax.numpy as jnp

shapes = jax.eval_shape(decoder(DecoderConfig(vocab=256, width=64)).init, jax.random.key(0))
small = jax.tree.map(lambda x: jnp.ones(x.shape), shapes)
plain = optim.parametrized(optax.adam, rule, width=64, vocab=256, learning_rate=hidden_lr)
gradients = small
updates, _ = jax.jit(plain.update)(gradients, plain.init(small), small)
for path in (("embedding", "embedding"), ("block_0", "mlp", "up", "kernel"), ("head", "kernel")):
    leaf = updates
    for key in path:
        leaf = leaf[key]
    moved_by = float(jnp.sqrt(jnp.mean(leaf**2)))
    print(f"{'/'.join(path):<24} moved by {moved_by:.4g} = {moved_by / hidden_lr:.4g} × the hidden rate")

# %% [markdown]
# ## How sure is this?
#
# The rules were compared as they are used: each one's constant was tuned at the smallest size only, and used at all
# others. The figure is drawn from the committed records of that sweep (`experiments/regimes/`). First, the
# embedding rate that was best at each width and vocabulary, beside what the rules predict; last, what each rule's
# transfer cost.

# %%
from sweeps.reporting import results

regimes = results.result("regimes/laptop-wikitext2")
regimes.figure()

# %% [markdown]
# The same numbers ship with the package (`lvp.parametrization.evidence`), which is where the table above has them from.
# What the records say of each claim, where *unresolved* means that the interval does not decide:

# %%
for claim in regimes.claims():
    print(f"{claim.verdict:<13} {claim.statement}")

# %% [markdown]
# These are small models. How many times your size lies outside of the sizes measured (1: inside):

# %%
for name, times in advice.beyond.items():
    print(f"{name}: width × {times['width']:.3g}, vocabulary × {times['vocab']:.3g}")

# %% [markdown]
# Outside of what was measured a rule is an extrapolation. The cheap way to find out for your model is a sweep of a few
# rates at two or three small widths: the next notebook. More: `docs/regimes.md`, `docs/width_vocab.md`; the same from
# the command line: `python -m lvp recommend --help`.
