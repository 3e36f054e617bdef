"""The types that a defense, an attack, a benchmark or a model of one's own is written with.

Nothing here has to be inherited from: a class of the right shape and a YAML whose `_target_` names it are a
plug-in. What is neither here nor in `agentsys` itself is private and may move.
"""

from __future__ import annotations

from agentsys.contracts import (
    Attack,
    AttackKind,
    Benchmark,
    ChecksItsNeeds,
    Defense,
    Described,
    FinishedCase,
    Measured,
    NamesTasks,
    NotInjectable,
    Victim,
)
from agentsys.errors import ConfigError, Unavailable
from agentsys.models.chat import (
    ChatModel,
    ChatReply,
    ChatRequest,
    Scene,
    SceneModel,
    ToolSpec,
    Usage,
    assistant,
    system,
    text_of,
    user,
)
from agentsys.models.element import ModelElement
from agentsys.models.errors import ErrorKind, ModelError
from agentsys.models.loop import default_system_message, tool_loop
from agentsys.models.simulated.role import SimulatedRole
from agentsys.models.tools import tool_specs
from agentsys.models.trace import span

__all__ = [
    "Attack",
    "AttackKind",
    "Benchmark",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "ChecksItsNeeds",
    "ConfigError",
    "Defense",
    "Described",
    "ErrorKind",
    "FinishedCase",
    "Measured",
    "ModelElement",
    "ModelError",
    "NamesTasks",
    "NotInjectable",
    "Scene",
    "SceneModel",
    "SimulatedRole",
    "ToolSpec",
    "Unavailable",
    "Usage",
    "Victim",
    "assistant",
    "default_system_message",
    "span",
    "system",
    "text_of",
    "tool_loop",
    "tool_specs",
    "user",
]
