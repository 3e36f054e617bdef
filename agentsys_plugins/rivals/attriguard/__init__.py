"""AttriGuard: a call that the agent would not propose on weakened tool results is refused.

Rebuilt from arXiv 2603.10749 and its artifact's behaviour. What is repaired, and what the preset
`attriguard_compat` leaves as it was: docs/baselines/attriguard.md.
"""

from agentsys_plugins.rivals.attriguard.defense import AttriGuard

__all__ = ["AttriGuard"]
