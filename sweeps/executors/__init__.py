"""The executors: worker processes of this machine, Ray Tune, and gangs that share a mesh."""
