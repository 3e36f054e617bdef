"""Progent (Shi et al., arXiv 2504.11703): deterministic rules in front of every tool call.

`conditions` and `rules` evaluate, `gate` stands in front of the tools, `policy_model` (with `policy_reply`
and `prompts`) has rules written and rewritten, `policy_steps` says when, `base_rules` (with a folder of data)
holds what a suite always allows, `narrower` (with `z3_terms`) compares two policies. `fixes` lists the
defects of the reference implementation that `Progent` mends and `compat: true` keeps; every other difference
is in docs/baselines/progent.md.
"""

from baselines.progent.defense import Progent

__all__ = ["Progent"]
