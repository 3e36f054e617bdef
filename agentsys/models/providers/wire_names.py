"""Names of tools and parameters as every provider takes them, and back.

Tools of MCP servers may be called `files.read`, their parameters `max-results`, and a model may call what no
provider takes back in the history. Such names alone are written otherwise on the wire.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec
from agentsys.models.providers.wire_parts import as_mapping

_TAKEN_TOOL = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_TAKEN_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NOT_TAKEN = re.compile(r"[^A-Za-z0-9_]")
_LONGEST = 64


@dataclass(frozen=True)
class WireNames:
    """Names of one request as they are written on the wire."""

    tools: Mapping[str, str]
    """Name of a tool -> its name on the wire."""
    parameters: Mapping[str, Mapping[str, str]]
    """Name of a tool -> the same of its parameters, for tools with any that are not taken."""

    @classmethod
    def find(cls, request: ChatRequest) -> WireNames | None:
        """The names of a request; None where all are taken as they are."""
        offered = {tool.name: tuple(as_mapping(tool.parameters.get("properties"))) for tool in request.tools}
        parameters = {
            tool: written
            for tool, names in offered.items()
            if (written := _write_names(names, _TAKEN_PARAMETER))
        }
        called = [call.function for message in request.messages for call in _list_calls(message)]
        names = tuple(dict.fromkeys([*offered, *called]))
        tools = _write_names(names, _TAKEN_TOOL)
        return cls(tools or {name: name for name in names}, parameters) if tools or parameters else None

    def write_request(self, request: ChatRequest) -> ChatRequest:
        """The request with the names of the wire."""
        return replace(
            request,
            tools=[self._write_tool(tool) for tool in request.tools],
            messages=[self._write_message(message) for message in request.messages],
        )

    def read_reply(self, reply: ChatReply) -> ChatReply:
        """The reply with the names of the request."""
        tools = {written: name for name, written in self.tools.items()}
        calls = []
        for call in reply.message["tool_calls"] or ():
            name = tools.get(call.function, call.function)
            own = {written: known for known, written in self.parameters.get(name, {}).items()}
            calls.append(_rename_call(call, name, own))
        return replace(reply, message={**reply.message, "tool_calls": calls or None})

    def _write_tool(self, tool: ToolSpec) -> ToolSpec:
        schema, names = tool.parameters, self.parameters.get(tool.name)
        if names is not None:
            renamed = {names[name]: value for name, value in schema["properties"].items()}
            required = [names.get(name, name) for name in schema.get("required", ())]
            schema = {**schema, "properties": renamed, **({"required": required} if required else {})}
        return replace(tool, name=self.tools[tool.name], parameters=schema)

    def _write_message(self, message: ChatMessage) -> ChatMessage:
        if message["role"] == "assistant" and message["tool_calls"]:
            return {**message, "tool_calls": [self._write_call(call) for call in message["tool_calls"]]}
        if message["role"] == "tool":
            return {**message, "tool_call": self._write_call(message["tool_call"])}
        return message

    def _write_call(self, call: FunctionCall) -> FunctionCall:
        return _rename_call(
            call, self.tools.get(call.function, call.function), self.parameters.get(call.function, {})
        )


def _rename_call(call: FunctionCall, name: str, parameters: Mapping[str, str]) -> FunctionCall:
    args = {parameters.get(key, key): value for key, value in call.args.items()}
    return call.model_copy(update={"function": name, "args": args})


def _list_calls(message: ChatMessage) -> Iterable[FunctionCall]:
    if message["role"] == "tool":
        return [message["tool_call"]]
    return (message["tool_calls"] or ()) if message["role"] == "assistant" else ()


@lru_cache(maxsize=10_000)
def _write_names(known: tuple[str, ...], taken: re.Pattern[str]) -> Mapping[str, str]:
    """Each name as it is written: as it is where it is taken, otherwise as one that none of the others has.

    Empty where all are taken.
    """
    written = {name: name for name in known if taken.fullmatch(name)}
    if len(written) == len(known):
        return {}
    for name in known:
        if name not in written:
            plain = _NOT_TAKEN.sub("_", name)[: _LONGEST - 4]
            plain = plain if taken.fullmatch(plain) else f"_{plain}"
            tries = (plain if number == 1 else f"{plain}_{number}" for number in range(1, len(known) + 2))
            written[name] = next(one for one in tries if one not in written.values())
    return written
