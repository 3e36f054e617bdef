"""Trajectories: what a stored record says was done, whoever wrote it."""
