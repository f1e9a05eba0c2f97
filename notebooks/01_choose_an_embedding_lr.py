# %% [markdown]
# # Choose an embedding learning rate
#
# Most training scripts use one learning rate for all parameters of a language model. But parameters have different
# roles. A row of the embedding has a gradient only when its token occurs. A hidden matrix is used in every position of
# every step. The best learning rate and the best initial standard deviation of a role depend on the width $d$ and the
# vocabulary size $m$.
#
# This notebook gives the learning rate and the initial standard deviation of every role for a model of **your** size.
# It shows the formulas, their papers, and the distance of your size from the sizes at which the rules were measured. It
# trains nothing.

# %% tags=["setup"]
from importlib.util import find_spec

if find_spec("lvp") is None:
    raise RuntimeError("This notebook needs lvp: pip install 'lvp[lab]', or pip install -e '.[lab]' in a clone.")

# %% [markdown]
# ## Your model
#
# `hidden_lr` is the learning rate of the hidden matrices. It is the only number to tune. `rule` is `sp`
# (standard), `mup` (μP), `lvp` (Hayou & Liu 2025, for a vocabulary that is much larger than the width),
# `interpolated`, or another rule of `python -m lvp table`.

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
# The first table shows the rates and stds. Below it are the rule's assumptions, the embedding rates to sweep next, the
# losses of all rules in the committed measurements, and the lines for your training script.

# %%
# %matplotlib inline
from lvp.parametrization import Shape
from lvp.parametrization.recommend import recommend

advice = recommend(Shape(width, vocab), hidden_lr, rule=rule)
print(advice.with_evidence())

# %% [markdown]
# ## Tune small, train large
#
# Usually the rate is tuned on a narrow model. A rule gives the factor by which the rate of each role changes with the
# width. The factor differs between roles. `at …` is the rate at the given width.

# %%
moved = recommend(Shape(width, vocab), small_hidden_lr, base=Shape(small_width, vocab), rule=rule)
for role in moved.roles:
    print(
        f"{role.role:<10} at {small_width}: {role.base_learning_rate:<8.4g} at {width}: {role.learning_rate:<10.4g}"
        f" factor {role.formula} = {role.multiplier:.4g}"
    )

# %% [markdown]
# ## In your training script
#
# `optim.parametrized` builds an optax optimizer with one rate per role from a factory such as `optax.adamw`. Its `init`
# and `update` are used as usual. `optim.describe` lists the rate and init std of every parameter without allocating
# memory.

# %%
import jax
import optax

from lvp import optim
from lvp.models.configs import DecoderConfig
from lvp.models.decoder import decoder

schedule = optim.trapezoid(hidden_lr, total_steps=10_000, warmup=0.02)
tx = optim.parametrized(optax.adamw, rule, schedule, width=width, vocab=vocab, weight_decay=0.1)

model = decoder(DecoderConfig(vocab=vocab, width=width))
shapes = jax.eval_shape(model.init, jax.random.key(0))
print(optim.describe(tx, shapes))

# %% [markdown]
# The path of a parameter decides its role. The names in `lvp.models` are known. Declare other names with regular
# expressions. A parameter without a role raises an error that names it. There is no default rate.

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
# You can check the rates yourself. Without weight decay, Adam's first step moves a weight by its learning rate (up to
# ε), unless its gradient is zero. So the first update of a small model shows the rates.

# %%
import jax.numpy as jnp

shapes = jax.eval_shape(decoder(DecoderConfig(vocab=256, width=64)).init, jax.random.key(0))
small = jax.tree.map(lambda x: jnp.ones(x.shape), shapes)
plain = optim.parametrized(optax.adam, rule, hidden_lr, width=64, vocab=256)
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
# The rules were compared as people use them: the hidden rate of a rule was tuned at the smallest size only. The rule
# then set all rates at larger sizes. Each larger size moves one axis: width, vocabulary, depth, batch or number of
# tokens. The figure is drawn from the committed records of that sweep (`experiments/leaderboard/`). It shows the loss
# of each rule above a reference that is tuned at the size itself.

# %%
from lvp.sweeps.committed import result

leaderboard = result("leaderboard/laptop-wikitext2")
leaderboard.figure()

# %% [markdown]
# The package contains the same numbers (`lvp.parametrization.evidence`), and the report of `recommend` above shows
# them. The verdict on each claim follows; *unresolved* means that the interval does not decide:

# %%
for claim in leaderboard.claims:
    print(f"{claim.verdict:<13} {claim.full_statement}")

# %% [markdown]
# These are small models. The next lines give the factor by which your size is outside of the measured sizes. The factor
# is 1 inside:

# %%
for name, times in advice.beyond.items():
    print(f"{name}: width × {times['width']:.3g}, vocabulary × {times['vocab']:.3g}")

# %% [markdown]
# Outside the measured sizes, a rule is an extrapolation. To test it for your model, sweep a few rates at two or three
# small widths, as the next notebook does. See also `docs/leaderboard.md` and `docs/width_vocab.md`. On the command
# line, use `python -m lvp recommend --help`.
