"""One action a reply, as a fenced JSON object, for agents that are told in the prompt what they can do.

An agent of this kind has tools of its own, told with their schemas, and knows others by name only. A reply
holds one action, what came of it stands in the next user message. Like `tagged_calls`, this is one layout
with its exact inverse, so that the simulated model can speak it too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.models.chat import ToolSpec
from agentsys.models.errors import ModelError
from agentsys.models.providers.wire_text import clean_json
from agentsys.models.tagged_calls import text_between_tags, to_json_lines, wrap_in_tag

OWN, OTHERS = "own_tools", "other_functionalities"
"""Tags around what an agent can do by itself, and around what it can ask others for."""
QUESTION, REQUEST = "question", "functionality_request"
"""Tags around what a user asks, and around what another agent asks."""
OBSERVATION_WORD = "Observation"
"""Begins what came of an action, and ends a reply: what a model writes from this word on is not read."""
FINISH_ACTION = "Final Answer"
"""Names the action that ends the work; its input is the answer."""

REPEAT_PREFIX = "Send this again"
"""Begins an observation on an action that was not taken because of its form."""

_FENCED_BLOCK = re.compile(r"```(?:json\b)?\s*([\[{].*?)```", re.DOTALL | re.IGNORECASE)
_UNREADABLE = (ValueError, RecursionError, MemoryError)


class ActionSyntaxError(ValueError):
    """A fenced block that holds no action."""


@dataclass(frozen=True)
class Action:
    """What a reply says is to be done."""

    name: str
    """A tool, a functionality of another agent, or `FINISH`."""
    input: Any
    """JSON data: the arguments, or the answer."""


def write_action(action: Action, thought: str = "") -> str:
    """A reply: a thought, if any, and one action."""
    block = json.dumps({"action": action.name, "action_input": action.input}, ensure_ascii=False, default=str)
    said = f"Thought: {thought}\n" if thought else ""
    return f"{said}Action:\n```json\n{block}\n```"


def text_before_observation(text: str) -> str:
    """What counts of a reply: everything before the word that only the other side may write."""
    return text.partition(OBSERVATION_WORD)[0].strip()


def read_action(text: str) -> Action | None:
    """The action in a reply: its first fenced block, of a list the first item; None without such a block.

    Raises:
        ActionSyntaxError: If the block is not JSON, or names no action.
    """
    found = find_json_block(text)
    if found is None:
        return None
    try:
        value = clean_json(json.loads(found, strict=False))
    except (*_UNREADABLE, ModelError):
        raise ActionSyntaxError("the block is not JSON") from None
    if isinstance(value, list) and value:
        value = value[0]
    name = value.get("action") if isinstance(value, dict) else None
    if not isinstance(name, str):
        raise ActionSyntaxError("the block names no action")
    return Action(name, value.get("action_input", {}))


def find_json_block(text: str) -> str | None:
    """The inside of the first fenced block that begins as JSON does; None where there is none."""
    match = _FENCED_BLOCK.search(text)
    return match[1] if match is not None else None


def write_offer(own: Sequence[ToolSpec], others: Mapping[str, str]) -> str:
    """What an agent can do: a line of JSON for each of its tools, and one for each name it can ask for."""
    known = [{"name": name, "description": text} for name, text in others.items()]
    return "\n\n".join([wrap_in_tag(OWN, to_json_lines(tool.json_object for tool in own)), wrap_in_tag(OTHERS, to_json_lines(known))])


def read_offer(text: str) -> list[ToolSpec] | None:
    """What `write_offer` wrote into a text, None if nothing; names known from others have no parameters."""
    parts = [text_between_tags(text, OWN), text_between_tags(text, OTHERS)]
    if None in parts:
        return None
    try:
        rows = [json.loads(line) for part in parts for line in (part or "").strip().splitlines()]
        return [ToolSpec(row["name"], row["description"], row.get("parameters", {})) for row in rows]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # somebody else's system message


def write_request(name: str, args: Mapping[str, Any]) -> str:
    """What another agent asks for, as a model reads it: `name(key=value, ...)`, values in JSON."""
    given = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in args.items())
    return wrap_in_tag(REQUEST, f"{name}({given})")


def read_request(text: str) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of the request that `write_request` wrote into this text; None if there is none."""
    name, bracket, rest = (text_between_tags(text, REQUEST) or "").strip().partition("(")
    if not bracket:
        return None
    args: dict[str, Any] = {}
    decoder = json.JSONDecoder()
    while rest and rest != ")":
        key, _, rest = rest.partition("=")
        try:
            args[key.strip(", ")], end = decoder.raw_decode(rest)
        except _UNREADABLE:
            return None
        rest = rest[end:]
    return name, args


def write_observation(text: str) -> str:
    """What came of an action, for the next user message."""
    return f"{OBSERVATION_WORD}: {text}"


def read_observation(text: str) -> str | None:
    """The inside of what `write_observation` wrote; None if it is no observation."""
    opening = f"{OBSERVATION_WORD}: "
    return text.removeprefix(opening) if text.startswith(opening) else None
