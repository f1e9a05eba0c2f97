"""Modules that several experiments share."""
