"""The types that a defense, an attack, a benchmark, a model or a metric of one's own is written with.

`Defense`, `Attack`, `Suite` and `Benchmark` name what each must have and can do; a class of the right shape that
derives from none of them is a plug-in, too. What is neither here nor in `agentsys` itself is private and may move.
"""

from __future__ import annotations

from agentsys.analysis.metrics.own_metric import Metric
from agentsys.base.declared_facts import DeclaredFact
from agentsys.contracts import (
    Attack,
    AttackKind,
    Benchmark,
    CaseScores,
    Defense,
    FinishedCase,
    NotInjectable,
    Suite,
    UserTurns,
    Victim,
)
from agentsys.errors import ConfigError, Unavailable
from agentsys.models.chat import (
    ChatModel,
    ChatReply,
    ChatRequest,
    ErrorKind,
    ModelError,
    Scene,
    SceneModel,
    ToolSpec,
    Usage,
    assistant,
    system,
    text_of,
    user,
)
from agentsys.models.pipeline_elements import ModelElement, default_system_message, tool_loop, tool_specs
from agentsys.models.pricing import Price, cost_usd
from agentsys.models.trace import span
from agentsys.records.case_row import CaseRow
from agentsys.simulated.simulated_role import SimulatedRole

__all__ = [
    "Attack",
    "AttackKind",
    "Benchmark",
    "CaseRow",
    "CaseScores",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "ConfigError",
    "DeclaredFact",
    "Defense",
    "ErrorKind",
    "FinishedCase",
    "Metric",
    "ModelElement",
    "ModelError",
    "NotInjectable",
    "Price",
    "Scene",
    "SceneModel",
    "SimulatedRole",
    "Suite",
    "ToolSpec",
    "Unavailable",
    "Usage",
    "UserTurns",
    "Victim",
    "assistant",
    "cost_usd",
    "default_system_message",
    "span",
    "system",
    "text_of",
    "tool_loop",
    "tool_specs",
    "user",
]
