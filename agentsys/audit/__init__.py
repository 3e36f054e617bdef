"""Audit: what a benchmark's own data and checkers do to its numbers, found without a model.

One file per check. `static_audit` runs them on every task of a benchmark; `trace_audit` looks at
stored runs. Nothing here repairs anything, and only the command line imports this room.
"""
