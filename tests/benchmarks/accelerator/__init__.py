"""One command that measures on an accelerator: are the numbers right, how fast are steps, how large a model trains.

    python -m tests.benchmarks.accelerator --out DIR [--corpus SPEC]

It takes at most eight minutes on one H100. It needs no network, and only jax, flax, optax, orbax, numpy, pandas, scipy,
scikit-learn, matplotlib, sentencepiece and tqdm. PyTorch adds rows. `--small` runs all parts on CPU in about two
minutes. `--dry` compiles the programs for an H100 that this machine lacks (needs JAX's CUDA plug-in).

Each part is a process with a time limit. A part writes each row when it is measured. If a part fails, the next part
still runs:

    right   results compared with float32 or float64 on the CPU, with tolerances       right.py
    bits    whether repeated and resumed runs give equal losses, bit by bit            bits.py
    fast    times of packs, steps, losses and optimizers against other implementations fast.py, sides.py
    big     the 1B model of Hayou & Liu 2025, table 3                                  big.py
    figure  preset `gpu` of the front experiment, as a sweep                           figure.py

DIR receives accelerator.json (all rows with device, driver and versions), table.md, messages.log, figure.png,
figure.svg and sweep.tar.gz. `python -m lvp.sweeps report` fills docs/accelerators.md from these results in
`experiments/results/accelerator/`.
"""
