"""The tool boundary: where an agent's calls go out to the tools, and results come back.

A `BoundaryFilter` may rewrite or refuse calls before the tools run, and rewrite results before the agent
reads them. Filters live with their defenses (`baselines.detectors`, ...).
"""

from __future__ import annotations
