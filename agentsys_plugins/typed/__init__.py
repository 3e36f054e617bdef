"""`agentsys_typed`, the defense after the paper: a main agent that plans over names of values, and code that judges.

Gate, worker and session are those of `agentsys.defense`; what a value is, who chose it, and what may be done
with it is decided here, without a model.
"""

from __future__ import annotations

from pathlib import Path

from agentsys.extensions import Extension

ROOM = Extension(configs=Path(__file__).parent / "configs")
