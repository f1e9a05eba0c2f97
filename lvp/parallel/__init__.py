"""Devices: meshes and shardings, processes that share a mesh, and the hardware's numbers."""
