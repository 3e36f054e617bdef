"""The tool boundary: where an agent's calls go out to the tools, and results come back.

A `BoundaryFilter` may rewrite or refuse calls before the tools run, and rewrite results before the agent reads
them. `boundary_filter` applies filters in a plain tool loop and around the tools of any agent, and has the base
of defenses that do nothing else; `result_rewriter` is the base of filters that rewrite one result after the
other; `guard_question` asks a guard model. Filters live with their defenses (`baselines.detectors`, ...).
"""

from __future__ import annotations
