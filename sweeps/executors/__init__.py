"""Executors, which run trials: in worker processes of this machine, or under Ray Tune."""
