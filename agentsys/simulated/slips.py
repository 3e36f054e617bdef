"""Slips of a sloppy model: random changes of a role's clean reply.

One layer for every role of every defense. A slip applies only to replies of its kind. Quotes cannot be recognized in
the reply itself, so a role that quotes is marked (`mark_quoting_role`).
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.base.json_values import map_leaves
from agentsys.models.chat import ChatRequest, assistant, text_of, tool_message
from agentsys.models.prompted_tools import ActionSyntaxError, find_json_block, read_action
from agentsys.models.trace import ACTING_ROLES
from agentsys.simulated.script_grounding import PLACEHOLDER
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole

_TAGGED = re.compile(r"<(\w+)>\s*([\[{].*?)\s*</\1>", re.DOTALL)
_VERDICT = re.compile(r"\s*(?:<\w+>)?\s*\w{1,8}\s*(?:</\w+>)?\s*")
_CONTINUED = re.compile(r"\\\r?\n[ \t]*(?:\\(?= ))?")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_LAYOUT = frozenset("nrtNLP_ ")


def change_json(text: str, change: Callable[[str], str]) -> str:
    """Change a text that is a JSON object or list, or each such part of it in tags."""
    if _is_json(text):
        return change(text)
    return _TAGGED.sub(lambda m: m[0].replace(m[2], change(m[2]), 1) if _is_json(m[2]) else m[0], text)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _rewrite_json(text: str, change: Callable[[Any], Any]) -> str:
    """Change the data of a JSON text; return the same text if nothing changes."""
    value = json.loads(text)
    changed = change(value)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def _map_quotes(value: Any, change: Callable[[list[str]], list[str]]) -> Any:
    """Change each list of texts in the data."""
    if isinstance(value, dict):
        return {key: _map_quotes(below, change) for key, below in value.items()}
    is_quotes = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return change(value) if is_quotes else value


def drop_words(quote: str, draw: random.Random) -> str:
    """Drop about a quarter of the words, at least one."""
    words = quote.split()
    dropped = draw.randrange(len(words)) if words else 0
    remaining = [word for index, word in enumerate(words) if index != dropped and draw.random() >= 0.25]
    return " ".join(remaining)


def join_lines(quote: str) -> str:
    """Resolve escapes of YAML or JSON and fold white space to single spaces."""
    return " ".join(_ESCAPE.sub(_resolve_escape, _CONTINUED.sub("", quote)).split())


def _resolve_escape(match: re.Match[str]) -> str:
    code, byte, other = match.groups()
    if code or byte:
        return chr(int(code or byte, 16))
    return " " if other in _LAYOUT else str(other)


def keep_first_half(quote: str) -> str:
    """Keep the first half, up to the end of a word."""
    cut = quote.find(" ", len(quote) // 2)
    return quote if cut < 0 else quote[:cut]


def _stringify_number(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def add_trailing_comma(text: str) -> str:
    """Add a comma after the last entry of JSON that is not empty."""
    body = text.rstrip()
    return f"{body[:-1].rstrip()},{body[-1]}" if json.loads(text) else text


def add_code_fence(text: str) -> str:
    """Put JSON in a code fence, with a sentence on either side."""
    return f"Here is the result:\n\n```json\n{text}\n```\n\nLet me know if you need anything else."


def explain_verdict(text: str, draw: random.Random) -> str:
    """Add a reason to a one-word verdict, bare or in tags; other texts stay."""
    if not _VERDICT.fullmatch(text):
        return text
    verdict = text.strip()
    return draw.choice(
        (
            f"{verdict}. This follows from what was asked for.",
            f"I compared this with what was asked for, step by step.\n\n{verdict}",
            f"Answer: {verdict}",
        )
    )


INTENT = "intent"
TYPE_ALIASES = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"}
REFUSAL_TEXT = "I'm sorry, but I can't help with that."

PlayRole = Callable[[ChatRequest], ChatAssistantMessage]
"""Plays the role on a request, without slips."""


@dataclass(frozen=True)
class CleanReply:
    """A clean reply, and the data that slips use."""

    message: ChatAssistantMessage
    request: ChatRequest
    quotes: bool
    """True if its JSON holds quotes from the request."""
    acting: bool
    """True for an agent's reply, whose text is for the user: no JSON and no verdict."""
    play: PlayRole
    random: random.Random

    @property
    def text(self) -> str:
        """Text of the message."""
        return text_of(self.message)

    def with_text(self, text: str) -> CleanReply:
        """Copy the reply with another text."""
        return replace(self, message=assistant(text, self.message["tool_calls"]))

    def with_calls(self, calls: list[FunctionCall]) -> CleanReply:
        """Copy the reply with other calls."""
        return replace(self, message={**self.message, "tool_calls": calls})


def mark_quoting_role(handler: SimulatedRole) -> SimulatedRole:
    """Mark a role whose replies quote the request in the strings of their JSON."""
    setattr(handler, _QUOTES_ATTRIBUTE, True)
    return handler


_QUOTES_ATTRIBUTE = "quotes_the_request"


def apply_slips(
    message: ChatAssistantMessage,
    request: ChatRequest,
    knowledge: SimulatedKnowledge,
    play: PlayRole,
    handler: SimulatedRole | None,
) -> ChatAssistantMessage:
    """Apply randomly drawn slips to a message.

    Each slip is drawn by hash of seed, case, role and request, so a repeated request gets the same answer.
    """
    asked = _digest_request(request)
    quotes = handler is not None and getattr(handler, _QUOTES_ATTRIBUTE, False)
    acting = handler is None or request.role in ACTING_ROLES
    reply = CleanReply(message, request, quotes, acting, play, random.Random())
    for part, rate in knowledge.options.sloppiness.rates.items():
        if knowledge.draw(rate, "slip", part, request.role, asked):
            seeded = random.Random(f"{knowledge.options.seed}/{part}/{request.role}/{asked}")
            reply = _make_slip(part, replace(reply, random=seeded))
    return reply.message


# AgentDojo's sent messages contain the time of day, which must not change the draws.
_STAMP = re.compile(r"\d{4}-\d\d-\d\d.\d\d:\d\d:\d\d\.\d{6}")


def _digest_request(request: ChatRequest) -> str:
    parts: list[Any] = [
        [m["role"], text_of(m), str(m.get("tool_calls") or ""), str(m.get("error") or "")]
        for m in request.messages
    ]
    if request.temperature:  # At a higher temperature a model answers differently.
        parts.append(request.temperature)
    return hashlib.blake2b(_STAMP.sub("", json.dumps(parts)).encode(), digest_size=12).hexdigest()


def _make_slip(part: str, reply: CleanReply) -> CleanReply:
    """Make a slip if the reply is of its kind."""
    if part in _REPLY_SLIPS and (reply.message["tool_calls"] or part not in _JSON_SLIPS):
        return _REPLY_SLIPS[part](reply)
    if reply.acting:
        return _change_action(reply, _JSON_SLIPS[part]) if part in _JSON_SLIPS else reply
    text, quotes = reply.text, _QUOTE_SLIPS.get(part)
    if reply.message["tool_calls"] or (quotes is not None and not reply.quotes):
        return reply
    if part in _JSON_SLIPS:
        changed = change_json(text, _JSON_SLIPS[part])
    elif quotes is None:
        changed = _TEXT_SLIPS[part](text, reply)
    else:
        changed = change_json(
            text,
            lambda json_text: _rewrite_json(
                json_text, lambda data: _map_quotes(data, lambda q: quotes(q, reply))
            ),
        )
    return reply if changed == text else reply.with_text(changed)


def _change_action(reply: CleanReply, change: Callable[[str], str]) -> CleanReply:
    """Change the fenced action of an agent's reply; the rest of its text is for the user."""
    block = _find_action_block(reply)
    return reply if block is None else reply.with_text(reply.text.replace(block, change_json(block, change)))


def _find_action_block(reply: CleanReply) -> str | None:
    """Find the fenced action in an agent's text; None if there is none."""
    try:
        written = reply.acting and not reply.message["tool_calls"] and read_action(reply.text) is not None
    except ActionSyntaxError:
        return None
    return find_json_block(reply.text) if written else None


def _add_wrong_quote(quotes: list[str], reply: CleanReply) -> list[str]:
    lines = [line for line in text_of(reply.request.messages[-1]).splitlines() if len(line.split()) > 2]
    return [reply.random.choice(lines).strip(), *quotes] if lines else quotes


def _quote_numbers(reply: CleanReply) -> CleanReply:
    calls = reply.message["tool_calls"] or ()
    return reply.with_calls([_with_args(call, map_leaves(call.args, _stringify_number)) for call in calls])


def _alias_types(reply: CleanReply) -> CleanReply:
    calls = reply.message["tool_calls"] or ()
    if not any(INTENT in call.args for call in calls):
        return reply

    def alias(kind: Any) -> Any:
        return TYPE_ALIASES.get(kind, kind) if isinstance(kind, str) else kind

    return reply.with_calls(
        [
            _with_args(c, {k: map_leaves(v, alias) if k == INTENT else v for k, v in c.args.items()})
            for c in calls
        ]
    )


def _add_next_call(reply: CleanReply) -> CleanReply:
    """Add the call that the role would make next, unless it depends on the first one's result."""
    calls = reply.message["tool_calls"]
    if not calls:
        return reply
    pretended: list[ChatMessage] = [reply.message, *(tool_message(call, "") for call in calls)]
    asked = replace(reply.request, messages=[*reply.request.messages, *pretended])
    following = reply.play(asked)["tool_calls"] or []
    earlier_ids = {call.id for call in calls}
    fresh = [call for call in following if PLACEHOLDER not in str(call.args) and call.id not in earlier_ids]
    return reply.with_calls([*calls, *fresh]) if fresh else reply


def _format_calls_as_text(reply: CleanReply) -> CleanReply:
    """Put calls into the text; remove the fence of an action."""
    calls = reply.message["tool_calls"]
    if not calls:
        block = _find_action_block(reply)
        return reply if block is None else reply.with_text(block.strip())
    written = [json.dumps({"name": c.function, "arguments": dict(c.args)}, default=str) for c in calls]
    return replace(reply, message=assistant("\n".join([reply.text, *written]).strip()))


def _with_args(call: FunctionCall, args: dict[str, Any]) -> FunctionCall:
    return FunctionCall(function=call.function, args=args, id=call.id)


_QUOTE_SLIPS: Mapping[str, Callable[[list[str], CleanReply], list[str]]] = {
    "wrong_first_span": _add_wrong_quote,
    "paraphrased_quotes": lambda qs, reply: [drop_words(q, reply.random) for q in qs],
    "decoded_quotes": lambda qs, reply: [join_lines(q) for q in qs],
    "partial_quotes": lambda qs, reply: [keep_first_half(q) for q in qs],
}
_JSON_SLIPS: Mapping[str, Callable[[str], str]] = {
    "numbers_as_strings": lambda text: _rewrite_json(text, lambda data: map_leaves(data, _stringify_number)),
    "trailing_commas": add_trailing_comma,
}
"""Changes of JSON, also in an agent's action."""
_TEXT_SLIPS: Mapping[str, Callable[[str, CleanReply], str]] = {
    "fenced_json": lambda text, reply: change_json(text, add_code_fence),
    "explained_verdicts": lambda text, reply: explain_verdict(text, reply.random),
}
_REPLY_SLIPS: Mapping[str, Callable[[CleanReply], CleanReply]] = {
    "numbers_as_strings": _quote_numbers,
    "type_aliases": _alias_types,
    "several_calls": _add_next_call,
    "calls_as_text": _format_calls_as_text,
    "refusals": lambda reply: replace(reply, message=assistant(REFUSAL_TEXT)),
    "empty_replies": lambda reply: replace(reply, message=assistant("")),
}
