"""`AnswerForm`: an answer that a client wants as JSON. The agent's whole reply is it, or there is none.

Nothing is looked for in prose: an object that an agent quotes may be an attacker's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from agentsys.models.chat import JsonSchema, ToolSpec
from agentsys.models.untrusted import UserRequest
from agentsys_plugins.serve.served_model.json_check import find_misfit

ASK_AGAIN = "Give that answer again, as one JSON value of this schema and nothing else:"
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)


@dataclass(frozen=True)
class AnswerForm:
    """The schema of an answer."""

    schema: JsonSchema
    tool: ToolSpec | None
    """The client's answer schema, as which it is handed out; None: it is the reply's text."""

    def read(self, said: str, owner: str) -> Any:
        """The value that a reply is; None if it is none of this schema, or more than one."""
        raw = orjson.dumps(self.schema)
        value = parse_whole(said)
        if value is None and self.tool is not None and len(self.tool.arguments) == 1 and said.strip():
            value = dict.fromkeys(self.tool.arguments, said)  # Words, where a text is all that is asked for.
        if value is None or (self.tool is not None and not isinstance(value, dict)):
            return None
        return value if find_misfit(raw, value, owner) is None else None


def parse_whole(said: str) -> Any:
    """The JSON value that a text is, but for white space and one fence around it; None if it is none.

    An object that has a name twice is two objects that differ.
    """
    text = said.strip()
    fenced = _FENCE.fullmatch(text)
    try:
        return json.loads(fenced[1] if fenced else text, object_pairs_hook=_read_pairs)
    except (ValueError, RecursionError):
        return None


def _read_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return read


def list_untrusted_fields(value: Any, believed: str, schema: JsonSchema) -> tuple[str, ...]:
    """JSON pointers of the texts in an answer that may be a tool's, or made of what tools gave.

    Every text and every name is one that stands neither, as whole words, in what the user and who set the agent up
    said nor in the client's schema.
    """
    own, named = UserRequest(believed), set(_walk_schema(schema))
    leaves = ((at, " ".join(text.split())) for at, text in _walk_texts(value, ""))
    return tuple(
        dict.fromkeys(at for at, text in leaves if text and text not in named and not own.says(text))
    )


def _walk_texts(value: Any, at: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from _walk_texts(one, f"{at}/{number}")
    elif isinstance(value, dict):
        for name, one in value.items():
            place = f"{at}/{name.replace('~', '~0').replace('/', '~1')}"
            yield place, name
            yield from _walk_texts(one, place)


def _walk_schema(schema: Any) -> Iterator[str]:
    """Names and texts of a schema: those of its properties, enumerations and constants, and more."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield " ".join(part.split())
        elif isinstance(part, Mapping):
            waiting += [*part, *part.values()]
        elif isinstance(part, list):
            waiting += part
