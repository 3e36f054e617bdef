"""Detectors: a classifier reads every tool result first, and results it flags as injections are withheld.

`defense` applies any detector to a conversation, and has a toy that needs nothing. The rest is for published
classifiers and needs `pip install 'agentsys-bench[detectors]'`. What AgentDojo and AgentDyn do otherwise, and
`protectai_compat` and `piguard_compat` with them: docs/baselines/detectors.md.
"""
