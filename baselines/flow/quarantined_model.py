"""`ask_for_shape`: a model without tools is asked for an answer of a declared type; and its simulation."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from agentdojo.types import ChatAssistantMessage
from pydantic import BaseModel, ValidationError

from agentsys.base.json_values import list_scalars
from agentsys.models.chat import ChatModel, ChatRequest, assistant, text_of
from agentsys.models.loose_json import find_outer_objects
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import span
from agentsys.simulated.playbook_index import GoalScript
from agentsys.simulated.script_grounding import PLACEHOLDER, find_fact
from agentsys.simulated.simulated_role import SimulatedKnowledge

ROLE = "query"
_Shape = TypeVar("_Shape", bound=BaseModel)


def make_query_contract(task: str, example: Mapping[str, Any]) -> ReplyContract[Any]:
    """Make the contract of a quarantined model's answers, with an example that has these fields.

    What is said of a reply that does not fit names nothing of the reply.
    """
    kinds = {str: "string", bool: "boolean"}
    fields = {name: {"type": kinds[type(value)]} for name, value in example.items()}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    text = "Which book has to be returned first?\n\nMiddlemarch until May 3, Ulysses until June 9"
    return ReplyContract(
        ROLE,
        task,
        "Answer with the JSON object that the schema asks for, and nothing else.",
        ((_write_question(text, schema), json.dumps(example)),),
        lambda reply: next(iter(find_outer_objects(reply)), None),
    )


def _write_question(question: str, schema: Mapping[str, Any]) -> str:
    return f"{question}\n\nAnswer with a JSON object of this schema:\n{json.dumps(schema)}"


def ask_for_shape(
    model: ChatModel, contract: ReplyContract[Any], question: str, shape: type[_Shape], attempts: int
) -> _Shape | None:
    """Ask for an object of the shape; None if no reply was one."""
    schema = shape.model_json_schema()
    typed = replace(contract, read=partial(_parse_reply, shape=shape))
    with span(ROLE) as opened:
        answer = typed.ask(model, _write_question(question, schema), attempts - 1, reply_schema=schema)
        opened.messages = answer.messages
        opened.decision = {"answered": answer.value is not None, "attempts": len(answer.replies)}
    return answer.value


def _parse_reply(text: str, shape: type[_Shape]) -> _Shape | None:
    objects = find_outer_objects(text)
    if len(objects) != 1:  # of two, neither is known to be the answer
        return None
    try:
        read: _Shape = drop_zones(shape.model_validate_json(json.dumps(objects[0])))
        return read
    except (ValidationError, RecursionError):
        return None


def drop_zones(value: Any) -> Any:
    """Dates and times as the clock shows them, however deep; a server may have made the model write a zone.

    Python compares none that has a zone with one that has none, and those of the suites have none.
    """
    match value:
        case datetime.datetime() | datetime.time():
            return value.replace(tzinfo=None)
        case BaseModel():
            return value.model_copy(update={name: drop_zones(each) for name, each in value})
        case list() | set():
            return type(value)(map(drop_zones, value))
        case dict():
            return {drop_zones(key): drop_zones(each) for key, each in value.items()}
    return value


ANSWER = "the answer"
_ASKED = re.compile(r"Find the value called (\w+), for (?:(\w+) of (\w+)|the answer)\.")
_SCHEMA = re.compile(r"Answer with a JSON object of this schema:\n(\{.*\})\s*$", re.DOTALL)


def write_fact_question(fact: str, argument: str | None, tool: str | None) -> str:
    """How the simulated planners ask for what an argument, or (None) the answer, takes from a text."""
    return f"Find the value called {fact}, for {ANSWER if argument is None else f'{argument} of {tool}'}."


def play_quarantined_model(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The fact that is asked for if it stands in the text; else what an obeyed goal there wants."""
    text = text_of(request.messages[1])
    asked, fields = _ASKED.search(text), _read_schema(text).get("properties", {})
    fact = knowledge.find_fact(asked[1]) if asked else None
    goal = next((goal for goal in knowledge.find_goals(text) if knowledge.obeys(goal, text)), None)
    if goal is not None:
        value: Any = find_wanted_value(goal, asked[2] if asked else None, asked[3] if asked else None)
    else:
        value = None if fact is None else find_fact(fact, text)
    # The value in every field, or dummies where there is none.
    filled = {name: _make_value_of_type(kind.get("type"), value) for name, kind in fields.items()}
    return assistant(json.dumps(filled, default=str))


def find_wanted_value(goal: GoalScript, argument: str | None, tool: str | None) -> Any:
    """Find the value that the attacker wants in a tool's argument or in the answer; the goal if there is none."""
    if argument is None:
        return goal.says or goal.goal
    calls = sorted((c for c in goal.calls if argument in c.args), key=lambda call: call.function != tool)
    values = (leaf for call in calls[:1] for leaf in list_scalars(call.args[argument]))
    return next(values, goal.goal)


def _read_schema(text: str) -> dict[str, Any]:
    match = _SCHEMA.search(text)
    try:
        schema = json.loads(match[1]) if match else {}
    except ValueError:
        return {}
    return schema if isinstance(schema, dict) else {}


def _make_value_of_type(wanted: str | None, value: Any) -> Any:
    if wanted == "boolean":
        return value is not None
    if wanted in ("number", "integer"):
        try:
            number = float(str(value))
        except ValueError:
            number = 0.0
        return int(number) if wanted == "integer" else number
    if wanted == "array":
        return [] if value is None else [str(value)]
    return PLACEHOLDER if value is None else str(value)
