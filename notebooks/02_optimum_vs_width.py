# %% [markdown]
# # The best embedding learning rate against width
#
# When the width $d$ of a Transformer and its vocabulary $m = 8d$ grow together, how does the best embedding learning
# rate move? Hayou & Liu (2025, figure 3) say as $d^{-1/2}$; the usual parametrizations (SP, μP) say it stays.
#
# This notebook measures it: it trains small Transformers at several widths and embedding rates on text that comes with
# Python, and draws loss against rate while the runs come in. Two CPU cores do it in
# minutes. The figure of the larger, committed sweep stands at the end.

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
# ## What is swept
#
# Hidden and output matrices learn at $0.2/d$ and everything starts at standard deviation $d^{-1/2}$, as in the paper;
# only the embedding rate is swept. `tier` names a prepared configuration (`laptop`; `gpu` for an accelerator, half an
# hour; `paper`: as published), and `changes` replaces any of its values.

# %% tags=["parameters"]
tier = "laptop"
changes = {
    "token_rows": ("sqrt",),  # embedding rows times √d before positions are added; "plain": as they are
    "widths": (32, 48, 64),
    "rates": (0.002, 0.0057, 0.016, 0.045, 0.128),
    "seeds": (0, 1),
    "steps": 500,
    "slice_bytes": 20_000,  # of text: a short run goes through it often enough only if it is little
    "valid_bytes": 10_000,
}
options = {}  # of `sweeps.Options`, say {"threads": 1}; what is left out is measured
out = None  # directory of the sweep; None: one under runs/, named by the configuration

# %%
# %matplotlib inline
import jax

import experiments
import sweeps

device = jax.devices()[0]
print(f"This notebook has {jax.device_count()} × {device.device_kind} ({device.platform.upper()}).")
if device.platform == "cpu":
    print("The runs go to worker processes, one a core.")
else:
    print("This process now holds the device, which no other could share: the runs go one after the other inside it.")

experiment = experiments.load("width_vocab")
config = experiments.configured("width_vocab", tier, changes)
sweeps.run("width_vocab", tier, dry_run=True, **changes)

# %% [markdown]
# ## The sweep, as it comes in
#
# `watch` is called with the table of finished runs whenever there are more of them. A picture stamped PARTIAL is of a
# sweep that has not ended. If you interrupt the cell, run it again: nothing that finished is trained twice.

# %%
from IPython.display import display

from lvp.analysis.figure_style import sheet
from lvp.analysis.power_laws import Panel, Series

planned = sum(len(cell.lanes) for cell in experiment.cells(config))
picture = display("no run has finished yet", display_id=True)


def draw(table):
    finished, curves = table[table["status"] == "finished"], []
    for width, rows in finished.groupby("cell.model.width"):
        means = rows.groupby("lane.learning_rates.embedding")["train_loss"].mean()
        curves.append(Series(f"{width}", means.index, means, fitted=means))
    axes = "embedding learning rate η_E", "final train loss (nats per token)"
    panel = Panel(f"{len(table)} of {planned} runs", *axes, curves, legend="width d", ordered=True, yscale="linear")
    partial = None if len(table) == planned else (len(table), planned)
    picture.update(sheet([panel], title="Loss against embedding rate", columns=1, size=(7, 4.6), partial=partial))


table = sweeps.run("width_vocab", tier, executor="local", out=out, quiet=True, watch=draw, **options, **changes)

# %% [markdown]
# ## Where are the optima?
#
# Left: final train loss against the embedding rate, a curve a width, with the optimum of each. Right: the optima
# against width, beside the slopes that the theories predict. An optimum at the edge of the grid or within the noise is
# hollow and stays out of the fit.

# %%
experiment.figure(table, config, tier=tier, corpus=config.corpus, partial=None)

# %%
print(experiment.summary(table, config))

# %% [markdown]
# The table has a row per run, with every configured value, outcome and origin under a dotted name:

# %%
columns = ["cell.model.width", "lane.learning_rates.embedding", "lane.seed", "status", "train_loss"]
table[columns].sort_values(columns[:3]).head(8).reset_index(drop=True)

# %% [markdown]
# Look at the slope's interval before you look at its value. Runs this short are there to be watched: where training
# stops early, and earlier for the wider models, the best rate says as much about the number of steps as about width.
#
# ## The committed sweep
#
# The laptop tier as it is has more widths, rates, seeds and steps. It was run once, and its records are in the
# repository (`experiments/results/width_vocab/`), from which this figure is drawn without training.

# %%
from sweeps.reporting import results

committed = results.result("width_vocab/laptop-wikitext2")
committed.figure()

# %%
print(committed.summary(), end="\n\n")
for claim in committed.claims():
    print(f"{claim.verdict:<13} {claim.statement}")

# %% [markdown]
# *Unresolved* is a verdict too: the interval decides neither way. What widths of this size can say, and what they
# cannot, is in `docs/width_vocab.md`. The same sweep from the command line, with Ray, on a cluster or as published:
# `python -m sweeps run width_vocab --help`.
