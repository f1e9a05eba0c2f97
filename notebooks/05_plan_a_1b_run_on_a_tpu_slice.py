# %% [markdown]
# # Plan a 1B run on a TPU slice
#
# Does the model fit into memory, and how long does a step take at least? `python -m lvp plan` answers these questions
# without the hardware. It compiles the training program for a TPU slice and prints the memory that the compiler
# reports. The time is the model's FLOPs over the manufacturer's peak.
#
# The model is the "1B" of Hayou & Liu (2025, Table 3). Compilation for TPUs needs no TPU, but it needs `libtpu`:
# `pip install -e '.[lab,tpu]'`. Without `libtpu` the notebook shows the committed plans from `docs/plans`.

# %% tags=["setup"]
from importlib.util import find_spec

if find_spec("lvp") is None:
    raise RuntimeError("This notebook needs lvp: pip install 'lvp[lab]', or pip install -e '.[lab]' in a clone.")

# %% tags=["parameters"]
topology = "v5e:4x4"
batch = 256  # rows per step
micro_batches = 8
compile_here = None  # None: if libtpu is installed
hidden_lr = 3e-4
small = "layers=2 width=128 vocab=512 context=64"  # model of the example that this machine's CPU compiles
meshes = ["fsdp=8", "fsdp=4,model=2"]

# %% [markdown]
# ## The plan

# %%
# %matplotlib inline
import importlib.util
import subprocess
import sys
from pathlib import Path

plans = Path("../docs/plans")  # beside notebooks/ in a clone
installed = importlib.util.find_spec("libtpu") is not None
compile_here = installed if compile_here is None else compile_here


def plan(*words):
    """Returns the output of `python -m lvp plan`. The command has its own process, because it sets JAX's devices."""
    command = [sys.executable, "-m", "lvp", "plan", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    return (done.stderr + done.stdout).strip()


committed = plans / f"1b-{topology.replace(':', '-')}.txt"
if compile_here:
    print(f"python -m lvp plan 1b --topology {topology} --batch {batch} --micro-batches {micro_batches}\n")
    print(plan("1b", "--topology", topology, "--batch", batch, "--micro-batches", micro_batches))
elif committed.exists():
    why = "compile_here is False" if installed else "libtpu is not installed"
    print(f"Not compiled here ({why}). The committed docs/plans/{committed.name}, written by `make plans`:\n")
    print(committed.read_text())
else:
    print(f"libtpu is not installed, and {plans} has no plan of {topology}. Committed plans are in a clone.")

# %% [markdown]
# The parts of the plan:
#
# - **Memory** is the memory of one device as the compiler reports it. *fsdp* splits parameters and optimizer state over
#   the chips and gathers them layer by layer for use. If the total exceeds the chip's memory, `plan` says so and tries
#   settings that need less memory (blocks computed again in the backward pass, smaller micro-batches) until one fits.
# - **The time** assumes peak arithmetic, and nothing else that takes time. It is a lower bound, not a forecast: these
#   programs have not been run on the hardware.

# %% [markdown]
# ## Slices compared
#
# The same step on all slices with committed plans:

# %%
for path in sorted(plans.glob("1b-*.txt")):
    lines = path.read_text().splitlines()
    print(lines[0])
    print(*(line for line in lines if line.startswith(("  all", "  time", "  tokens"))), sep="\n", end="\n\n")

# %% [markdown]
# ## Try it on this machine
#
# `host:8` compiles for eight virtual devices of this machine's CPU, without libtpu. The two meshes differ in the memory
# of a small model:

# %%
for mesh in meshes:
    print(f"--mesh {mesh}\n")
    print(plan("gpt2", "--topology", "host:8", "--batch", 16, "--mesh", mesh, "--set", *small.split()), end="\n\n\n")

# %% [markdown]
# ## Which learning rates?
#
# As in the first notebook, the rate of the hidden matrices gives the rates of the other roles of this model:

# %%
from lvp.models.configs import hayou_liu_1b
from lvp.parametrization import Shape
from lvp.parametrization.recommend import recommend

model = hayou_liu_1b()
advice = recommend(Shape(model.width, model.vocab), hidden_lr)
for role in advice.roles:
    print(f"{role.role:<10} rate {role.learning_rate:<8.4g} init std {role.init_std:.4g}")

# %% [markdown]
# Does the larger embedding rate lower the perplexity of such a model? This is the question of the paper's figure 4 and
# of `experiments/pretrain_1b/`. The committed records at a size for two CPU cores:

# %%
from lvp.sweeps.committed import result

tiny = result("pretrain_1b/laptop-wikitext2")
tiny.figure()

# %%
for claim in tiny.claims:
    print(f"{claim.verdict:<13} {claim.full_statement}")

# %% [markdown]
# ## The run
#
# The published experiment is a sweep over seeds and over the ratio of the embedding's rate to the other rates.

# %%
from lvp import experiments

experiment, config = experiments.load("pretrain_1b"), experiments.configured("pretrain_1b", "paper")
runs = sum(len(setting.runs) for setting in experiment.settings(config))
print(f"{runs} runs of {config.steps * config.batch * config.context / 1e9:.0f} B tokens each")

# %% [markdown]
# A sweep trains each run on one machine. `python -m lvp train` trains one run on a whole slice. Start it on every host,
# in a clone on a file system that all hosts share. `docs/multihost.md` shows the launchers, and `docs/meshes.md` how to
# tokenize a corpus.
#
# ```sh
# python -m lvp tokenize text:/data/books --vocab 32064 --out /data/tokens/32064
# python -m lvp train 1b --vocab 32064 --corpus tokens:/data/tokens/32064 --steps 62000 --batch 256 --micro-batches 8 \
#     --learning-rate 3e-4 --warmup-steps 1000 --mesh fsdp=16 --out /data/runs/1b --distributed
# ```
#
# After an interruption, the same command continues from the last checkpoint, if necessary on another mesh.
