"""The quantities of an activation that a coordinate check measures, and their words."""

QUANTITIES = {"initial": "at init", "final": "after training", "change": "change"}
