"""Recorded calls of Progent's published runs, made again under scripted rules.

What the policy model wrote is not recorded. So for each turn it is given the rules that the turn's answers
tell: none for a tool that was refused, the condition that stands in a refusal for the argument it names, and
no condition for the rest. Behind each condition stands a second rule that allows everything, which the
reference never looks at. Tools return what was recorded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from agentdojo.functions_runtime import Function, FunctionCall, FunctionsRuntime
from progent_recorded import RecordedResult, RecordedTask, failed_condition
from pydantic import create_model

from agentsys.models.chat import ChatReply, ChatRequest, assistant, text_of
from agentsys.models.trace import Tracer, use_tracer
from baselines.progent.defense import Progent
from baselines.progent.progent_rules import ProgentSettings

_PATTERN = re.compile(
    r"Invalid value for argument '(?P<name>\w+)' value '.*', the allowed value is '(?P<asked>.*)'", re.DOTALL
)
_UNSUPPORTED = {
    "Unsupported restriction type: <class 'list'>": [],
    "Unsupported restriction type: <class 'NoneType'>": None,
}
Arguments = Mapping[str, Mapping[str, Any]]
"""Tool -> its arguments, as far as any run names them, each with its type where that shows in a refusal."""


def arguments_of(tasks: Sequence[RecordedTask]) -> Arguments:
    """What can be told of the tools' arguments."""
    known: dict[str, dict[str, Any]] = {}
    for task in tasks:
        for turn in task.turns:
            for result in turn:
                own = known.setdefault(result.tool, {})
                for name, value in result.args.items():
                    # A tool that once took a fraction writes 20 as 20.0.
                    own[name] = float | None if isinstance(value, float) else own.get(name, Any)
    return known


def _condition(result: RecordedResult, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Argument -> the condition that a refusal names."""
    cause = result.cause or ""
    pattern = _PATTERN.fullmatch(cause)
    if pattern is not None:
        return {pattern["name"]: pattern["asked"]}
    # Neither these nor a schema that is none says which argument it was for.
    somewhere = next(iter(result.args))
    if cause in _UNSUPPORTED:
        return {somewhere: _UNSUPPORTED[cause]}
    failed = failed_condition(result, tuple(arguments))
    assert failed is not None, f"no condition can be told from {cause[:80]!r}"
    return {failed.argument or somewhere: failed.schema}


def rules_for(turn: Sequence[RecordedResult], known: Arguments) -> str:
    """The policy model's reply that gives a turn its answers."""
    conditions: dict[str, dict[str, Any]] = {}
    for result in turn:
        if result.tool_is_refused:
            continue
        own = conditions.setdefault(result.tool, {})
        if result.cause is not None:
            own |= _condition(result, known[result.tool])
    entries = [{"name": tool, "args": own} for tool, own in conditions.items()]
    lenient = [{"name": tool, "args": {}} for tool, own in conditions.items() if own]
    return f"Yes\n```json\n{json.dumps([*entries, *lenient])}\n```"


class RecordedModels:
    """The agent's recorded calls, and the scripted policy model."""

    name = "recorded"

    def __init__(self, task: RecordedTask, known: Arguments) -> None:
        self.turns = [
            [FunctionCall(function=r.tool, args=dict(r.args), id=f"{t}_{p}") for p, r in enumerate(turn)]
            for t, turn in enumerate(task.turns)
        ]
        self.policies = [rules_for(turn, known) for turn in task.turns] or ["```json\n[]\n```"]

    def complete(self, request: ChatRequest) -> ChatReply:
        if request.role != "policy":
            return ChatReply(assistant("next", self.turns.pop(0)) if self.turns else assistant("Done.", []))
        asked = text_of(request.messages[-1])
        if "\nTOOL_CALL_PARAM: " in asked and "\nTOOL_CALL_RESULT: " not in asked:
            return ChatReply(assistant("Yes" if self.policies else "No"))
        return ChatReply(assistant(self.policies.pop(0)))


class RecordedTools(FunctionsRuntime):
    """Tools that return what was recorded, in the order of the calls that were let through."""

    def __init__(self, task: RecordedTask, known: Arguments) -> None:
        names = dict.fromkeys(result.tool for turn in task.turns for result in turn)
        super().__init__([_tool(name, known[name]) for name in names])
        self.answers = [result for turn in task.turns for result in turn if result.cause is None]

    def run_function(
        self, env: Any, function: str, kwargs: Mapping[str, Any], raise_on_error: bool = False
    ) -> tuple[Any, str | None]:
        if not self.answers or self.answers[0].tool != function:
            return "this call was refused in the recording", None
        answer = self.answers.pop(0)
        return answer.content, answer.error


def _tool(name: str, arguments: Mapping[str, Any]) -> Function:
    fields: dict[str, Any] = {argument: (kind, None) for argument, kind in arguments.items()}
    parameters = create_model(name, **fields)
    return Function(
        name=name,
        description=name,
        parameters=parameters,
        dependencies={},
        run=lambda: None,
        full_docstring=name,
        return_type=str,
    )


@dataclass(frozen=True)
class Answered:
    """What a call got."""

    tool: str
    refused: bool
    text: str
    """Content and error of an executed call; the cause of a refused one, if it is a condition's in the words
    of jsonschema."""


def recorded_answers(task: RecordedTask) -> list[list[Answered]]:
    """The recording, turn by turn."""
    return [[_recorded(result) for result in turn] for turn in task.turns]


def _recorded(result: RecordedResult) -> Answered:
    if result.cause is None:
        return Answered(result.tool, False, f"{result.content}|{result.error}")
    return Answered(result.tool, True, result.cause if "\n\nFailed validating" in result.cause else "")


def replayed(task: RecordedTask, known: Arguments, settings: ProgentSettings) -> list[list[Answered]]:
    """The same calls under our gate."""
    defense = Progent(compat=True)
    defense.settings = settings
    models, tools, tracer = RecordedModels(task, known), RecordedTools(task, known), Tracer()
    pipeline = defense.pipeline(models, SimpleNamespace(name="recorded", system_message="You work."))
    with use_tracer(tracer):
        messages = pipeline.query(task.query, tools)[3]
    turns: list[list[Answered]] = []
    for message in messages:
        if message["role"] == "assistant":
            turns.append([])
        elif message["role"] == "tool":
            turns[-1].append(_ours(message, task.query))
    return [turn for turn in turns if turn]


def _ours(message: Any, query: str) -> Answered:
    tool, error = message["tool_call"].function, message["error"]
    if error is None or not error.endswith(query) or not error.startswith("ValidationError: "):
        return Answered(tool, False, f"{text_of(message)}|{error}")
    cause = error.removeprefix("ValidationError: ").partition("\n\nUse other tools")[0]
    return Answered(tool, True, cause if "\n\nFailed validating" in cause else "")
