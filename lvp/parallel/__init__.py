"""Meshes and shardings, communication between processes, and peak figures of hardware."""
