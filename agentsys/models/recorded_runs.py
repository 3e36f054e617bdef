"""Recorded runs on disk: a pipeline's folder, and `RecordedRun`, one case with AgentDojo's message types.

Both forms are read: the old one, whose contents are strings, and the new one, whose contents are lists of
blocks. Our own records have the new form.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any, Literal, cast

import orjson
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, MessageContentBlock, text_content_block_from_string
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from agentsys.base.packed_json import read_json_bytes
from agentsys.errors import ConfigError, require_known_name


def find_pipeline_folder(name: str, traces: str | Path | None, pipeline: str | None) -> Path:
    """The one folder to replay from.

    Args:
        name: The model's name, for the message.
        traces: The folder of one pipeline's recorded runs, or one above it.
        pipeline: Name of the pipeline's folder, where `traces` holds several.

    Raises:
        ConfigError: If the folder is missing, holds no recorded runs, or holds several pipelines' and none
            is named.
    """
    if traces is None or str(traces) in ("", "???"):
        raise ConfigError(f"Model '{name}' needs the folder of the recorded runs: model.traces=FOLDER.")
    root = Path(traces).expanduser()
    if not root.is_dir():
        mend = "unpack it first (tar -xf)" if root.is_file() else "check the path"
        raise ConfigError(f"model.traces={root}: {'not a' if root.is_file() else 'no such'} folder; {mend}.")
    folders = find_pipeline_folders(root.resolve())
    if not folders:
        raise ConfigError(
            f"model.traces={root}: no recorded runs there"
            " (looked for PIPELINE/SUITE/USER_TASK/ATTACK/INJECTION.json); name the folder they are in."
        )
    names = sorted({folder.name for folder in folders})
    if pipeline is not None:
        require_known_name("pipeline", pipeline, names)
    chosen = [folder for folder in folders if pipeline in (None, folder.name)]
    if len(chosen) > 1:
        mend = "give model.traces=FOLDER of one" if pipeline else "name one: model.pipeline=NAME"
        raise ConfigError(
            f"model.traces={root} holds several pipelines ({', '.join(map(str, chosen))}); {mend}."
        )
    return chosen[0]


def digest_records(folder: Path, attack: str) -> str:
    """A digest (names and contents) of one attack's recorded runs in a pipeline's folder; `none`: the benign ones."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob(f"*/*/{escape(attack)}/*.json")):
        try:
            content = read_json_bytes(path)
        except (OSError, ValueError):  # that case says so itself
            content = b""
        digest.update(path.relative_to(folder).as_posix().encode("utf-8", "surrogateescape") + b"\0")
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()[:16]


def find_pipeline_folders(root: Path) -> list[Path]:
    """The folders at or below `root` that hold `<suite>/<task>/<attack>/<injection>.json`, sorted.

    A folder known to be one is not searched further, so the cost does not grow with the number of records.
    """
    pipelines: set[Path] = set()
    for folder, subfolders, files in os.walk(root):
        here = Path(folder)
        if any(parent in pipelines for parent in (here, *here.parents)):
            subfolders.clear()
            continue
        subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
        # `<pipeline>` of `<pipeline>/<suite>/<task>/<attack>`, unless it is above `root`.
        if any(name.endswith(".json") for name in files) and len(here.relative_to(root).parts) >= 3:
            pipelines.add(here.parents[2])
    return sorted(pipelines)


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
    judges_thoughts: bool
    """Whether it was scored with the model's thoughts, as all runs of others were."""


def read_run(path: Path) -> RecordedRun:
    """Read one recorded case.

    Raises:
        FileNotFoundError: If there is no such file.
        UnreadableRun: If the file is not JSON, or not a recorded run of AgentDojo.
    """
    try:
        stored = _StoredRun.model_validate(orjson.loads(read_json_bytes(path)))
        messages = tuple(_parse_message(raw) for raw in stored.messages)
    except ValidationError as error:
        raise UnreadableRun(_write_validation_message(error)) from None
    except (ValueError, UnreadableRun) as error:
        raise UnreadableRun(str(error)) from None
    name = stored.pipeline_name or ""
    block = stored.agentsys if isinstance(stored.agentsys, dict) else {"judges_thoughts": True}
    model_id = "simulated" if block.get("simulated") is True else name
    scores = stored.utility, stored.security, block.get("judges_thoughts") is True
    return RecordedRun(path, name, model_id, stored.injections, messages, *scores)


def parse_recorded_messages(stored: object) -> tuple[ChatMessage, ...]:
    """A stored list of messages, old form or new, in AgentDojo's types.

    Raises:
        UnreadableRun: If it is not such a list.
    """
    try:
        return tuple(_parse_message(raw) for raw in _MESSAGES.validate_python(stored))
    except ValidationError as error:
        raise UnreadableRun(_write_validation_message(error)) from None


def _write_validation_message(error: ValidationError) -> str:
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
    return cast(ChatMessage, {"role": stored.role, "content": content or []})


def _parse_blocks(content: str | list[dict[str, Any]] | None) -> list[MessageContentBlock] | None:
    if content is None:
        return None
    if isinstance(content, str):
        return [text_content_block_from_string(content)]
    if not all(isinstance(one.get(key), str) for one in content for key in ("type", "content")):
        raise UnreadableRun("a content block has no type or no text")
    return cast(list[MessageContentBlock], content)


FORMER_TOOLS = {"click_the_link": "browse_webpage"}
"""Name in recorded runs -> name now; both take the same arguments and return the same.

AgentDyn's published runs have a tool that follows links; at commit 5353cf7 the one that opens pages does so.
"""


def pick_current_tool_name(function: str, offered: Collection[str]) -> str:
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
    name = pick_current_tool_name(call.function, offered)
    return call if name == call.function else call.model_copy(update={"function": name})
