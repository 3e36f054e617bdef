"""The undefended agent is AgentDojo's own."""

from __future__ import annotations

from typing import Any

from agentdojo.agent_pipeline import (
    AgentPipeline,
    InitQuery,
    SystemMessage,
    ToolsExecutionLoop,
    ToolsExecutor,
)
from agentdojo.agent_pipeline.agent_pipeline import load_system_message
from agentdojo.task_suite import get_suite
from scripted_for_baselines import ScriptedModel, calls, runtime_returning

from agentsys.contracts import Defense
from agentsys.models.chat import assistant
from agentsys.models.pipeline_elements import ModelElement
from baselines.none import NoDefense

SCRIPT = [calls("balance", "unknown"), calls("broken"), assistant("You have 5.")]


def run(pipeline: Any) -> list[Any]:
    runtime = runtime_returning(balance=5, broken=ValueError("no such account"))
    return list(pipeline.query("How much have I?", runtime)[3])


def test_no_defense_says_and_does_what_agentdojos_own_pipeline_does() -> None:
    ours, theirs = ScriptedModel(SCRIPT), ScriptedModel(SCRIPT)
    element = ModelElement(theirs)
    loop = ToolsExecutionLoop([ToolsExecutor(), element])
    stock = AgentPipeline([SystemMessage(load_system_message(None)), InitQuery(), element, loop])

    assert run(NoDefense().pipeline(ours, get_suite("v1.2.2", "banking"))) == run(stock)
    assert ours.seen == theirs.seen
    assert len(ours.seen) == 3


def test_no_defense_is_a_defense_named_none_whose_pipeline_is_named_after_the_model() -> None:
    defense = NoDefense()
    assert isinstance(defense, Defense)
    assert defense.name == "none"
    assert defense.pipeline(ScriptedModel([]), get_suite("v1.2.2", "banking")).name == "scripted"
