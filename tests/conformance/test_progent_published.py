"""Progent's published runs: recorded refusals word for word, and recorded calls through our gate."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from agentdojo.functions_runtime import Function, FunctionCall, FunctionsRuntime
from pydantic import create_model

from agentsys.models.chat import ChatReply, ChatRequest, assistant, text_of
from agentsys.models.trace import Tracer, use_tracer
from baselines.progent import progent_gate, progent_rules
from baselines.progent.defense import Progent
from baselines.progent.progent_rules import ProgentSettings, find_condition_failure

ARCHIVE = "agentdyn-gpt-4o-mini-2024-07-18-progent"
_REFUSED = "ValidationError: "
_NOT_ALLOWED = re.compile(r"The tool '(.*)' is not allowed\.")
_FAILED = re.compile(
    r"(?P<said>.*?)\n\nFailed validating (?P<keyword>'[^']*') in (?P<where>\w+)(?P<inside>.*?):\n"
    r"(?P<schema>.*)\n\nOn (?P<of>\w+)(?P<path>.*?):\n(?P<instance>.*)",
    re.DOTALL,
)


@dataclass(frozen=True)
class RecordedResult:
    """One call and its answer."""

    tool: str
    args: dict[str, Any]
    content: str
    error: str | None
    query: str

    @property
    def cause(self) -> str | None:
        """Why it was refused, without the request that follows; None if it was not refused."""
        if self.error is None or not self.error.startswith(_REFUSED):
            return None
        found = re.fullmatch(rf"{_REFUSED}(.*)\. [^\n]*: {re.escape(self.query)}\.", self.error, re.DOTALL)
        return found[1] if found else None

    @property
    def tool_is_refused(self) -> bool:
        """Whether the tool was refused whatever its arguments are."""
        return _NOT_ALLOWED.fullmatch(self.cause or "") is not None


@dataclass(frozen=True)
class RecordedTask:
    """One run: its turns with calls, in order."""

    name: str
    query: str
    turns: tuple[tuple[RecordedResult, ...], ...]


def tasks_in(folder: Path) -> list[RecordedTask]:
    """The runs of a folder, in order."""
    paths = sorted(folder.rglob("*.json"))
    return [_task(str(path.relative_to(folder)), orjson.loads(path.read_bytes())) for path in paths]


def _task(name: str, stored: dict[str, Any]) -> RecordedTask:
    messages = stored["messages"]
    query = next(message["content"] for message in messages if message["role"] == "user")
    turns: list[list[RecordedResult]] = []
    for message in messages:
        if message["role"] == "assistant":
            turns.append([])
        elif message["role"] == "tool":
            call = message["tool_call"]
            result = RecordedResult(
                call["function"], call["args"], message["content"], message["error"], query
            )
            turns[-1].append(result)
    return RecordedTask(name, query, tuple(tuple(turn) for turn in turns if turn))


@dataclass(frozen=True)
class FailedCondition:
    """A refusal for an argument: the condition and the value, as far as the text holds them."""

    cause: str
    argument: str
    value: Any
    schema: Any


def failed_condition(result: RecordedResult, defaults: Sequence[str] = ()) -> FailedCondition | None:
    """The condition that a call failed; None where the text does not hold all of it.

    Args:
        result: A refused call.
        defaults: Arguments of the tool that the call may have left out: their value is None.
    """
    found = _FAILED.fullmatch(result.cause or "")
    if found is None:
        return None
    try:
        schema, instance = (ast.literal_eval(found[part].strip()) for part in ("schema", "instance"))
    except (ValueError, SyntaxError):
        return None
    if found["where"] == "metaschema":
        # A schema that is none: what was on show is the place of it named in the path.
        schema, value = _put_into({}, found["path"], instance), None
        return FailedCondition(result.cause or "", "", value, schema)
    schema = _put_into({}, found["inside"], schema) if found["inside"] else schema
    given = {**dict.fromkeys(defaults), **result.args}
    for argument, value in given.items():
        if _at(value, found["path"]) == instance:
            # The tool's own type, where there is no way down to it: 20 is 20.0 to it.
            checked = value if found["path"] else instance
            return FailedCondition(result.cause or "", argument, checked, schema)
    return None


def _steps(path: str) -> list[Any]:
    return [ast.literal_eval(step) for step in re.findall(r"\[([^\[\]]*)\]", path)]


def _put_into(outer: dict[str, Any], path: str, inner: Any) -> Any:
    """The schema in which `inner` stands at this path."""
    for step in reversed(_steps(path)):
        inner = {step: inner} if isinstance(step, str) else [*[{}] * step, inner]
    return inner


def _at(value: Any, path: str) -> Any:
    for step in _steps(path):
        try:
            value = value[step]
        except (TypeError, KeyError, IndexError):
            return None
    return value


def refusals(tasks: Sequence[RecordedTask]) -> Iterator[RecordedResult]:
    """Every refused call."""
    for task in tasks:
        for turn in task.turns:
            yield from (result for result in turn if result.cause is not None)


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


REFERENCE = ProgentSettings(compat=True, base_rules="none")


@pytest.fixture(scope="module")
def tasks(published: Callable[[str], Path]) -> list[RecordedTask]:
    return tasks_in(published(ARCHIVE))


@pytest.fixture(scope="module")
def known(tasks: list[RecordedTask]) -> Arguments:
    return arguments_of(tasks)


def test_every_recorded_text_of_jsonschema_is_reproduced_byte_for_byte(
    tasks: list[RecordedTask], known: Arguments
) -> None:
    counted: Counter[str] = Counter()
    for result in refusals(tasks):
        if result.tool_is_refused:
            counted["tool"] += 1
            continue
        failed = failed_condition(result, tuple(known[result.tool]))
        if failed is None:
            assert "\n\nFailed validating" not in (result.cause or "")
            counted["other words"] += 1  # a regular expression, or a condition that is no schema
            continue
        assert find_condition_failure(failed.argument, failed.value, failed.schema) == failed.cause
        counted["schema that is none" if "in metaschema" in failed.cause else "value"] += 1
    assert counted == {"tool": 1093, "value": 256, "schema that is none": 68, "other words": 18}


def disagreeing(tasks: list[RecordedTask], known: Arguments, settings: ProgentSettings = REFERENCE) -> int:
    return sum(replayed(task, known, settings) != recorded_answers(task) for task in tasks)


@pytest.mark.slow
def test_recorded_calls_under_the_rules_they_tell_of_are_let_through_and_refused_as_recorded(
    tasks: list[RecordedTask], known: Arguments
) -> None:
    answers = [turn for task in tasks for turn in recorded_answers(task)]
    assert len(tasks) == 648
    assert sum(len(turn) for turn in answers) == 4363
    assert sum(answer.refused for turn in answers for answer in turn) == 1435
    assert sum(len(turn) > 1 for turn in answers) == 620
    assert disagreeing(tasks, known) == 0


Patch = pytest.MonkeyPatch


def every_rule_of_a_tool_is_tried(patch: Patch) -> None:
    decide = progent_rules.decide_call
    patch.setattr(
        progent_rules,
        "decide_call",
        lambda rules, tool, args, first_only: decide(rules, tool, args, first_only=False),
    )


def only_supplied_arguments_are_checked(patch: Patch) -> None:
    prepare = progent_gate.GatedRuntime._prepare_arguments

    def prepared(self: Any, function: str, args: Any) -> Any:
        policy, self.policy = self.policy, replace(self.policy, settings=MENDED)
        try:
            return prepare(self, function, args)
        finally:
            self.policy = policy

    patch.setattr(progent_gate.GatedRuntime, "_prepare_arguments", prepared)


MENDED = replace(REFERENCE, compat=False)
CHANGED: dict[Callable[[Patch], None], int] = {
    every_rule_of_a_tool_is_tried: 175,
    only_supplied_arguments_are_checked: 8,
}
"""Mended defect -> runs that come out differently once it alone is mended."""


@pytest.mark.slow
@pytest.mark.parametrize("mend", CHANGED)
def test_a_mended_defect_changes_the_runs_that_show_it(
    tasks: list[RecordedTask], known: Arguments, monkeypatch: Patch, mend: Callable[[Patch], None]
) -> None:
    mend(monkeypatch)
    assert disagreeing(tasks, known) == CHANGED[mend]
