# %% [markdown]
# # Plan a 1B run on a TPU slice
#
# Does the model fit, how long is a step, what will the run cost? `python -m lvp plan` answers before any hardware is
# rented: it compiles the real training program for a slice that is not there, reads memory and communication from the
# compiled program, and sets them against the makers' figures.
#
# The model is the "1B" of Hayou & Liu (2025, Table 3). Compiling for TPUs takes `libtpu`, which needs no TPU
# (`pip install -e '.[lab,tpu]'`), and some patience. Where it is missing, the plans that are committed in `docs/plans`
# are shown instead.

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
topology = "v5e:4x4"
batch = 256  # rows a step
micro_batches = 8
compile_here = None  # None: if libtpu is installed
hidden_lr = 3e-4
small = "layers=2 width=128 vocab=512 context=64"  # of the example that this machine's CPU compiles
meshes = ["fsdp=8", "fsdp=4,model=2"]

# %% [markdown]
# ## The plan

# %%
# %matplotlib inline
import importlib.util
import subprocess
import sys

installed = importlib.util.find_spec("libtpu") is not None
compile_here = installed if compile_here is None else compile_here


def plan(*words):
    """`python -m lvp plan …`, in a process of its own: it decides what hardware JAX sees."""
    command = [sys.executable, "-m", "lvp", "plan", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stderr + done.stdout).strip()


committed = root / "docs" / "plans" / f"1b-{topology.replace(':', '-')}.txt"
if compile_here:
    print(f"python -m lvp plan 1b --topology {topology} --batch {batch} --micro-batches {micro_batches}\n")
    print(plan("1b", "--topology", topology, "--batch", batch, "--micro-batches", micro_batches))
elif committed.exists():
    why = "not asked for" if installed else "libtpu is not installed"
    print(f"Not compiled here ({why}). The committed {committed.relative_to(root)}, made by `make plans`:\n")
    print(committed.read_text())
else:
    print(f"libtpu is not installed, and docs/plans has no plan of {topology}.")

# %% [markdown]
# How to read it:
#
# - **Memory** is the compiler's own account of one device. *fsdp* splits parameters and optimizer state over the
#   chips; they are gathered layer by layer where they are used. If the total is above what the chip has, `plan` says so
#   and tries milder settings (whole blocks computed again in the backward pass, smaller micro-batches) until one fits.
# - **The loss** never holds the logits of all tokens; the two lines say what that saves.
# - **The roofline** takes arithmetic, memory and interconnect at the makers' peak, with everything overlapped. It is a
#   lower bound of the time, not a forecast: these programs have not been timed on that hardware.

# %% [markdown]
# ## Slices compared
#
# The same step on the slices whose plans are committed:

# %%
for path in sorted((root / "docs" / "plans").glob("1b-*.txt")):
    lines = path.read_text().splitlines()
    print(lines[0])
    print(*(line for line in lines if line.split("  ")[1:2] in (["all"], ["a step"], ["tokens a day"])), sep="\n")
    print(lines[-1], end="\n\n")

# %% [markdown]
# ## Try it on this machine
#
# `host:8` compiles for eight pretended devices of this machine's CPU, which needs no libtpu: to see what another mesh
# does to the communication of a small model.

# %%
for mesh in meshes:
    print(f"--mesh {mesh}\n")
    print(plan("gpt2", "--topology", "host:8", "--batch", 16, "--mesh", mesh, "--set", *small.split()), end="\n\n\n")

# %% [markdown]
# ## Which learning rates?
#
# The first notebook's question, for this model: with this rate for its hidden matrices, what do the others get?

# %%
from lvp.models.configs import hayou_liu_1b
from lvp.parametrization.recommend import recommend

model = hayou_liu_1b()
advice = recommend(width=model.width, vocab=model.vocab, hidden_lr=hidden_lr)
for role in advice.roles:
    print(f"{role.role:<10} rate {role.learning_rate:<8.4g} init std {role.init_std:.4g}")

# %% [markdown]
# Whether the embedding's larger rate pays in a model built like this one is the paper's figure 4, which
# `experiments/pretrain_1b/` asks. At a size for two CPU cores, the committed records say:

# %%
from sweeps.reporting import results

tiny = results.result("pretrain_1b/laptop-wikitext2")
tiny.figure()

# %%
for claim in tiny.claims():
    print(f"{claim.verdict:<13} {claim.statement}")

# %% [markdown]
# ## The run
#
# The experiment as published is a sweep: over the ratio of the embedding's rate to the others', and over seeds.

# %%
import experiments

experiment, config = experiments.load("pretrain_1b"), experiments.configured("pretrain_1b", "paper")
lanes = sum(len(cell.lanes) for cell in experiment.cells(config))
print(f"{lanes} runs of {config.steps * config.batch * config.context / 1e9:.0f} B tokens each")

# %% [markdown]
# On the slice, from a clone on a file system that all hosts see (`docs/clusters.md` starts the slice, `docs/meshes.md`
# tokenizes a corpus):
#
# ```sh
# python -m lvp tokenize text:/data/books --vocab 32064 --out /data/tokens/32064
# python -m sweeps run pretrain_1b --tier paper --corpus tokens:/data/tokens --ray-address auto --mesh fsdp=16 --hosts 4
# ```
#
# `--set` takes fewer ratios or seeds, and `--dry-run` says what is left of the cost. Whatever stops it,
# `python -m sweeps resume DIR` goes on from the last checkpoint, on another mesh if need be.
