"""A defense in front of an agent that is not ours: its tools are the client's, its state is the server's.

`serve` starts it for `agentsys serve defense=...`. A conversation runs the defense's pipeline in a thread of
its own; a tool call is handed out as the reply, and the client's result resumes it. What a client resends is
read for one purpose: to find the conversation that it belongs to. `target` has cases of a benchmark for
models: what a client says is the attack's text.

`guard` puts a defense around the tools of an agent in this process; its names are imported from here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentsys.front.guarded import (
        GuardedAnswer,
        GuardedTools,
        GuardFailed,
        guard,
        load_defense,
        load_model,
    )
    from agentsys.front.mcp_session import mcp_tools

__all__ = [
    "GuardFailed",
    "GuardedAnswer",
    "GuardedTools",
    "guard",
    "load_defense",
    "load_model",
    "mcp_tools",
]


def __getattr__(name: str) -> Any:
    # Late, as the command line imports this package to know its commands, and these bring AgentDojo.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"agentsys.front.{'mcp_session' if name == 'mcp_tools' else 'guarded'}")
    return getattr(module, name)
