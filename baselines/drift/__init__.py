"""DRIFT (Li et al., arXiv 2506.12104): a plan made before anything is seen, and calls held against it.

`drift_plan` asks for it, `drift_validator` holds calls against it, `injection_isolator` cuts planted
instructions out of results, `drift_agent` runs the task. What the reference does otherwise:
docs/baselines/drift.md.
"""
