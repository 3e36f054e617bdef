"""`BoundaryFilter`: rules on tool calls and rewrites tool results, in a plain loop or around any agent.

`FilteredTools` is the element of a plain tool loop that runs its tools between filters, `FilteredRuntime`
puts them around the tools of an agent of any other kind. `rewrite_descriptions` has what tools say of themselves
read and changed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.functions_runtime import Function, FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatMessage, ChatToolResultMessage
from pydantic import ValidationError, create_model

from agentsys.base.json_values import bound_value
from agentsys.contracts import Defense
from agentsys.models import pipeline_elements
from agentsys.models.chat import ChatModel, assistant, tool_message
from agentsys.models.providers.wire_parts import read_visible_text
from agentsys.models.trace import get_current_tracer
from agentsys.models.untrusted import ForeignFunction


class DescriptionText(NamedTuple):
    """One text that describes a tool."""

    tool: str
    parameter: str | None
    """The parameter that it describes; None: the tool itself."""
    text: str


def rewrite_descriptions(
    tools: Sequence[Function], read: Callable[[Sequence[DescriptionText]], Sequence[str]]
) -> list[Function]:
    """Return tools with the descriptions that a reader, asked once, leaves; unchanged tools are the same objects."""
    texts = [entry for tool in tools for entry in _list_texts(tool)]
    changed: dict[str, dict[str | None, str]] = {}
    for entry, left in zip(texts, read(texts), strict=True):
        if left != entry.text:
            changed.setdefault(entry.tool, {})[entry.parameter] = left
    return [_change_texts(tool, changed[tool.name]) if tool.name in changed else tool for tool in tools]


def _list_texts(tool: Function) -> list[DescriptionText]:
    fields = tool.parameters.model_fields.items()
    descriptions = [
        DescriptionText(tool.name, name, field.description) for name, field in fields if field.description
    ]
    return [DescriptionText(tool.name, None, tool.description), *descriptions]


def _change_texts(tool: Function, texts: Mapping[str | None, str]) -> Function:
    fields: dict[str, Any] = {}
    for name, text in texts.items():
        if name is not None:
            field = copy(tool.parameters.model_fields[name])
            field.description = text
            fields[name] = (field.annotation, field)
    parameters = create_model(tool.parameters.__name__, __base__=tool.parameters, **fields)
    described = texts.get(None, tool.description)
    return tool.model_copy(update={"description": described, "parameters": parameters})


@dataclass(frozen=True)
class FilterTurn:
    """One turn of an agent as seen by a filter."""

    query: str
    """The user's task."""
    runtime: FunctionsRuntime
    """The tools."""
    messages: Sequence[ChatMessage] = ()
    """The conversation up to the message that makes the calls; empty where a filter cannot be shown one."""


@dataclass(frozen=True)
class CallRuling:
    """A call after a filter has seen it."""

    call: FunctionCall
    """The call to run."""
    refusal: str | None = None
    """Error text that the agent gets in place of a result; None: the call runs."""


class EndCase(Exception):
    """A filter ends the case. The message is its last words, and quotes no result.

    `results` are those of the turn as the record is to keep them.
    """

    def __init__(self, words: str, results: Sequence[ChatToolResultMessage]) -> None:
        super().__init__(words)
        self.results = tuple(results)


class BoundaryFilter:
    """Lets everything pass. Made afresh for each case, so it may keep what belongs to one."""

    def rule_on_calls(self, turn: FilterTurn, calls: Sequence[FunctionCall]) -> list[CallRuling]:
        """Decide on the calls of one turn, all of which the tools would take, before the first of them runs.

        Returns:
            One ruling per call, in order.

        Raises:
            ModelError: If a model that was asked gave no reply.
        """
        return [CallRuling(call) for call in calls]

    def filter_results(
        self, turn: FilterTurn, results: Sequence[ChatToolResultMessage]
    ) -> list[ChatToolResultMessage]:
        """Return what the agent reads instead of these results, in order of the calls that were run.

        Returns:
            One message per result, in order; the very same object where nothing is changed.

        Raises:
            ModelError: If a model that was asked gave no reply.
            EndCase: If the case ends here.
        """
        return list(results)


def does_tool_accept(runtime: FunctionsRuntime, call: FunctionCall) -> bool:
    """True if a tool would accept a call. Other calls are answered without the tool."""
    tool = runtime.functions.get(call.function)
    if tool is None:
        return False
    try:
        tool.parameters.model_validate(dict(call.args))
    except ValidationError:
        return False
    return True


def apply_to_calls(
    filters: Sequence[BoundaryFilter], turn: FilterTurn, calls: Sequence[FunctionCall]
) -> list[CallRuling]:
    """Rule on calls by each filter in turn; a refused call is shown to no further one.

    Refused calls are booked in the trace.
    """
    rulings = [CallRuling(call) for call in calls]
    for filter_ in filters:
        runnable = _find_runnable(turn.runtime, rulings)
        new = filter_.rule_on_calls(turn, [rulings[index].call for index in runnable]) if runnable else []
        for index, ruling in zip(runnable, new, strict=True):
            rulings[index] = ruling
            if ruling.refusal is not None:
                get_current_tracer().note_refused_call(
                    ruling.call.function, dict(ruling.call.args), ruling.refusal
                )
    return rulings


def _find_runnable(runtime: FunctionsRuntime, rulings: Sequence[CallRuling]) -> list[int]:
    runs = (ruling.refusal is None and does_tool_accept(runtime, ruling.call) for ruling in rulings)
    return [index for index, is_run in enumerate(runs) if is_run]


def apply_to_results(
    filters: Sequence[BoundaryFilter], turn: FilterTurn, results: Sequence[ChatToolResultMessage]
) -> list[ChatToolResultMessage]:
    """Pass results through each filter in turn.

    Raises:
        EndCase: If one of them ends the case.
    """
    left = list(results)
    for filter_ in filters:
        left = filter_.filter_results(turn, left)
    return left


CallHistory = Literal["proposed", "executed"]
"""Arguments shown in the conversation if a filter changed them."""


class FilteredTools(pipeline_elements.LoopStep):
    """Runs the latest message's calls between filters, in place of AgentDojo's executor.

    All calls of a turn are ruled on before the first one runs, and all results are read before the agent
    sees the first. Answers that no tool gave (unknown tool, arguments it does not take, refusals) hold the
    agent's own words and pass by.

    Args:
        filters: The filters, each acting on what the one before it left.
        history: Whether the agent's message keeps the calls it `proposed`, or shows those `executed`.
    """

    runs_tools = True

    def __init__(self, filters: Sequence[BoundaryFilter], history: CallHistory = "proposed") -> None:
        self.filters = tuple(filters)
        self.history: CallHistory = history
        self._executor = pipeline_elements.ToolsElement()

    def step(self, at: pipeline_elements.LoopState) -> pipeline_elements.LoopState:
        """Run the calls of the last message, if it makes any.

        Raises:
            AbortAgentError: If a filter ends the case.
            ModelError: If a filter's model gave no reply.
        """
        last = at.messages[-1] if at.messages else None
        if last is None or last["role"] != "assistant" or not last["tool_calls"]:
            return at
        turn = FilterTurn(at.query, at.runtime, at.messages)
        known = at.runtime.functions
        calls = [_repair_call(call, known.get(call.function)) for call in last["tool_calls"]]
        rulings = apply_to_calls(self.filters, turn, calls)
        answers = [self._answer_call(ruling, at) for ruling in rulings]
        ran = _find_runnable(at.runtime, rulings)
        results: Sequence[ChatToolResultMessage]
        ended: EndCase | None = None
        try:
            results = apply_to_results(self.filters, turn, [answers[index] for index in ran])
        except EndCase as end:
            results, ended = end.results, end
        for index, result in zip(ran, results, strict=True):
            answers[index] = result
        if self.history == "proposed":
            pairs = zip(answers, last["tool_calls"], strict=True)
            answers = [
                result if result["tool_call"] is call else {**result, "tool_call": call}
                for result, call in pairs
            ]
        else:
            last = {**last, "tool_calls": [ruling.call for ruling in rulings]}
        messages = [*at.messages[:-1], last, *answers]
        if ended is not None:
            raise AbortAgentError(str(ended), messages, at.env)
        return replace(at, messages=messages)

    def _answer_call(self, ruling: CallRuling, at: pipeline_elements.LoopState) -> ChatToolResultMessage:
        if ruling.refusal is not None:
            return tool_message(ruling.call, "", ruling.refusal)
        run = self._executor.query(at.query, at.runtime, at.env, [assistant(None, [ruling.call])])[3]
        result: ChatToolResultMessage = run[-1]
        return result


def _repair_call(call: FunctionCall, function: Function | None) -> FunctionCall:
    """Change the call to what the executor will run, so that filters see no other one.

    A list that a model wrote as a text becomes the list, in place, as our executor does it. A call
    nested in the arguments, which would run unseen, becomes plain data; models cannot send one.
    """
    for name, value in call.args.items():
        if isinstance(value, FunctionCall):
            call.args[name] = value.model_dump()
        elif isinstance(value, str) and not isinstance(function, ForeignFunction):
            call.args[name] = pipeline_elements.parse_list_text(value)
    return call


def filter_descriptions(filters: Sequence[BoundaryFilter], tools: Sequence[Function]) -> list[Function]:
    """Pass each text that describes a tool through the filters as if it were that tool's result."""
    turn = FilterTurn("", FunctionsRuntime(tools))

    def read(texts: Sequence[DescriptionText]) -> list[str]:
        given = [tool_message(FunctionCall(function=entry.tool, args={}), entry.text) for entry in texts]
        try:
            left = apply_to_results(filters, turn, given)
        except EndCase as end:  # nobody has begun: what is withheld is withheld, and the case goes on
            left = list(end.results)
        return [read_visible_text(message) for message in left]

    return rewrite_descriptions(tools, read)


class CallRefused(Exception):
    """A refused call, where the caller wants errors raised."""


class FilteredRuntime(FunctionsRuntime):  # type: ignore[misc]
    """A runtime whose calls and results pass filters, one call at a time.

    A result that no filter changed is handed on as the value it was; a changed one as its text.
    """

    def __init__(self, inner: FunctionsRuntime, filters: Sequence[BoundaryFilter], query: str) -> None:
        super().__init__(list(inner.functions.values()))
        self.inner = inner
        self.filters = tuple(filters)
        self.turn = FilterTurn(query, inner)

    def run_function(
        self,
        env: TaskEnvironment | None,
        function: str,
        kwargs: Mapping[str, Any],
        raise_on_error: bool = False,
    ) -> tuple[Any, str | None]:
        """Run a tool between the filters.

        Raises:
            CallRefused: If the call is refused and errors are to be raised.
            EndCase: If a filter ends the case.
            Exception: What the inner runtime raises, unchanged.
        """
        try:
            call = FunctionCall(function=function, args=self._execute_nested_calls(env, kwargs))
            (ruling,) = apply_to_calls(self.filters, self.turn, [call])
            if ruling.refusal is not None:
                raise CallRefused(ruling.refusal)
        except CallRefused as refused:
            if raise_on_error:
                raise
            return "", str(refused)
        value, error = self.inner.run_function(env, function, dict(ruling.call.args), raise_on_error)
        value = bound_value(value)
        if not does_tool_accept(self.inner, ruling.call):
            return value, error
        returned = tool_message(ruling.call, pipeline_elements.write_tool_value(value), error)
        (filtered,) = apply_to_results(self.filters, self.turn, [returned])
        return (value, error) if filtered is returned else (read_visible_text(filtered), filtered["error"])


class FilteredAgent(pipeline_elements.LoopStep):
    """Runs an agent with filtered tools."""

    def __init__(self, agent: BasePipelineElement, filters: Sequence[BoundaryFilter]) -> None:
        self.agent = agent
        self.filters = tuple(filters)

    def step(self, at: pipeline_elements.LoopState) -> pipeline_elements.LoopState:
        """Run the agent once."""
        guarded = FilteredRuntime(at.runtime, self.filters, at.query)
        after = replace(at, runtime=guarded).run_element(self.agent)
        return replace(after, query=at.query, runtime=at.runtime)


class BoundaryDefense(Defense):
    """A defense that acts at the border alone, so that it can be put in front of other agents too.

    A subclass gives the filter; its YAML makes it a config.
    """

    name: str
    history: CallHistory = "proposed"
    """See `FilteredTools`."""
    reads_tools: bool | None = False
    """True if the filters read tools' descriptions, too. None if they rule on calls alone."""

    def read_tools(
        self, tools: Sequence[Function], suite: TaskSuite[Any], model: ChatModel
    ) -> list[Function]:
        """Return the tools with their and their parameters' descriptions as the filters leave them."""
        return filter_descriptions(self.boundary_filters(model, suite), tools)

    @property
    def needs_conversation(self) -> bool:
        """True if the filter reads or ends the agent's conversation: then it fits plain loops only."""
        return False

    @abstractmethod
    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> Sequence[BoundaryFilter]:
        """Make the filters of one case."""

    def pipeline(self, model: ChatModel, suite: TaskSuite[Any]) -> BasePipelineElement:
        """Build the plain agent with the filters between it and its tools."""
        tools = FilteredTools(self.boundary_filters(model, suite), self.history)
        return pipeline_elements.defended_loop(model, suite, self.name, tools=tools)
