"""Repairs of AgentDojo's checks and data, each with the source of the finding.

Nothing here is on unless it is asked for: records keep AgentDojo's own scores, and the repaired ones
stand beside them. Each repair is a pure function of what AgentDojo's own check is given, and asks
that check wherever it can.
"""

from __future__ import annotations
