"""A defense in front of an agent that is not ours: its tools are the client's, its state the server's.

`agent_server` starts it for `agentsys serve defense=...`. A request of the user runs the defense's pipeline in a
thread; a tool call is handed out as the reply, and the client's result resumes it, found by the id of the
call alone.

`guard` puts a defense around the tools of an agent in this process; its names are imported from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agentsys.extensions import CommandSection, CommandSource, Extension

if TYPE_CHECKING:
    from agentsys_plugins.serve.guarded_tools import (
        GuardedAnswer,
        GuardedTools,
        GuardFailed,
        guard,
        load_defense,
        load_model,
        mcp_tools,
    )

__all__ = ["GuardFailed", "GuardedAnswer", "GuardedTools", "guard", "load_defense", "load_model", "mcp_tools"]


def __getattr__(name: str) -> Any:
    # Late, as the command line imports this package to know its commands, and these bring AgentDojo.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("agentsys_plugins.serve.guarded_tools"), name)


ROOM = Extension(
    CommandSection(
        "Guard an agent",
        50,
        {
            "serve": CommandSource(
                "agentsys_plugins.serve.serve_command:serve_command",
                "Serve a defended agent, or the simulated model.",
                ("agentsys serve --port 8321", "agentsys serve model=simulated defense=agentsys"),
            ),
            "probe": CommandSource(
                "agentsys_plugins.serve.probe_command:probe_command",
                "Attack an agent of yours through its own tools.",
                ("agentsys probe my_agent.py:TOOLS", "agentsys probe my_agent.py:run --model gpt-4o"),
            ),
        },
    ),
    follow="agentsys_plugins.serve.follow_command:follow_report",
)
