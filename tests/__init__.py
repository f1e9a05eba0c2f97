"""Tests and benchmarks."""

import jax

# Flags of XLA for programs that run for less time than LLVM takes to optimise them.
QUICK_COMPILATION = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
if jax.__version_info__ < (0, 11):  # later versions do not know the flag and abort
    QUICK_COMPILATION += " --xla_cpu_use_fusion_emitters=false"
