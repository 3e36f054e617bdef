"""`RecordedRun`: one stored case in AgentDojo's JSON, with its messages in AgentDojo's types.

Both forms are read: the old one, whose contents are strings, and the new one, whose contents are
lists of blocks. Our own records have the new form.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import orjson
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, MessageContentBlock, text_content_block_from_string
from pydantic import BaseModel, Field, TypeAdapter, ValidationError


class UnreadableRun(Exception):
    """A file that is no recorded run; the message says why in one line."""


class _StoredMessage(BaseModel):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[FunctionCall] | None = None
    tool_call: FunctionCall | None = None
    tool_call_id: str | None = None
    error: str | None = None


class _StoredRun(BaseModel):
    pipeline_name: str | None = None
    injections: dict[str, str] = Field(default_factory=dict)
    messages: list[_StoredMessage]
    utility: bool | None = None
    security: bool | None = None
    agentsys: Any = None
    """Our own block, where we wrote the file."""


_MESSAGES = TypeAdapter(list[_StoredMessage])


@dataclass(frozen=True)
class RecordedRun:
    """The messages and results of a recorded case."""

    path: Path
    """The file it was read from."""
    pipeline_name: str
    """The pipeline's name as recorded."""
    model_id: str
    """What really answered: the pipeline's name, or `simulated` where our record says so."""
    injections: Mapping[str, str]
    """Injection vector -> text; empty in benign cases."""
    messages: tuple[ChatMessage, ...]
    """The whole conversation. Shared between readers: never change it in place."""
    utility: bool | None
    """The recorded score; None where the run was not scored."""
    security: bool | None
    """The recorded score, in AgentDojo's sense: True means that the injection task was carried out."""


def read_run(path: Path) -> RecordedRun:
    """Read one recorded case.

    Raises:
        FileNotFoundError: If there is no such file.
        UnreadableRun: If the file is not JSON, or not a recorded run of AgentDojo.
    """
    try:
        stored = _StoredRun.model_validate(orjson.loads(path.read_bytes()))
        messages = tuple(_parse_message(raw) for raw in stored.messages)
    except ValidationError as error:
        raise UnreadableRun(_validation_message(error)) from None
    except (orjson.JSONDecodeError, UnreadableRun) as error:
        raise UnreadableRun(str(error)) from None
    name = stored.pipeline_name or ""
    simulated = isinstance(stored.agentsys, dict) and stored.agentsys.get("simulated") is True
    model_id = "simulated" if simulated else name
    return RecordedRun(path, name, model_id, stored.injections, messages, stored.utility, stored.security)


def parse_recorded_messages(stored: object) -> tuple[ChatMessage, ...]:
    """A stored list of messages, old form or new, in AgentDojo's types.

    Raises:
        UnreadableRun: If it is not such a list.
    """
    try:
        return tuple(_parse_message(raw) for raw in _MESSAGES.validate_python(stored))
    except ValidationError as error:
        raise UnreadableRun(_validation_message(error)) from None


def _validation_message(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "the top level"
    return f"{first['msg']} at {where}"


def _parse_message(stored: _StoredMessage) -> ChatMessage:
    """One message in AgentDojo's types; texts, blocks, calls and ids are kept as they are."""
    content = _parse_blocks(stored.content)
    if stored.role == "assistant":
        return {"role": "assistant", "content": content, "tool_calls": stored.tool_calls}
    if stored.role == "tool":
        if stored.tool_call is None:
            raise UnreadableRun("a tool message does not say which call it answers")
        return {
            "role": "tool",
            "content": content or [],
            "tool_call_id": stored.tool_call_id,
            "tool_call": stored.tool_call,
            "error": stored.error,
        }
    if stored.role == "system":
        return {"role": "system", "content": content or []}
    return {"role": "user", "content": content or []}


def _parse_blocks(content: str | list[dict[str, Any]] | None) -> list[MessageContentBlock] | None:
    """Content blocks of a string (old form), of blocks (new form), or of nothing."""
    if content is None:
        return None
    if isinstance(content, str):
        return [text_content_block_from_string(content)]
    return [cast(MessageContentBlock, _check_block(block)) for block in content]


def _check_block(block: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(block.get("type"), str) or not isinstance(block.get("content"), str):
        raise UnreadableRun("a content block has no type or no text")
    return block


FORMER_TOOLS = {"click_the_link": "browse_webpage"}
"""Name in recorded runs -> name now; both take the same arguments and return the same.

AgentDyn's published runs have a tool that follows links; at commit 5353cf7 the one that opens pages does so.
"""


def current_tool_name(function: str, offered: Collection[str]) -> str:
    """The tool's name where tools of these names are on offer."""
    today = FORMER_TOOLS.get(function, function)
    return today if function not in offered and today in offered else function


def rename_former_tools(messages: Sequence[ChatMessage], offered: Collection[str]) -> tuple[ChatMessage, ...]:
    """A record's messages with every tool under the name it has among those on offer."""
    return tuple(_rename_in_message(message, offered) for message in messages)


def _rename_in_message(message: ChatMessage, offered: Collection[str]) -> ChatMessage:
    if message["role"] == "assistant" and message["tool_calls"]:
        return {**message, "tool_calls": [_rename_call(call, offered) for call in message["tool_calls"]]}
    if message["role"] == "tool":
        return {**message, "tool_call": _rename_call(message["tool_call"], offered)}
    return message


def _rename_call(call: FunctionCall, offered: Collection[str]) -> FunctionCall:
    name = current_tool_name(call.function, offered)
    return call if name == call.function else call.model_copy(update={"function": name})
