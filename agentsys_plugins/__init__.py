"""Guests: parts of the harness that the core does without. Each lies in one folder and joins by an entry point."""
