"""One command that measures on an accelerator whether lvp is right, fast, big enough, and what it finds.

    python -m tests.benchmarks.accelerator --out DIR [--corpus SPEC] [--commit HASH]

It takes at most eight minutes on one H100. It needs no network, and only jax, flax, optax, orbax, numpy, pandas, scipy,
scikit-learn, matplotlib, sentencepiece and tqdm. PyTorch adds rows. `--small` runs all parts on CPU in about two
minutes. `--dry` compiles the programs for an H100 that this machine lacks (needs JAX's CUDA plug-in).

Each part is a process with a time limit. A part writes each row when it is measured, and the next part runs if one
fails:

    right   against the same in float32 or float64 on the host, with tolerances        right.py
    bits    equal bits of repeated and resumed training, with deterministic kernels    bits.py
    fast    against one run at a time, a plain JAX loop, optax and PyTorch             fast.py, sides.py
    big     the 1B model of Hayou & Liu 2025, table 3                                  big.py
    figure  preset `gpu` of the front experiment, as a sweep                           figure.py

DIR receives accelerator.json (all rows with device, driver and versions), table.md, messages.log, figure.png,
figure.svg and sweep.tar.gz. `python -m sweeps report` fills docs/accelerators.md from these results in
`experiments/results/accelerator/`.
"""
