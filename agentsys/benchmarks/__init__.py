"""Benchmarks: suites of tasks, loaded fast and proven equal to the package they come from.

What a model is, what a defense does and how results are stored is not known here.
"""
