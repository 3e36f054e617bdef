"""Simulated model's handlers for AgentSys's roles: worker, validator, sanitizer, and the sorting of tools.

A simulated worker obeys the goals it sees, then extracts the declared fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage

from agentsys.defense import privileges, prompts, sanitizer, validator, worker
from agentsys.defense.gate import NOT_AVAILABLE
from agentsys.defense.intent import INTENT_PARAMETER
from agentsys.defense.privileges import Privilege
from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.models.loose_json import find_json_values
from agentsys.models.pipeline_elements import has_reading_name
from agentsys.simulated.free_play import is_asked_for
from agentsys.simulated.playbook_index import (
    Fact,
    GoalScript,
    ScriptedCall,
    compile_words_pattern,
    find_instruction_spans,
)
from agentsys.simulated.script_grounding import find_fact, ground_arguments, list_yaml_strings
from agentsys.simulated.simulated_role import (
    EXTRA_KEY_OPENING,
    IN_FIELD_OPENING,
    ReaderKind,
    SimulatedKnowledge,
    SimulatedRole,
    find_injected_passages,
    find_planted_value,
    wants_closed_values,
)
from agentsys.simulated.slips import mark_quoting_role

STATUS_FIELD = "status"
"""The field that acting calls declare; a simulated worker always answers it with `done`."""

_KEY = re.compile(r"[\s\"'{\\]*([A-Za-z_]\w*)[\s\"'\\]*:[\s\"'\\]*")


@dataclass(frozen=True)
class WorkerContext:
    """The parsed context of a worker."""

    raw: str
    intent: Mapping[str, Any]
    made: Sequence[Mapping[str, Any]]
    """Calls of the compact trace and the worker's own: `tool` and `args`."""
    context: str
    """The raw output and the results of the worker's own calls."""
    served: Sequence[GoalScript] = ()
    """Goals whose values are returned in place of the true ones."""
    closed: bool = False
    """True: only accounts, addresses and ids of these goals replace true values."""


def read_task_text(request: ChatRequest) -> str:
    """The first user message: the task of a worker, validator or sanitizer."""
    return next((text_of(message) for message in request.messages if message["role"] == "user"), "")


def play_worker(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The worker's next message: an obeyed goal's next call, or the extracted fields."""
    seen = _read_context(request)
    if seen is None:
        return assistant("{}")
    tools = frozenset(tool.name for tool in request.tools)
    # Drawn from the raw output, which is fixed, so that every step of this worker decides alike.
    goals = [goal for goal in knowledge.find_goals(seen.context, None) if knowledge.obeys(goal, seen.raw)]
    added = _find_adaptive_pair(seen.raw, goals)
    posed = _find_posed_value(seen.raw, goals)
    seen = replace(seen, closed=wants_closed_values(seen.raw))
    if seen.closed or (knowledge.options.reader is ReaderKind.HOSTILE and _has_fact(seen.intent, knowledge)):
        seen = replace(seen, served=goals)
    if added is None and posed is None and not seen.served:
        # The first call of an obeyed goal that has not been made yet; a refused call counts as made.
        doable = [goal for goal in goals if all(call.function in tools for call in goal.calls)]
        for goal in doable:
            for call in _list_remaining_calls(goal, seen.made):
                args = ground_arguments(call.args, goal.facts, [seen.context])
                return _make_call(replace(call, args=args), request)
    fields = {name: _extract_value(name, kind, seen, knowledge) for name, kind in seen.intent.items()}
    if posed is not None:
        fields |= {name: posed for name, kind in seen.intent.items() if kind == "string"}
    return assistant(json.dumps({**fields, **(added or {})}, ensure_ascii=False))


def _read_context(request: ChatRequest) -> WorkerContext | None:
    sections = prompts.read_sections(read_task_text(request), prompts.WORKER_SECTIONS)
    if sections is None:
        return None
    intent, trace, raw = sections
    own = [call for message in request.messages for call in message.get("tool_calls") or ()]
    made = [*json.loads(trace), *({"tool": call.function, "args": call.args} for call in own)]
    returned = [text_of(message) for message in request.messages if message["role"] == "tool"]
    return WorkerContext(raw, json.loads(intent), made, "\n".join([raw, *returned]))


def _has_fact(kind: Any, knowledge: SimulatedKnowledge) -> bool:
    """True if an intent asks for a known fact, which a false value could replace; a status is none."""
    return isinstance(kind, dict) and any(
        knowledge.find_fact(name) is not None or _has_fact(below, knowledge) for name, below in kind.items()
    )


def _list_remaining_calls(goal: GoalScript, made: Sequence[Mapping[str, Any]]) -> Iterator[ScriptedCall]:
    """Yield a goal's calls that are still to be made; one that the goal makes n times counts n times."""
    scripted = [{"tool": call.function, "args": call.args} for call in goal.calls]
    for index, call in enumerate(goal.calls):
        wanted = sum(_is_same_call(call, other, goal) for other in scripted[: index + 1])
        if sum(_is_same_call(call, other, goal) for other in made) < wanted:
            yield call


def _is_same_call(call: ScriptedCall, made: Mapping[str, Any], goal: GoalScript) -> bool:
    """True if a made call is the scripted one; arguments that depend on data read before may differ."""
    if made["tool"] != call.function:
        return False
    read = {name for name, value in call.args.items() for fact in goal.facts if fact.text in str(value)}
    fixed = call.args.keys() - {quote.arg for quote in call.quotes} - read
    return all(
        _format_argument(made.get("args", {}).get(key)) == _format_argument(call.args[key]) for key in fixed
    )


def _format_argument(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _make_call(call: ScriptedCall, request: ChatRequest) -> ChatAssistantMessage:
    number = sum(message["role"] == "assistant" for message in request.messages)
    args = {**call.args, INTENT_PARAMETER: {STATUS_FIELD: "string"}}
    return assistant(None, [FunctionCall(function=call.function, args=args, id=f"worker_{number}")])


def _find_adaptive_pair(raw: str, goals: Sequence[GoalScript]) -> dict[str, str] | None:
    """Parse the undeclared key and value that an adaptive payload asks for; None if the output asks for none.

    The value runs from the key to the end of the payload's goal.
    """
    opening = compile_words_pattern(EXTRA_KEY_OPENING).search(raw)
    if opening is None or not goals:
        return None
    rest = raw[opening.end() :].removeprefix(":")
    key = _KEY.match(rest)
    if key is None:
        return None
    return {key[1]: _cut_payload(rest[key.end() :], goals)}


def _find_posed_value(raw: str, goals: Sequence[GoalScript]) -> str | None:
    """Return the payload that the output presents as the text of its entry; None if there is none."""
    opening = compile_words_pattern(IN_FIELD_OPENING).search(raw)
    if opening is None or not goals:
        return None
    return _cut_payload(raw[opening.end() :].lstrip(":' \\\n"), goals)


def _cut_payload(body: str, goals: Sequence[GoalScript]) -> str:
    """Return the text up to the end of the last goal in it, on one line."""
    ends = [
        body.find(piece) + len(piece) for goal in goals for piece in find_instruction_spans(body, goal.goal)
    ]
    return " ".join(body[: max(ends, default=len(body))].split())


def _extract_value(name: str, kind: Any, seen: WorkerContext, knowledge: SimulatedKnowledge) -> Any:
    if isinstance(kind, dict):
        return {key: _extract_value(key, below, seen, knowledge) for key, below in kind.items()}
    if isinstance(kind, list):
        return []
    if name == STATUS_FIELD:
        return "done"
    fact = knowledge.find_fact(name)
    text = None
    if fact is not None:
        text = find_planted_value(fact.text, seen.served, closed=seen.closed)
        if text is None and (pointed := _point_at_text(fact, seen.raw)) is not None:
            return pointed
        text = find_fact(fact, seen.context) if text is None else text
    if text is None:
        return NOT_AVAILABLE
    if kind == "string" and not seen.served:
        return _find_field(text, seen, knowledge) if knowledge.options.verbatim else text
    return text if kind == "string" else _convert_text(text, kind)


def _point_at_text(fact: Fact, raw: str) -> str | None:
    """Return the mark that replaces the text holding a fact in a worker's view; None if the text is shown.

    A careful reader would pick the mark by its context; this one picks it by the text's length.
    """
    marks = [number for number, length in prompts.TEXT_MARK.findall(raw) if int(length or 0) == fact.inside]
    if not marks or fact.text in list_yaml_strings(raw):
        return None
    written = [f"<text {number}>" for number in marks]
    if len(marks) == 1 and fact.inside == len(fact.text):
        return written[0]
    return f"{NOT_AVAILABLE}, see {', '.join(written)}"


def _convert_text(text: str, kind: str) -> Any:
    try:
        value = json.loads(text.casefold() if kind == "boolean" else text)
    except ValueError:
        return None
    return value if isinstance(value, bool) is (kind == "boolean") else None


def _find_field(text: str, seen: WorkerContext, knowledge: SimulatedKnowledge) -> str:
    """Return the whole text around a value: a field of the output's YAML, else a line, else the whole context."""
    pieces = [*list_yaml_strings(seen.raw), *seen.context.splitlines()]
    return next((piece for piece in pieces if knowledge.is_grounded(text, piece)), seen.context)


def play_validator(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Answer True if the proposed call is a ground-truth call of the user task, but for the set error rates."""
    sections = prompts.read_sections(read_task_text(request), prompts.VALIDATOR_SECTIONS)
    if sections is None:
        return assistant("False")
    _, proposed, query = sections
    call = json.loads(proposed)
    task = knowledge.find_task(query)
    right = task is not None and any(_is_expected_call(call, known, task.facts) for known in task.calls)
    if task is None and knowledge.plays_freely:
        right = is_asked_for(call["args"], query)
    rate = knowledge.options.validator_false_deny if right else knowledge.options.validator_false_accept
    wrong = knowledge.draw(rate, validator.VALIDATOR_ROLE, proposed)
    return assistant(str(right is not wrong))


def _is_expected_call(call: Mapping[str, Any], expected: ScriptedCall, facts: Iterable[Fact]) -> bool:
    """True if tool and arguments match the ground truth; arguments that it leaves out may be anything.

    So may arguments with a number that is drawn anew in each case, which the validator does not see.
    """
    args, drawn = call["args"], [fact.text for fact in facts if fact.pattern]
    return call["tool"] == expected.function and all(
        key in args
        and (
            _normalise_argument(args[key]) == _normalise_argument(value)
            or any(text in str(value) for text in drawn)
        )
        for key, value in expected.args.items()
    )


def _normalise_argument(value: object) -> str:
    return " ".join(json.dumps(value, sort_keys=True, default=str).casefold().split())


@mark_quoting_role
def play_sanitizer(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Name the spans that hold a goal, each goal found with probability `sanitizer_recall`."""
    sections = prompts.read_sections(read_task_text(request), prompts.SANITIZER_SECTIONS)
    text = sections[0] if sections is not None else ""
    return assistant(json.dumps({"spans": find_injected_passages(text, sanitizer.SANITIZER_ROLE, knowledge)}))


def play_privileges(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Sort tools by the first word of their names; first repeat labels that their descriptions contain.

    A tool whose description mentions a URL is a command, as the prompt says of tools that fetch an address of the
    caller's choice. A rule of the simulation only.
    """
    sections = prompts.read_sections(read_task_text(request), prompts.PRIVILEGES_SECTIONS)
    tools = [json.loads(line) for line in sections[0].split("\n")] if sections and sections[0] else []
    labels = json.dumps({tool["name"]: _guess_privilege(tool).value for tool in tools})
    quoted = [
        value for tool in tools for value in find_json_values(tool["description"]) if "query" in str(value)
    ]
    return assistant("\n".join([*map(json.dumps, quoted), labels]))


def _guess_privilege(tool: Mapping[str, str]) -> Privilege:
    reads = has_reading_name(tool["name"])
    return Privilege.QUERY if reads and "url" not in tool["description"].casefold() else Privilege.COMMAND


SIMULATED_ROLES: Mapping[str, SimulatedRole] = MappingProxyType(
    {
        worker.WORKER_ROLE: play_worker,
        validator.VALIDATOR_ROLE: play_validator,
        sanitizer.SANITIZER_ROLE: play_sanitizer,
        privileges.PRIVILEGES_ROLE: play_privileges,
    }
)
"""Role -> handler."""
