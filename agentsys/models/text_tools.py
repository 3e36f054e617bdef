"""Tools through text: for models whose server has no tool calls, or whose results need a role of their own.

The tools stand in the system message, a call is text in the reply, and its result goes back as a message.
Only what the model itself wrote is read for calls: a call that stands in a result is none.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage, ChatToolResultMessage

from agentsys.base.json_values import to_json_bytes
from agentsys.models.chat import ChatRequest, ModelError, ToolSpec, text_of
from agentsys.models.prompted_tools import to_json_lines
from agentsys.models.providers.wire_parts import (
    clean_json,
    parse_json,
    read_result_text,
    write_arguments_json,
)
from agentsys.models.thought_text import split_all_thoughts

ProtocolName = Literal["agentdojo", "agentdojo+", "llama3", "hermes"]
ToolRole = Literal["tool", "user", "input", "ipython"]

MALFORMED_CALL = "malformed_call"
"""Tool that a call is made to which cannot be read: there is none of this name, so the model is told."""
_KEPT_CHARS = 500
"""How much is kept of a call that cannot be read."""


def make_unread_call(written: str, call_id: str | None = None) -> FunctionCall:
    """The call that stands for one that cannot be read, which began like this."""
    return FunctionCall(function=MALFORMED_CALL, args={"text": written[:_KEPT_CHARS]}, id=call_id)


def explain_unread_call(call: FunctionCall) -> str | None:
    """Explain an unreadable call to the model that wrote it; None if the call could be read.

    Nothing of what was written is repeated.
    """
    if call.function != MALFORMED_CALL:
        return None
    written = str(call.args.get("text", ""))
    opened = max(written.find("{"), 0)
    try:
        json.loads(written[opened:])
        fault = "it does not name a tool and its arguments"
    except json.JSONDecodeError as error:
        fault = f"as JSON it is wrong at character {opened + error.pos + 1} ({error.msg})"
        if len(written) == _KEPT_CHARS and (
            error.pos + opened >= _KEPT_CHARS or error.msg[:12] == "Unterminated"
        ):
            fault = f"as JSON it is wrong somewhere behind its first {_KEPT_CHARS} characters"
        fault = fault if "{" in written else "it holds no JSON object"
    except RecursionError:
        fault = "its JSON is too deep"
    return (
        f"Your call could not be read, so nothing ran: {fault}. Write the tool's name and all arguments as one"
        " JSON object, with values that are worked out and without remarks."
    )


@dataclass(frozen=True)
class TextProtocol:
    """One way to write tools, calls and results as text."""

    format_system: Callable[[str, Sequence[ToolSpec]], str]
    """(the system message, the tools, at least one) -> the system message with both."""
    format_turn: Callable[[ChatAssistantMessage], str]
    """A turn of the model as it is shown again."""
    format_result: Callable[[ChatToolResultMessage], str]
    """The result of a call."""
    parse_calls: Callable[[str], list[FunctionCall]]
    """A reply -> its calls, in order."""
    tool_role: ToolRole
    """Role of results unless a YAML says another."""
    lenient: bool = False
    """Whether arguments may stand one level down, or alone in a fence beside prose that names the tool."""


def build_text_tool_messages(
    request: ChatRequest, protocol: TextProtocol, tool_role: ToolRole | None, *, alternate: bool = False
) -> list[dict[str, Any]]:
    """The conversation, tools included, neighbours of one role as one message where turns have to `alternate`.

    Without a system message the tools are nowhere to be seen.
    """
    wires = [_build_wire_message(message, request, protocol, tool_role) for message in request.messages]
    if not alternate:
        return wires
    turns = [
        (role, [each["content"] for each in group]) for role, group in groupby(wires, itemgetter("role"))
    ]
    return [{"role": role, "content": "\n\n".join(contents)} for role, contents in turns]


def _build_wire_message(
    message: ChatMessage, request: ChatRequest, protocol: TextProtocol, tool_role: ToolRole | None
) -> dict[str, Any]:
    match message["role"]:
        case "system":
            text = text_of(message)
            return {
                "role": "system",
                "content": protocol.format_system(text, request.tools) if request.tools else text,
            }
        case "tool":
            return {"role": tool_role or protocol.tool_role, "content": protocol.format_result(message)}
        case "assistant":
            return {"role": "assistant", "content": protocol.format_turn(message)}
        case _:
            return {"role": "user", "content": _join_blocks(message)}


def with_parsed_calls(
    message: ChatAssistantMessage, request: ChatRequest, protocol: TextProtocol
) -> ChatAssistantMessage:
    """A reply with the calls that its text holds; the text stays as it was written, calls included.

    What a model considers in thoughts that stand in the text is no call.
    """
    if not request.tools or request.tool_choice == "none":
        return message
    text = split_all_thoughts(text_of(message), unclosed=True).text
    calls = protocol.parse_calls(text)
    if protocol.lenient:
        fields = {tool.name: frozenset(tool.arguments) for tool in request.tools}
        calls = [_unwrap_arguments(call, fields.get(call.function, frozenset())) for call in calls]
        calls = calls or _parse_bare_arguments(text, request)
    return {**message, "tool_calls": calls or None}


def _unwrap_arguments(call: FunctionCall, fields: Set[str]) -> FunctionCall:
    """The call with arguments that a model wrote one level down, as in {"params": {"city": "Rome"}}."""
    wrapped = [value for name, value in call.args.items() if name not in fields]
    if (
        len(call.args) != 1
        or not wrapped
        or not isinstance(wrapped[0], dict)
        or not wrapped[0].keys() <= fields
    ):
        return call
    return call.model_copy(update={"args": wrapped[0]})


_FENCED_OBJECT = re.compile(r"```\w*\s*(\{.*?\})\s*```", re.DOTALL)


def _parse_bare_arguments(text: str, request: ChatRequest) -> list[FunctionCall]:
    """The call in a reply's first fence: arguments alone, of the one tool that the prose before names in backticks.

    None where the arguments are not that tool's, or the call was made before: then the reply tells of it. What later
    fences hold was written before anything came back.
    """
    fenced = _FENCED_OBJECT.search(text)
    args = None if fenced is None else _parse_object(_drop_remarks(fenced[1]))
    if fenced is None or not args:
        return []
    named = [tool for tool in request.tools if f"`{tool.name}`" in text[: fenced.start()]]
    if len(named) != 1:
        return []
    # The tool's own arguments, none that it needs left out.
    if not set(named[0].required) <= args.keys() <= named[0].arguments.keys():
        return []
    call = FunctionCall(function=named[0].name, args=clean_json(args))
    before = [
        made for turn in request.messages if turn["role"] == "assistant" for made in turn["tool_calls"] or ()
    ]
    known = any((made.function, dict(made.args)) == (call.function, dict(call.args)) for made in before)
    return [] if known else [call]


def compute_request_seed(messages: object) -> int:
    """A seed for a request, the same for the same one: 0 to 1,000,000, as AgentDojo draws it at random."""
    return zlib.crc32(to_json_bytes(messages)) % 1_000_001


def _join_blocks(message: ChatMessage) -> str:
    """AgentDojo's way: each block's text and a blank line, without blanks at either end."""
    blocks = message["content"] or ()
    return "".join(f"{block['content']}\n\n" for block in blocks if block["type"] == "text").strip()


# ---- AgentDojo's own, of its element for local models (0.1.35)


def _write_agentdojo_system(text: str, tools: Sequence[ToolSpec]) -> str:
    # AgentDojo is pinned, and published runs were made with its prompt. Imported here: it loads openai.
    from agentdojo.agent_pipeline.llms.local_llm import _tool_calling_prompt

    prompt: str = _tool_calling_prompt.format(
        functions="".join(json.dumps(tool.json_object, indent=2) + "\n\n" for tool in tools)
    )
    return f"{prompt}\n\n## Additional Instructions\n\n{text}" if text else prompt


def _write_agentdojo_result(message: ChatToolResultMessage) -> str:
    if message["error"] is not None:
        return json.dumps({"error": message["error"]})
    # The list of blocks itself, as AgentDojo's element sends it; thoughts no tool has.
    return json.dumps({"result": message["content"]})


def read_agentdojo_tools(text: str) -> tuple[list[ToolSpec], str] | None:
    """The tools of a system message in AgentDojo's protocol, and what else it says; None if it is another."""
    if _CLOSING not in text:
        return None
    from agentdojo.agent_pipeline.llms.local_llm import _tool_calling_prompt

    head, _, after = _tool_calling_prompt.partition("{functions}")
    listed, separator, rest = text.removeprefix(head).partition(after.format())
    if not text.startswith(head) or not separator:
        return None
    rows = list(iterate_json_values(listed))
    instructions = rest.partition("## Additional Instructions")[2].strip()
    return [ToolSpec(row["name"], row["description"], row["parameters"]) for row in rows], instructions  # type: ignore[index]


def write_agentdojo_call(call: FunctionCall) -> str:
    """A call as text, in AgentDojo's protocol."""
    return f"<function={call.function}>{write_arguments_json(call)}{_CLOSING}"


_OPENING = re.compile(r"<function\s*=\s*([^>]+)>")
_CLOSING = "</function>"


def _parse_first_call(text: str) -> list[FunctionCall]:
    """The first call alone, its arguments up to the first closing tag; none where they are no JSON object."""
    opened = _OPENING.search(text)
    if opened is None:
        return []
    args = _parse_object(text[opened.end() :].partition(_CLOSING)[0].strip())
    return [] if args is None else [FunctionCall(function=opened.group(1).strip(), args=args)]


def _parse_every_call(text: str) -> list[FunctionCall]:
    """Every call; arguments may hold a closing tag, and one that cannot be read is told to the model."""
    calls, end = [], 0
    while (opened := _OPENING.search(text, end)) is not None:
        args, end = _parse_until_closing_tag(text, opened.end())
        if args is None:
            calls.append(make_unread_call(text[opened.start() : end]))
        else:
            calls.append(FunctionCall(function=opened.group(1).strip(), args=args))
    return calls


_MAX_CLOSING_TAGS = 20
"""Closing tags tried for one call."""


def _parse_until_closing_tag(text: str, start: int) -> tuple[dict[str, Any] | None, int]:
    """The arguments, and where the call ends; without readable ones it ends at its first closing tag."""
    ends = [match.start() for match in re.finditer(re.escape(_CLOSING), text[start:])][:_MAX_CLOSING_TAGS]
    for end in [*ends, len(text) - start]:
        args = _parse_object(text[start : start + end].strip())
        if args is not None:
            return args, min(start + end + len(_CLOSING), len(text))
    return None, start + ends[0] + len(_CLOSING) if ends else len(text)


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        value = parse_json(text)
        return value if isinstance(value, dict) else None
    except ModelError:
        return None


# ---- Llama 3's: a call is a JSON object and nothing else, results stand under a role of their own

_LLAMA_TOOLS = (
    "You can call functions. To call some, answer with nothing but one JSON object for each, in this form:\n"
    '{"name": "the function\'s name", "parameters": {"an argument\'s name": "its value"}}\n'
    "Separate several with a semicolon. What they return comes in the next message. Where no function is "
    "needed any more, answer in plain words.\n\nFunctions:\n"
)
_NO_SEPARATOR = re.compile(r"[^\s;]")
_DECODER = json.JSONDecoder()


def _write_llama3_system(text: str, tools: Sequence[ToolSpec]) -> str:
    listed = to_json_lines(tool.json_object for tool in tools)
    return f"{text}\n\n{_LLAMA_TOOLS}{listed}" if text else f"{_LLAMA_TOOLS}{listed}"


def _parse_llama3_calls(text: str) -> list[FunctionCall]:
    """The calls of a reply that holds nothing else, but for Llama's own tag or a fence around them."""
    bare = text.strip().removeprefix("<|python_tag|>").strip()
    fenced = re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", bare, re.DOTALL)
    try:
        values = list(iterate_json_values(fenced.group(1) if fenced else bare))
        calls = [_parse_llama3_call(value) for value in values]
    except (ValueError, RecursionError, ModelError):
        return []
    return [call for call in calls if call is not None] if all(calls) else []


def iterate_json_values(text: str) -> Iterator[object]:
    """The JSON values that stand one behind the other, or in a list.

    Raises:
        ValueError: If anything but blanks and semicolons stands between them.
    """
    position = 0
    while (separator := _NO_SEPARATOR.search(text, position)) is not None:
        value, position = _DECODER.raw_decode(text, separator.start())
        yield from value if isinstance(value, list) else [value]


def _parse_llama3_call(value: object) -> FunctionCall | None:
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        return None
    args = value.get("parameters", value.get("arguments", {}))
    if not isinstance(args, dict):
        return None
    return FunctionCall(function=value["name"], args=clean_json(args))


# ---- Hermes' tags, which Qwen's and many small models were trained on, and what they write in their place

_HERMES_TOOLS = (
    "You can call functions. To call one, write its name and arguments as JSON between these tags, and end your"
    ' reply there:\n<tool_call>\n{"name": "the function\'s name", "arguments": {"an argument\'s name": "its value"}}\n'
    "</tool_call>\nWhat it returns comes in the next message. Once nothing is left to do, answer in plain words,"
    " without tags.\n\n"
)
_TAGGED_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_STRING_OR_REMARK = re.compile(r'("(?:[^"\\]|\\.)*+"?)|//[^\n]*')
"""Coder models write remarks behind an argument, as in `"amount": 10 // what you usually pay`."""


def _drop_remarks(text: str) -> str:
    return _STRING_OR_REMARK.sub(lambda met: met[1] or "", text)


_FENCED_CALL = re.compile(r"```\w*\s*([\[{].*?)\s*(?:```|\Z)", re.DOTALL)
_JSON_LINE = re.compile(r"^[ \t]*[\[{]", re.MULTILINE)
_BROKEN_CALL = re.compile(r'\s*\{\s*"name"\s*:\s*"\w+"\s*,\s*"arguments"\s*:')
_WORKED_CALL = re.compile(r'^(\{"name": "\w+", "arguments": .*\})$', re.MULTILINE)
_HERMES_NEXT = "\n\nAs long as something is left to do, your reply is a call and begins with <tool_call>."
"""Said last: without it a small model of code takes the words of the task's own rules for its answer."""


def _write_hermes_system(text: str, tools: Sequence[ToolSpec]) -> str:
    """The system message with calls that it shows, a line each, in this protocol's form."""
    listed = (
        f"{_HERMES_TOOLS}<tools>\n{to_json_lines(tool.json_object for tool in tools)}\n</tools>{_HERMES_NEXT}"
    )
    shown = _WORKED_CALL.sub(r"<tool_call>\n\1\n</tool_call>", text)
    return f"{shown}\n\n{listed}" if text else listed


def _parse_hermes_calls(text: str) -> list[FunctionCall]:
    """The calls between tags; without tags those in fences, or of the JSON that begins a line.

    What has tags or begins like a call and cannot be read is told to the model; all else is part of an answer.
    """
    tagged = _TAGGED_CALL.findall(text)
    calls: list[FunctionCall] = []
    for written in tagged or _FENCED_CALL.findall(text) or [_cut_to_json(text)]:
        try:
            found = [_parse_named_call(value) for value in iterate_json_values(_drop_remarks(written))]
        except (ValueError, RecursionError, ModelError):
            found = [None]
        if all(found):
            calls += [call for call in found if call is not None]
        elif tagged or _BROKEN_CALL.match(written):
            calls.append(make_unread_call(written))
    return calls


def _cut_to_json(text: str) -> str:
    """From the first line that begins with a bracket to the last bracket: what stands around is prose."""
    opened = _JSON_LINE.search(text)
    return text[opened.start() : max(text.rfind("}"), text.rfind("]")) + 1] if opened else ""


def _parse_named_call(value: object) -> FunctionCall | None:
    """A call under any of the names that models give its two parts."""
    if not isinstance(value, dict):
        return None
    stated: dict[str, Any] = value["function"] if isinstance(value.get("function"), dict) else value
    names = [stated[key] for key in ("name", "function", "tool") if isinstance(stated.get(key), str)]
    name = names[0] if names else None
    args = next((stated[key] for key in ("arguments", "parameters", "args") if key in stated), None)
    if isinstance(args, str):
        args = _parse_object(args)
    if name is None or not isinstance(args, dict):
        return None
    return FunctionCall(function=name, args=clean_json(args))


TEXT_PROTOCOLS: dict[ProtocolName, TextProtocol] = {
    "agentdojo": TextProtocol(
        _write_agentdojo_system, _join_blocks, _write_agentdojo_result, _parse_first_call, "tool"
    ),
    "agentdojo+": TextProtocol(
        _write_agentdojo_system, _join_blocks, _write_agentdojo_result, _parse_every_call, "tool"
    ),
    "llama3": TextProtocol(
        _write_llama3_system, _join_blocks, read_result_text, _parse_llama3_calls, "ipython"
    ),
    "hermes": TextProtocol(
        _write_hermes_system,
        _join_blocks,
        lambda message: f"<tool_response>\n{read_result_text(message)}\n</tool_response>",
        _parse_hermes_calls,
        "user",
        lenient=True,
    ),
}
