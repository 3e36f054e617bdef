"""Reads a model's reply alike from every wire, and draws the consequence of how it ended.

An adapter hands over what its wire holds (`RawReply`); here are calls made of it, with their names, arguments and
ids, and the ending is found. Everything in a reply is foreign: a field may be missing or of any type, and arguments
come as an object, its text, the text of that, and with slips of writing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, MessageContentBlock

from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, JsonSchema, ModelError, Usage
from agentsys.models.endings import Ending, EndingConsequence, find_consequence, find_ending, keep_reason
from agentsys.models.pricing import Price, cost_usd
from agentsys.models.providers.sdk_errors import make_embedded_error, redact_line
from agentsys.models.providers.wire_parts import (
    as_mapping,
    clean_json,
    make_call_id,
    make_malformed_reply_error,
    note_opaque_thoughts,
    parse_json,
)
from agentsys.models.text_tools import iterate_json_values, make_unread_call

CUT_NOTE = "a reply ended at the bound on its tokens"
CLEANED_NAME = "cleaned_name"
"""Kind of oddity: the name of a call held what its server had leaked into it."""
THOUGHT_ANSWER = "thought_answer"
"""Kind of oddity: the answer stood among the thoughts, where a server's parser had left it."""


@dataclass(frozen=True)
class RawCall:
    """A call as its wire has it."""

    name: object
    arguments: object
    id: object = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Fields that go back with it as they came."""

    @classmethod
    def from_chat(cls, raw: object, kept: Mapping[str, Any]) -> RawCall:
        """A call of chat completions; some servers leave its `function` wrapper out, or name the fields otherwise."""
        call = as_mapping(raw)
        wrapped = (call.get(name) for name in ("function", "custom", "tool_use"))
        inner = next((one for one in wrapped if isinstance(one, Mapping)), call)
        name = inner.get("name") if "name" in inner else call.get("function")
        fields = ("arguments", "parameters", "args", "input")
        return cls(name, next((inner[one] for one in fields if one in inner), None), call.get("id"), kept)


@dataclass(frozen=True)
class RawReply:
    """Parts of a reply, as its wire has them."""

    blocks: Sequence[MessageContentBlock] = ()
    """Texts and thoughts in order."""
    calls: Sequence[RawCall] = ()
    reasons: Sequence[object] = ()
    """The server's words for how it ended, one for each of its choices."""
    native: object = None
    """The word of the vendor behind a gateway."""
    words: object = None
    """What else the server says of that."""
    kept: Mapping[str, Any] = field(default_factory=dict)
    """Fields of its message that go back as they came."""
    refused: bool = False
    """Whether the text stood in the field for the model's own refusals."""
    left_in_thoughts: str = ""
    """Thoughts in a field of their own, told in the open; a parser may have left the answer there."""
    is_list: bool = False
    """Whether AgentDojo's element for this wire gives a list where nothing is said: it then runs a pipeline once,
    and not three times."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Fields of our reply that this wire alone fills."""


@dataclass(frozen=True)
class Reading:
    """Context for reading a reply: the request that it answers, and the settings of the model's YAML."""

    request: ChatRequest = field(default_factory=lambda: ChatRequest(()))
    """Without messages and tools where a reply is read by itself."""
    price: Price | None = None
    key: str | None = None
    max_tokens: int | None = None
    """Bound on output tokens that the model's YAML sets."""

    def read(
        self,
        data: object,
        payload: str,
        parse_usage: Callable[[Mapping[str, Any]], Usage],
        parse: Callable[[Mapping[str, Any]], RawReply],
    ) -> ChatReply:
        """Build our reply from a server's answer with HTTP status 200; the API key is removed from its texts.

        Args:
            data: The answer as it came, or parsed.
            payload: The field that every reply of this wire has, and which an error has not.
            parse_usage: Reads the field that counts tokens.
            parse: Reads all else.

        Raises:
            ModelError: `MALFORMED_REPLY` if the answer is no reply of this wire; the error that the answer holds
                (some gateways send errors with status 200); the error of the reply's ending (docs/errors.md). An
                error found after the tokens were read carries usage and cost, because the reply was paid for.
        """
        body = read_body(data, payload, self.key)
        usage = parse_usage(as_mapping(body.get("usage") or body.get("usageMetadata")))
        model_id = str(body.get("model") or body.get("modelVersion") or "")
        try:
            raw = parse(body)
            ending, reason = self._find_ending(raw, usage)
            return self._make_reply(raw, ending, reason, usage, model_id)
        except ModelError as error:
            # An unusable answer without token counts is recorded as zero tokens, like an error page; a budget
            # books the most that it can have cost (`answered_uncounted`).
            error.usage = Usage() if usage.uncounted else usage
            error.answered_uncounted = bool(usage.uncounted)
            error.cost_usd = 0.0 if error.usage == Usage() else cost_usd(usage, self.price)
            raise

    def _find_ending(self, raw: RawReply, usage: Usage) -> tuple[Ending, str]:
        words = {keep_reason(word) for word in raw.reasons} - {""} or {""}
        native = keep_reason(raw.native)
        judge = partial(find_ending, calls=bool(raw.calls), refused=raw.refused)
        judged = [(judge(word, native=native), word) for word in sorted(words)]
        ending, reason = max(judged, key=lambda pair: _GRAVITY.index(pair[0]))
        bound = self.request.max_tokens or self.max_tokens
        at_bound = bound is not None and usage.completion == bound
        if at_bound and ending in (Ending.COMPLETE, Ending.CALLS):
            ending = Ending.CUT  # some servers call it `tool_calls` all the same
        elif native and judge(reason) is not ending:
            reason = native
        return ending, reason

    def _make_reply(
        self, raw: RawReply, ending: Ending, reason: str, usage: Usage, model_id: str
    ) -> ChatReply:
        self._check_consequence(raw, ending, reason)
        lost = [make_unread_call(_say(raw.words))] if ending is Ending.MALFORMED_CALL else None
        made = _MadeCalls(lost or []) if lost else self._make_calls(raw, ending)
        notes, odd = made.notes, dict[str, int]()
        if notes:
            odd[CLEANED_NAME] = len(notes)
        if ending is Ending.CUT:
            notes = [CUT_NOTE, *notes]
        blocks = list(raw.blocks)
        if ending in _ANSWERS and not made.calls and not _has_text(blocks) and raw.left_in_thoughts.strip():
            odd[THOUGHT_ANSWER] = 1
            blocks = _take_answer(blocks, raw.left_in_thoughts)
        content = [*note_opaque_thoughts(raw.kept, made.kept), *blocks]
        message: ChatAssistantMessage = {
            "role": "assistant",
            "content": content if content or raw.is_list else None,
            "tool_calls": made.calls or None,
        }
        fields: Any = {"ending": ending, "reason": reason, "odd": odd, **raw.more}
        cost = cost_usd(usage, self.price)
        return ChatReply(message, usage, cost, model_id=model_id, notes=tuple(notes), **fields)

    def _check_consequence(self, raw: RawReply, ending: Ending, reason: str) -> None:
        match find_consequence(ending):
            case EndingConsequence.END_CASE:
                kind, what = ErrorKind.CONTENT_REFUSED, "the provider stopped the reply"
            case EndingConsequence.ASK_AGAIN:
                kind, what = ErrorKind.SERVER_ERROR, "the server broke its reply off"
            case EndingConsequence.ASK_THEN_TELL if not self._may_call:
                kind, what = (
                    ErrorKind.MALFORMED_REPLY,
                    "the model wrote a call that its server could not read",
                )
            case _:
                return
        message = ": ".join(filter(None, (reason, _say(raw.words))))
        raise ModelError(kind, redact_line(f"{what} ({message})", self.key))

    @property
    def _may_call(self) -> bool:
        """True if there are tools to call, and so somebody to tell the model of a call that went wrong."""
        return bool(self.request.tools) and self.request.tool_choice != "none"

    def _make_calls(self, raw: RawReply, ending: Ending) -> _MadeCalls:
        if not raw.calls:
            return _MadeCalls([])
        tools, calls = {tool.name: tool.parameters for tool in self.request.tools}, list[FunctionCall]()
        made, used = _MadeCalls([]), list_call_ids(self.request)
        for raw_call in raw.calls:
            name, call_id = clean_name(raw_call.name, tools), str(raw_call.id) if raw_call.id else None
            schema = None if ending is Ending.CUT else tools.get(name)
            args = read_arguments(raw_call.arguments, schema) if name else None
            if args is not None:
                call = FunctionCall(function=name, args=args, id=call_id)
            elif ending is Ending.CUT:
                continue
            elif self._may_call:
                call = make_unread_call(f"{name} {_say(raw_call.arguments)}", call_id)
            else:
                what = f"the arguments of a call of {name!r:.80} are not a JSON object"
                raise make_malformed_reply_error(what if name else "a tool call without a name")
            if call_id is not None and call in calls:  # said twice, it is one
                continue
            calls.append(call)
            if args is not None and name != raw_call.name:
                made.notes.append(f"a call of {str(raw_call.name)!r:.80} was taken as one of {name}")
            needs_id = call_id in used if call_id else bool(raw_call.kept)
            if needs_id:
                # Some servers count from 0 in every reply.
                call = call.model_copy(update={"id": make_call_id(f"{call_id} {len(used)}")})
            if raw_call.kept:
                made.kept[str(call.id)] = raw_call.kept
            used |= {call.id} - {None}
            made.calls.append(call)
        return made


PLAIN_READING = Reading()


@dataclass(frozen=True)
class _MadeCalls:
    calls: list[FunctionCall]
    kept: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Id -> what goes back with the call."""
    notes: list[str] = field(default_factory=list)
    """Which names were cleaned."""


def list_call_ids(request: ChatRequest) -> set[str | None]:
    """Ids of the calls in a conversation."""
    turns = [message for message in request.messages if message["role"] == "assistant"]
    return {call.id for turn in turns for call in turn["tool_calls"] or () if call.id}


_ANSWERS = (Ending.COMPLETE, Ending.UNKNOWN)
_GRAVITY = tuple(Ending)
"""Which ending a reply has whose choices ended in several ways: the last of these."""


def _say(words: object) -> str:
    return "" if words is None else str(words)


def _has_text(blocks: Sequence[MessageContentBlock]) -> bool:
    return any(block["type"] == "text" and (block["content"] or "").strip() for block in blocks)


def _take_answer(blocks: Sequence[MessageContentBlock], thoughts: str) -> list[MessageContentBlock]:
    """The blocks with what stands behind the thoughts as text, or all of them where nothing tells them apart."""
    thought, closed, answer = thoughts.rpartition("</think>")
    if not (closed and answer.strip()):
        thought, answer = "", thoughts
    kept = [block for block in blocks if block["type"] == "thinking" and block["id"]]
    told: list[MessageContentBlock] = [{"type": "thinking", "content": thought.strip(), "id": None}]
    return [*kept, *(told if thought.strip() else ()), {"type": "text", "content": answer.strip()}]


_MARKER = re.compile(r"<[|/]?[\w▁ ]{1,40}\|?>|<.*\Z", re.DOTALL)
"""A marker of a chat template, or its beginning."""
_NAMESPACE = re.compile(r"\A(?:to=)?(?:(?:functions?|default_api|tools?|multi_tool_use)[.:/]+)*")
_NUMBER = re.compile(r"(?::\d+|\(\))\Z")
_CHANNEL = re.compile(r"(?:commentary|analysis|final|json|code|assistant)+\Z")
"""Channels of harmony and the types of what is to come in them, which lose their markers at some servers."""
_LONGEST_NAME = 300


def clean_name(name: object, offered: Collection[str]) -> str:
    """Remove a server's leftovers (template markers, namespaces, channels) from a call's tool name.

    Returns:
        The cleaned name, if cleaning leaves one word and that is an offered tool's name; otherwise the name as it
        came, or an empty text if it is blank or no text.
    """
    if not isinstance(name, str) or not name.strip():
        return ""
    if name in offered or len(name) > _LONGEST_NAME:
        return name
    visible = "".join(sign for sign in name if sign.isprintable() or sign.isspace())
    words = [word.strip("\"'`") for word in _MARKER.sub(" ", visible).split()]
    plain = {_NUMBER.sub("", _NAMESPACE.sub("", word)) for word in words if not _CHANNEL.fullmatch(word)}
    matches = {form for word in plain for form in (word, _CHANNEL.sub("", word)) if form in offered}
    return matches.pop() if len(plain) == len(matches) == 1 else name


def raise_error_field(level: Mapping[str, Any], key: str | None) -> None:
    """Raise what a field `error` holds; an object of nulls, blanks and zeros, as some write in every reply, is none."""
    error = level.get("error")
    if any(error.values()) if isinstance(error, Mapping) else error:
        raise make_embedded_error({"error": error}, key)


_ERROR_FIELDS = ("errors", "message", "msg", "detail", "error_msg", "error_message", "fault")


def read_body(data: object, payload: str, key: str | None) -> Mapping[str, Any]:
    """An answer as a JSON object fit to be stored, without the key; see `Reading.read`."""
    body = parse_json(data, key) if isinstance(data, str | bytes) else clean_json(data, key)
    if isinstance(body, list) and len(body) == 1:  # as Gemini's compatible endpoint wraps its errors
        body = body[0]
    if not isinstance(body, Mapping):
        raise make_malformed_reply_error(f"the reply is not a JSON object but {type(body).__name__}")
    raise_error_field(body, key)
    if as_mapping(body.get("base_resp")).get("status_code"):  # MiniMax's
        raise make_embedded_error({"base_resp": body["base_resp"]}, key)
    if not body.get(payload) and any(body.get(name) for name in _ERROR_FIELDS):
        raise make_embedded_error(body, key)
    return body


_MENDED_CHARS = 20_000
"""Longest text that is read as anything but one JSON value."""


def read_arguments(raw: object, schema: JsonSchema | None) -> dict[str, Any] | None:
    """The arguments of a call; None where they cannot be read.

    Args:
        raw: What the wire has in their place. Blank, null and an empty list are no arguments.
        schema: The tool's. Slips are mended where the outcome fits it; None: nothing is mended.
    """
    value = raw
    for _ in range(2):  # some servers write the text of a text
        if isinstance(value, str):
            value = _parse_text(value, schema)
    if value is None or value == []:
        return {}
    return value if isinstance(value, dict) else None


_UNREADABLE = object()


def _parse_text(text: str, schema: JsonSchema | None) -> object:
    if not text.strip():
        return None
    try:
        return parse_json(text)
    except ModelError:
        pass
    if len(text) > _MENDED_CHARS:
        return _UNREADABLE
    try:
        return clean_json(_find_one_object(text, schema))
    except (ModelError, RecursionError):
        return _UNREADABLE


def _find_one_object(text: str, schema: JsonSchema | None) -> object:
    try:
        values = list(iterate_json_values(text))
    except ValueError:
        return _UNREADABLE if schema is None else _mend_slips(text, schema)
    objects = [value for value in values if value != {}] or [{}]
    return (
        objects[0]
        if all(isinstance(value, dict) and value == objects[0] for value in objects)
        else _UNREADABLE
    )


_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))", re.DOTALL)
_PLAIN_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_SLIP_SIGNS = re.compile(r"[\s,'\"“”‘’`\[\]{}]+")
_DIGITS_APART = re.compile(r"\d\s*,\s*\d")


def _mend_slips(text: str, schema: JsonSchema) -> object:
    """The object of a text whose white space, commas, quotes or brackets are wrong, and nothing else is.

    A text that ends within a string or a number was broken off: what would stand there is not known.
    """
    if text.rstrip()[-1:] not in "}]\"'," or _count_quotes(text) % 2:
        return _UNREADABLE
    import json_repair  # only where something is to be mended

    value = json_repair.loads(text)
    if not isinstance(value, dict):
        return _UNREADABLE
    written = json.dumps(value, ensure_ascii=False)
    same = (
        _keep_content(text) == _keep_content(written)
        # A quotation mark within a text, and a comma between digits, could be either.
        and text.count('\\"') == written.count('\\"')
        and len(_DIGITS_APART.findall(text)) == len(_DIGITS_APART.findall(written))
    )
    return value if same and _fits_schema(value, schema) else _UNREADABLE


def _count_quotes(text: str) -> int:
    plain = _ESCAPE.sub("", text)
    return plain.count('"') or plain.count("'")


def _keep_content(text: str) -> str:
    """A JSON text without the signs that may be mended, and with its escapes as what they stand for."""
    spelled = _ESCAPE.sub(
        lambda met: chr(int(met[1], 16)) if met[1] else _PLAIN_ESCAPES.get(met[2], met[2]), text
    )
    return _SLIP_SIGNS.sub("", spelled)


def _fits_schema(value: dict[str, Any], schema: JsonSchema) -> bool:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend
    from jsonschema_specifications import REGISTRY
    from referencing.exceptions import Unresolvable

    if not value.keys() <= schema.get("properties", {}).keys():
        return False
    # Patterns are left out, as nothing bounds their time; what a schema refers to is never fetched.
    kind = extend(Draft202012Validator, {"pattern": _pass_all, "patternProperties": _pass_all})
    try:
        return bool(kind(schema, registry=REGISTRY).is_valid(value))
    except (Unresolvable, RecursionError):
        return False


def _pass_all(*asked: Any) -> Iterator[Any]:
    return iter(())
