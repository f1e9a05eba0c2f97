"""The quantities of an activation that a coordinate check measures, and their labels."""

QUANTITIES = {"initial": "at init", "final": "after training", "change": "change"}
