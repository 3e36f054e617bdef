"""Progent (Shi et al., arXiv 2504.11703): deterministic rules in front of every tool call.

`progent_rules` evaluates rules, `progent_gate` stands in front of the tools and says when rules are written,
`policy_model` has them written and rewritten and compares two policies, and `base_rules` is data on what a suite
always allows. docs/baselines/progent.md lists the defects of the reference that
`Progent` mends and `compat: true` keeps, and every other difference.
"""

from baselines.progent.defense import Progent

__all__ = ["Progent"]
