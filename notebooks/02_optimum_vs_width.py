# %% [markdown]
# # The best embedding learning rate against width
#
# How does the best embedding learning rate change when the width $d$ of a Transformer and its vocabulary $m = 8d$ grow
# together? Hayou & Liu (2025, figure 3) predict $d^{-1/2}$. The usual parametrizations (SP, μP) predict a constant.
#
# This notebook measures it. It trains small Transformers at several widths and embedding rates on text that comes with
# Python, and draws loss against rate while the sweep runs. It runs on two CPU cores and prints the expected time.
# The figure of the larger, committed sweep is at the end.

# %% tags=["setup"]
from importlib.util import find_spec

if find_spec("lvp") is None:
    raise RuntimeError("This notebook needs lvp: pip install 'lvp[lab]', or pip install -e '.[lab]' in a clone.")

# %% [markdown]
# ## The sweep's values
#
# As in the paper, hidden and output matrices have the rate $0.2/d$, and all matrices have the init std $d^{-1/2}$. Only
# the embedding rate is swept. `preset` names a prepared configuration, such as `laptop`, `workstation`, `gpu` (for an
# accelerator) or `paper` (as published). `changes` replaces any of its values.

# %% tags=["parameters"]
preset = "laptop"
changes = {
    "token_rows": ("sqrt",),  # "sqrt": embedding rows are multiplied by √d; "plain": they are not
    "widths": (32, 48, 64),
    "rates": (0.002, 0.0057, 0.016, 0.045, 0.128),
    "seeds": (0, 1),
    "steps": 500,
    "slice_bytes": 20_000,  # bytes of training text; a short run reads this text several times
    "valid_bytes": 10_000,
}
options = {}  # fields of `lvp.sweeps.Options`, for example {"threads": 1}; other fields keep their defaults
out = None  # directory of the sweep; None: a directory under runs/, named after the configuration

# %%
# %matplotlib inline
import jax

from lvp import experiments, sweeps

device = jax.devices()[0]
print(f"This notebook has {jax.device_count()} × {device.device_kind} ({device.platform.upper()}).")
if device.platform == "cpu":
    print("Worker processes train the runs, one process per core.")
else:
    print("Only this process can use the device. It trains the runs one after another.")

experiment = experiments.load("width_vocab")
config = experiments.configured("width_vocab", preset, changes)
sweeps.run("width_vocab", preset, dry_run=True, **changes)

# %% [markdown]
# ## The running sweep
#
# `lvp.sweeps.run` calls `watch` with the table of finished runs whenever further runs have finished. A picture with the
# stamp PARTIAL shows an unfinished sweep. If you interrupt the cell, run it again: finished runs are not trained
# again.

# %%
from IPython.display import display

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series

planned = sum(len(setting.runs) for setting in experiment.settings(config))
picture = display("no run has finished yet", display_id=True)


def draw(table):
    finished, curves = table[table["status"] == "finished"], []
    for width, rows in finished.groupby("setting.model.width"):
        means = rows.groupby("run.learning_rates.embedding")["train_loss"].mean()
        curves.append(Series(f"{width}", means.index, means, fitted=means))
    axes = "embedding learning rate η_E", "final train loss (nats per token)"
    panel = Panel(f"{len(table)} of {planned} runs", *axes, curves, legend="width d", ordered=True, yscale="linear")
    partial = None if len(table) == planned else (len(table), planned)
    picture.update(sheet([panel], title="Loss against embedding rate", columns=1, size=(7, 4.6), partial=partial))


table = sweeps.run("width_vocab", preset, executor="local", out=out, quiet=True, watch=draw, **options, **changes)

# %% [markdown]
# ## Where are the optima?
#
# Left: final train loss against the embedding rate, with one curve and one optimum per width. Right: the optima against
# width, with the slopes that the theories predict. An optimum at the edge of the grid or within the noise is hollow and
# is excluded from the fit.

# %%
experiment.figure(table, config, preset=preset, corpus=config.corpus, partial=None)

# %%
print(experiment.summary(table, config))

# %% [markdown]
# The table has one row per run. Its columns are the configured values, the outcome and the provenance, by dotted name:

# %%
columns = ["setting.model.width", "run.learning_rates.embedding", "run.seed", "status", "train_loss"]
table[columns].sort_values(columns[:3]).head(8).reset_index(drop=True)

# %% [markdown]
# Read the slope's interval before its value. These short runs only demonstrate the sweep: the best rate also depends on
# the number of steps.
#
# ## The committed sweep
#
# The unchanged laptop preset has more widths, rates, seeds and steps. Its records are in the repository
# (`experiments/results/width_vocab/`). The figure is drawn from them without training.

# %%
from lvp.sweeps.committed import result

committed = result("width_vocab/laptop-wikitext2")
committed.figure()

# %%
print(committed.summary, end="\n\n")
for claim in committed.claims:
    print(f"{claim.verdict:<13} {claim.full_statement}")

# %% [markdown]
# *Unresolved* is a verdict too: the interval neither supports nor contradicts the claim. `docs/width_vocab.md` explains
# what these widths can show. To run the sweep from the command line, with Ray, on a cluster or as published, see
# `python -m lvp.sweeps run width_vocab --help`.
