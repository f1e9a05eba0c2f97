"""The worker: trains packs of lanes and writes records and checkpoints."""
