"""Elements of AgentDojo's pipelines: tool descriptions, the model's turn, the executor, the plain tool loop.

Most defenses are variations of `tool_loop`, which has places to hook in.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import yaml
from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline, load_system_message
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, ToolsExecutor, tool_result_to_str
from agentdojo.functions_runtime import EmptyEnv, Function, FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.logging import Logger
from agentdojo.types import ChatMessage
from pydantic import BaseModel

from agentsys.base.json_values import bound_value, to_plain_data
from agentsys.base.python_parser import literal_eval
from agentsys.base.yaml_dump import dump_yaml
from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, assistant, tool_message
from agentsys.models.text_tools import explain_unread_call
from agentsys.models.untrusted import ForeignFunction

# Building a schema takes pydantic 0.2 ms; stock AgentDojo builds all of them on each model call,
# 5 ms for Workspace. The parameters class is made once per tool and lives as long as the suite.
_SPECS: WeakKeyDictionary[type[BaseModel], ToolSpec] = WeakKeyDictionary()


def describe_tool(function: Function) -> ToolSpec:
    """Describe one function as a model is told about it."""
    spec = _SPECS.get(function.parameters)
    if spec is None:
        spec = ToolSpec(function.name, function.description, function.parameters.model_json_schema())
        _SPECS[function.parameters] = spec
    if (spec.name, spec.description) == (function.name, function.description):
        return spec
    return replace(spec, name=function.name, description=function.description)


def tool_specs(functions: Iterable[Function]) -> list[ToolSpec]:
    """Describe these functions as a model is told about them, in order."""
    return [describe_tool(function) for function in functions]


def normalize_arguments(args: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as AgentDojo's executor hands them on: a text that spells a list becomes the list."""
    return {name: parse_list_text(value) if isinstance(value, str) else value for name, value in args.items()}


def parse_list_text(text: str) -> object:
    """The list that a text spells, or the text."""
    try:
        value = literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text  # of brackets without end, or a list as a key, too, on which AgentDojo would have stopped the run
    return value if isinstance(value, list) else text


def choose_free_name(name: str, taken: Collection[str]) -> str:
    """A name for a defense's own tool: another one where a tool that it was given has it."""
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(one for one in names if one not in taken)


_READING_VERBS = ("get", "search", "list", "read", "check", "find", "view", "count", "show", "lookup")


def has_reading_name(tool: str, *more: str) -> bool:
    """True if a tool's name begins with a verb of reading, or one more: a guess where nobody has said it."""
    return tool.casefold().split("_")[0] in (*_READING_VERBS, *more)


ASKED_AGAIN = "asked_again"
"""The extra argument that is true where an answer is asked for once more, and the request is the same."""
QueryResult = tuple[str, FunctionsRuntime, TaskEnvironment, Sequence[ChatMessage], dict[str, Any]]


@dataclass(frozen=True)
class LoopState:
    """State that one element of a pipeline hands on to the next."""

    query: str
    runtime: FunctionsRuntime
    env: TaskEnvironment
    messages: Sequence[ChatMessage]
    extra: dict[str, Any]
    """Whatever elements have to tell each other."""

    def with_messages(self, *messages: ChatMessage) -> LoopState:
        """The state with more messages at the end of its conversation."""
        return replace(self, messages=[*self.messages, *messages])

    def run_element(self, element: BasePipelineElement) -> LoopState:
        """The state that another element makes of this one."""
        return LoopState(*element.query(self.query, self.runtime, self.env, self.messages, self.extra))


class LoopStep(BasePipelineElement):  # type: ignore[misc]
    """An element that makes of one state the next one."""

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """Make the step as AgentDojo asks for it."""
        after = self.step(LoopState(query, runtime, env, messages, extra_args or {}))
        return after.query, after.runtime, after.env, after.messages, after.extra

    @abstractmethod
    def step(self, at: LoopState) -> LoopState:
        """Return the next state; of the given state only the environment may change."""


def write_tool_value(value: Any) -> str:
    """A tool's value as AgentDojo writes it; as YAML, too, where AgentDojo has no form for it (a list of mappings)."""
    try:
        return str(tool_result_to_str(value, dump_yaml))
    except (TypeError, ValueError, yaml.YAMLError):
        return dump_yaml(to_plain_data(value)).strip()


class ModelElement(LoopStep):
    """Asks a chat model with the conversation so far and the runtime's tools, and appends its reply."""

    def __init__(self, model: ChatModel, role: str = "agent") -> None:
        self.model = model
        self.role = role
        self.name = model.name

    def step(self, at: LoopState) -> LoopState:
        """One model call, as AgentDojo's pipeline elements make it."""
        request = ChatRequest(at.messages, tool_specs(at.runtime.functions.values()), self.role)
        return at.with_messages(self.model.complete(request).message)


class ToolsElement(LoopStep):
    """Runs the calls of the last message as AgentDojo's executor does, and appends their results.

    AgentDojo's parses every argument that is a text, however long: 6 MB stop all threads for 40 s.
    """

    runs_tools = True

    def __init__(self, formatter: Callable[[Any], str] = write_tool_value) -> None:
        self.formatter = formatter

    def step(self, at: LoopState) -> LoopState:
        """Run the calls; the assistant's message then has lists where it had their texts."""
        last = at.messages[-1] if at.messages else None
        calls = (last["tool_calls"] or ()) if last is not None and last["role"] == "assistant" else ()
        for call in calls:
            function = at.runtime.functions.get(call.function)
            if function is not None and not isinstance(function, ForeignFunction):
                call.args.update(normalize_arguments(call.args))
        return at.with_messages(*[self._run_call(at, call) for call in calls])

    def _run_call(self, at: LoopState, call: FunctionCall) -> ChatMessage:
        """Run one call; a call that cannot be read or names no tool is answered in AgentDojo's words."""
        if (unread := explain_unread_call(call)) is not None:
            return tool_message(call, "", unread)
        if call.function not in at.runtime.functions:
            # AgentDojo's own words for it.
            alone = assistant(None, [FunctionCall(function=call.function, args={}, id=call.id)])
            refusal: ChatMessage = ToolsExecutor().query(at.query, at.runtime, at.env, [alone])[3][-1]
            return {**refusal, "tool_call": call}
        value, error = at.runtime.run_function(at.env, call.function, call.args)
        return tool_message(call, self.formatter(bound_value(value)), error)


def is_plain_executor(element: BasePipelineElement) -> bool:
    """True if an element is AgentDojo's executor and nothing more, which asks nobody before a call."""
    return type(element) in (ToolsElement, ToolsExecutor)


MAX_ROUNDS = 15
"""AgentDojo's default bound on tool rounds."""


def default_system_message(suite: object) -> str:
    """The system message agents of this suite start from: the suite's own, else AgentDojo's default."""
    message = getattr(suite, "system_message", None)
    return message if isinstance(message, str) else str(load_system_message(None))


class ElementSequence(LoopStep):
    """Elements that are run one after the other, as AgentDojo's `AgentPipeline` runs them.

    That one hands one and the same `extra_args` to every request that comes without; here each has its own.
    """

    def __init__(self, elements: Sequence[BasePipelineElement], name: str | None) -> None:
        self.elements = list(elements)
        self.name = name

    def step(self, at: LoopState) -> LoopState:
        """Run the elements on this state, and tell AgentDojo's logger after each."""
        logger = Logger().get()
        for element in self.elements:
            at = at.run_element(element)
            logger.log(at.messages)
        return at


def is_element_sequence(kind: type) -> bool:
    """True if a class is the one that runs elements in order: ours or AgentDojo's."""
    return kind in (ElementSequence, AgentPipeline)


def tool_loop(
    model: ChatModel,
    system_message: str,
    *,
    name: str,
    before: Sequence[BasePipelineElement] = (),
    before_tools: Sequence[BasePipelineElement] = (),
    after_results: Sequence[BasePipelineElement] = (),
    after: Sequence[BasePipelineElement] = (),
    tools: BasePipelineElement | None = None,
    formatter: Callable[[Any], str] = write_tool_value,
    turn: BasePipelineElement | None = None,
    max_rounds: int = MAX_ROUNDS,
) -> ElementSequence:
    """A plain agent: system message, user query, then model and tools in turn.

    Args:
        model: The model behind the agent.
        system_message: Its system message.
        name: The pipeline's name, as AgentDojo's own runner would use it for folders.
        before: Elements between the user query and the first model call.
        before_tools: Elements between each reply with tool calls and their execution.
        after_results: Elements between each round of tool results and the next model call.
        after: Elements behind the final answer.
        tools: The element that runs the calls of a reply; None: AgentDojo's executor.
        formatter: Turns a tool's value into the text of the tool message, where `tools` is None.
        turn: The element that takes the agent's turn after results; None: the model.
        max_rounds: Most rounds of tool calls.
    """
    element = ModelElement(model)
    run = ToolsElement(formatter) if tools is None else tools
    loop = ToolsExecutionLoop([*before_tools, run, *after_results, turn or element], max_rounds)
    opening = SystemMessage(system_message), InitQuery()
    return ElementSequence([*opening, *before, element, loop, *after], name)


def defended_loop(
    model: ChatModel, suite: object, defense: str, *, addition: str = "", **elements: Any
) -> ElementSequence:
    """The plain agent on a suite with a defense's elements (see `tool_loop`), named after its model and the defense.

    `addition` stands behind AgentDojo's own system message.
    """
    message = " ".join(filter(None, (default_system_message(suite), addition)))
    return tool_loop(model, message, name=f"{model.name}-{defense}", **elements)


def make_named_pipeline(name: str, *elements: BasePipelineElement) -> ElementSequence:
    """Elements in a row, under a name."""
    return ElementSequence(elements, name)
