"""Benchmarks: suites of tasks, loaded fast and tested for equality with their packages' own.

They know nothing of models, defenses or storage.
"""
