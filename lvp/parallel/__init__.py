"""Meshes and shardings, communication between processes, and figures of the hardware."""
