"""AgentDyn: shopping, github and dailylife, loaded from a checkout of its fork of agentdojo.

The fork has the installed package's name, so its modules are executed under a private one, without an effect on the
installed package or another checkout in the same process. Nothing of the fork is part of this package.
"""

from __future__ import annotations

from pathlib import Path

from agentsys.extensions import Extension

ROOM = Extension(
    fetch={"agentdyn": "agentsys_plugins.agentdyn.fetch_agentdyn:fetch_agentdyn"},
    configs=Path(__file__).parent / "configs",
)
