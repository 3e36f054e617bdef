"""The types that a defense, an attack, a benchmark, a model or a metric of one's own is written with.

Nothing here has to be inherited from: a class of the right shape and a YAML whose `_target_` names it are a
plug-in. What is neither here nor in `agentsys` itself is private and may move.
"""

from __future__ import annotations

from agentsys.abilities import (
    ChecksItsNeeds,
    HasClock,
    DeclaresFacts,
    DescribesItself,
    DrawsAtRandom,
    FollowsModel,
    HoldsDefenses,
    HasInjectionMode,
    KeepsFiles,
    KnowsWays,
    LeadsUsers,
    MeasuresCases,
    NamesFromFile,
    NamesPrompts,
    NamesTasks,
    NeedsOwnModels,
    PicksPairs,
    PlaysRoles,
    Rehearsable,
    ReplaysTexts,
    NamesExclusions,
    SearchesTexts,
    SparesUserTasks,
    StartsFrom,
    TakesTurns,
    UserTurns,
    WholeProgram,
    WrapsModels,
)
from agentsys.analysis.metrics.own_metric import Metric
from agentsys.contracts import (
    Attack,
    AttackKind,
    Benchmark,
    Defense,
    FinishedCase,
    CaseScores,
    NotInjectable,
    Victim,
)
from agentsys.declared_facts import DeclaredFact
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
from agentsys.models.price import Price, cost_usd
from agentsys.models.simulated.role import SimulatedRole
from agentsys.models.tools import tool_specs
from agentsys.models.trace import span
from agentsys.records.case_row import CaseRow

__all__ = [
    "Attack",
    "AttackKind",
    "Benchmark",
    "CaseRow",
    "ChatModel",
    "ChatReply",
    "ChatRequest",
    "ChecksItsNeeds",
    "Clocked",
    "ConfigError",
    "DeclaredFact",
    "DeclaresFacts",
    "Defense",
    "DescribesItself",
    "DrawsAtRandom",
    "ErrorKind",
    "FinishedCase",
    "FollowsModel",
    "HoldsDefenses",
    "HasInjectionMode",
    "KeepsFiles",
    "KnowsWays",
    "LeadsUsers",
    "CaseScores",
    "MeasuresCases",
    "Metric",
    "ModelElement",
    "ModelError",
    "NamesFromFile",
    "NamesPrompts",
    "NamesTasks",
    "NeedsOwnModels",
    "NotInjectable",
    "PicksPairs",
    "PlaysRoles",
    "Price",
    "Rehearsable",
    "ReplaysTexts",
    "NamesExclusions",
    "Scene",
    "SceneModel",
    "SearchesTexts",
    "SimulatedRole",
    "SparesUserTasks",
    "StartsFrom",
    "TakesTurns",
    "ToolSpec",
    "Unavailable",
    "Usage",
    "UserTurns",
    "Victim",
    "WholeProgram",
    "WrapsModels",
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
