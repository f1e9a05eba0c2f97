"""The worker: it prepares data, trains packs of lanes and writes records and checkpoints."""
