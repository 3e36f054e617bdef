"""CaMeL (Debenedetti et al., arXiv 2503.18813): control from the request alone, data with capabilities.

`agent` runs a task: the planner writes programs, `language` runs them, `suite_world` is what they can reach,
`reader` the quarantined model, `policy` the judge of calls. Labels and their tables are those of
`baselines.flow`. What the reference does otherwise, and why we do not, stands in docs/baselines/camel.md.
"""

from baselines.camel.defense import Camel

__all__ = ["Camel"]
