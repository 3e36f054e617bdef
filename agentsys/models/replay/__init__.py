"""Replay: recorded runs in the place of a model."""
