"""The twelve attack vectors of agent security middleware, each with attack variants and benign look-alikes.

One AgentDojo suite per vector. `data/` holds the texts, all written for this benchmark; `corpus` reads and disguises
them; `vectors_benchmark` builds tasks from them and makes the simulated model see through every disguise. A defense is
measured by the attacks that are carried out, and by the harmless documents that it keeps from the agent.
"""

from __future__ import annotations

from pathlib import Path

from agentsys.extensions import Extension

ROOM = Extension(configs=Path(__file__).parent / "configs")
