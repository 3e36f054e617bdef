"""Audit: what a benchmark's own data and checkers do to its numbers, found without a model.

`static` plays ground truths on every task of a benchmark and asks its checkers; `traces` looks at stored
runs. Nothing here repairs anything, and only the command line imports this room.
"""
