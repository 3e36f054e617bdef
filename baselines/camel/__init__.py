"""CaMeL (Debenedetti et al., arXiv 2503.18813): control from the request alone, data with capabilities.

`camel_agent` runs a task: the planner writes programs, `language` runs them, `suite_world` is what they can
reach and judges their calls. What the reference does otherwise: docs/baselines/camel.md.
"""
