"""Image datasets, their files and their batches."""
