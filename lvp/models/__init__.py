"""Models: a decoder with its configurations, a residual network and a linear network, and the weights of runs."""

from lvp.models.weights import load

__all__ = ["load"]
