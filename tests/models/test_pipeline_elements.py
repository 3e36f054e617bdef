"""Elements of pipelines: rows of them, and tools as models are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from agentdojo.agent_pipeline import (
    AgentPipeline,
    BasePipelineElement,
    InitQuery,
    SystemMessage,
    ToolsExecutionLoop,
    ToolsExecutor,
)
from agentdojo.functions_runtime import Function, FunctionsRuntime, make_function
from agentdojo.logging import LOGGER_STACK

from agentsys.models.chat import ChatReply, ChatRequest, assistant
from agentsys.models.pipeline_elements import (
    ElementSequence,
    LoopState,
    LoopStep,
    ModelElement,
    describe_tool,
    is_element_sequence,
)
from agentsys.runs.observed_pipeline import continue_pipeline


class Told:
    """A logger of AgentDojo's kind that keeps how long the conversation was whenever it was told."""

    def __init__(self) -> None:
        self.lengths: list[int] = []

    def log(self, messages: Sequence[Any]) -> None:
        self.lengths.append(len(messages))


class Says(LoopStep):
    """Says something, and notes that it did."""

    def step(self, at: LoopState) -> LoopState:
        at.extra["said"] = at.extra.get("said", 0) + 1
        return at.with_messages(assistant("Done."))


class Echo:
    name = "echo"

    def complete(self, request: ChatRequest) -> ChatReply:
        raise AssertionError("nobody asks it")


class OwnPipeline(AgentPipeline):  # type: ignore[misc]
    """A user's pipeline of AgentDojo's kind."""


ELEMENTS = [SystemMessage("Be brief."), InitQuery(), Says(), Says()]


def named(pipeline: BasePipelineElement) -> BasePipelineElement:
    pipeline.name = "mine"
    return pipeline


def asked(pipeline: BasePipelineElement) -> tuple[Any, list[int]]:
    told, runtime = Told(), FunctionsRuntime([])
    before = LOGGER_STACK.set([told])
    try:
        query, _, env, messages, extra = pipeline.query("Hello?", runtime)
    finally:
        LOGGER_STACK.reset(before)
    return (query, type(env), messages, extra), told.lengths


def test_a_row_makes_of_a_request_what_agentdojos_pipeline_makes_and_tells_its_logger_alike() -> None:
    ours, theirs = asked(ElementSequence(ELEMENTS, "mine")), asked(AgentPipeline(ELEMENTS))
    assert ours == theirs
    assert ours[1] == [1, 2, 3, 4]
    assert ours[0][3] == {"said": 2}
    assert asked(ElementSequence(ELEMENTS, "mine")) == ours  # nothing is kept from one request to the next


def test_rows_are_ours_and_agentdojos_and_no_others() -> None:
    kinds = (ElementSequence, AgentPipeline, OwnPipeline, ToolsExecutionLoop, InitQuery)
    assert [is_element_sequence(kind) for kind in kinds] == [True, True, False, False, False]


@pytest.mark.parametrize(
    "pipeline",
    [ElementSequence(ELEMENTS, "mine"), named(AgentPipeline(ELEMENTS)), named(OwnPipeline(ELEMENTS))],
    ids=["ours", "AgentDojo's", "a user's"],
)
def test_a_conversation_goes_on_in_whichever_row(pipeline: BasePipelineElement) -> None:
    again = continue_pipeline(pipeline)
    assert again.name == "mine"
    messages = again.query("And now?", FunctionsRuntime([]), messages=[assistant("Done.")])[3]
    assert [message["role"] for message in messages] == ["assistant", "user", "assistant", "assistant"]


@pytest.mark.parametrize("kind", [lambda parts: ElementSequence(parts, "mine"), AgentPipeline])
def test_whichever_row_is_taken_apart_for_a_stack(kind: Any) -> None:
    split_loop = pytest.importorskip("agentsys_plugins.rivals.stack").split_loop
    element = ModelElement(Echo())
    pipeline = kind(
        [SystemMessage("Be brief."), InitQuery(), element, ToolsExecutionLoop([ToolsExecutor(), element])]
    )
    parts = split_loop("mine", pipeline)
    assert parts is not None
    assert (parts.system_message, parts.first, parts.plain_tools) == ("Be brief.", element, True)


def pay(amount: int) -> str:
    """Pay.

    :param amount: How much.
    """
    return f"{amount} paid"


TOOL = make_function(pay)


def _function(name: str, description: str) -> Function:
    return TOOL.model_copy(update={"name": name, "description": description})


def test_tools_with_one_class_of_arguments_keep_their_own_names_and_descriptions() -> None:
    told = [("pay", "Pays."), ("pay", "Pays twice."), ("take", "Pays.")]
    for _ in range(2):
        specs = [describe_tool(_function(name, description)) for name, description in told]
        assert [(spec.name, spec.description) for spec in specs] == told
        assert all(spec.parameters is specs[0].parameters for spec in specs)
    assert specs[0].parameters == TOOL.parameters.model_json_schema()
