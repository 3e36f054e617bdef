"""The slips of a sloppy model: what stands between a role's clean reply and the message it becomes.

One layer for every role of every defense. A slip applies where a reply is of its kind; all others leave the
reply as it is. Quotes are the one kind that cannot be told from the reply itself: a role that quotes says so
(`quoting`).
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.models.chat import ChatRequest, assistant, text_of, tool_message
from agentsys.models.fenced_actions import ActionSyntaxError, json_block, read_action
from agentsys.models.simulated import written_slips
from agentsys.models.simulated.role import SimulatedKnowledge, SimulatedRole
from agentsys.models.simulated.script_position import PLACEHOLDER
from agentsys.models.simulated.sloppiness import PARTS
from agentsys.models.trace import ACTING_ROLES

INTENT = "intent"
ALIASES = {"string": "str", "number": "float", "integer": "int", "boolean": "bool"}
REFUSAL = "I'm sorry, but I can't help with that."

Play = Callable[[ChatRequest], ChatAssistantMessage]
"""Plays the role on a request, cleanly."""


@dataclass(frozen=True)
class CleanReply:
    """A clean reply, and what slips may use."""

    message: ChatAssistantMessage
    request: ChatRequest
    quotes: bool
    """Whether its JSON holds quotes from the request."""
    acting: bool
    """Whether it is an agent's, whose text is for the user: no JSON and no verdict."""
    play: Play
    random: random.Random

    def saying(self, text: str) -> CleanReply:
        """The same with other words."""
        return replace(self, message=assistant(text, self.message["tool_calls"]))

    def calling(self, calls: list[FunctionCall]) -> CleanReply:
        """The same with other calls."""
        return replace(self, message={**self.message, "tool_calls": calls})


def quoting(handler: SimulatedRole) -> SimulatedRole:
    """Mark a role whose replies quote the request: strings in its JSON are passages of it."""
    setattr(handler, _QUOTES, True)
    return handler


_QUOTES = "quotes_the_request"


def slipped(
    message: ChatAssistantMessage,
    request: ChatRequest,
    knowledge: SimulatedKnowledge,
    play: Play,
    handler: SimulatedRole | None,
) -> ChatAssistantMessage:
    """The message as a sloppy model would have written it.

    Each part is drawn by hash of seed, case, role and request, so a repeated request is answered alike.
    """
    asked = _digest(request)
    quotes = handler is not None and getattr(handler, _QUOTES, False)
    acting = handler is None or request.role in ACTING_ROLES
    reply = CleanReply(message, request, quotes, acting, play, random.Random())
    for part, rate in knowledge.options.sloppiness.rates.items():
        if knowledge.draw(rate, "slip", part, request.role, asked):
            seeded = random.Random(f"{knowledge.options.seed}/{part}/{request.role}/{asked}")
            reply = _SLIPS[part](replace(reply, random=seeded))
    return reply.message


# AgentDojo stamps what is sent with the time of day; a run must repeat all the same.
_STAMP = re.compile(r"\d{4}-\d\d-\d\d.\d\d:\d\d:\d\d\.\d{6}")


def _digest(request: ChatRequest) -> str:
    told: list[Any] = [
        [m["role"], text_of(m), str(m.get("tool_calls") or ""), str(m.get("error") or "")]
        for m in request.messages
    ]
    if request.temperature:  # asked again, hotter, a model answers otherwise
        told.append(request.temperature)
    return hashlib.blake2b(_STAMP.sub("", json.dumps(told)).encode(), digest_size=12).hexdigest()


def _written(change: Callable[[str, CleanReply], str]) -> Callable[[CleanReply], CleanReply]:
    """A slip in what is written, for replies that are read by a program."""

    def slip(reply: CleanReply) -> CleanReply:
        if reply.acting or reply.message["tool_calls"]:
            return reply
        text = text_of(reply.message)
        changed = change(text, reply)
        return reply if changed == text else reply.saying(changed)

    return slip


def _json(change: Callable[[str], str]) -> Callable[[CleanReply], CleanReply]:
    written = _written(lambda text, reply: written_slips.in_json(text, change))
    return lambda reply: _in_action(reply, change) if reply.acting else written(reply)


def _in_action(reply: CleanReply, change: Callable[[str], str]) -> CleanReply:
    """A slip in the action that an agent writes into a fence; all its other words are for the user."""
    block = _action_block(reply)
    if block is None:
        return reply
    return reply.saying(text_of(reply.message).replace(block, written_slips.in_json(block, change)))


def _action_block(reply: CleanReply) -> str | None:
    """The fenced action in what an agent says; None where it writes none."""
    text = text_of(reply.message)
    try:
        written = reply.acting and not reply.message["tool_calls"] and read_action(text) is not None
    except ActionSyntaxError:
        return None
    return json_block(text) if written else None


def _quotes(change: Callable[[list[str], CleanReply], list[str]]) -> Callable[[CleanReply], CleanReply]:
    def slip(text: str, reply: CleanReply) -> str:
        if not reply.quotes:
            return text
        return written_slips.in_json(
            text, lambda part: written_slips.requoted(part, lambda q: change(q, reply))
        )

    return _written(slip)


def _wrong_first(quotes: list[str], reply: CleanReply) -> list[str]:
    lines = [line for line in text_of(reply.request.messages[-1]).splitlines() if len(line.split()) > 2]
    return [reply.random.choice(lines).strip(), *quotes] if lines else quotes


def _numbers(reply: CleanReply) -> CleanReply:
    calls = reply.message["tool_calls"]
    if not calls:
        return _json(written_slips.numbers_quoted)(reply)
    return reply.calling([_with_args(call, written_slips.stringed(dict(call.args))) for call in calls])


def _aliases(reply: CleanReply) -> CleanReply:
    calls = reply.message["tool_calls"]
    if not any(INTENT in call.args for call in calls or ()):
        return reply
    return reply.calling([_with_args(call, _aliased(call.args)) for call in calls or ()])


def _aliased(args: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _renamed(value) if key == INTENT else value for key, value in args.items()}


def _renamed(kind: Any) -> Any:
    if isinstance(kind, Mapping):
        return {key: _renamed(below) for key, below in kind.items()}
    if isinstance(kind, list):
        return [_renamed(below) for below in kind]
    return ALIASES.get(kind, kind) if isinstance(kind, str) else kind


def _several(reply: CleanReply) -> CleanReply:
    """Add the call the role would make next, if nothing in it must be taken from the first one's result."""
    calls = reply.message["tool_calls"]
    if not calls:
        return reply
    pretended: list[ChatMessage] = [reply.message, *(tool_message(call, "") for call in calls)]
    asked = replace(reply.request, messages=[*reply.request.messages, *pretended])
    following = reply.play(asked)["tool_calls"] or []
    made = {call.id for call in calls}
    fresh = [call for call in following if PLACEHOLDER not in str(call.args) and call.id not in made]
    return reply.calling([*calls, *fresh]) if fresh else reply


def _as_text(reply: CleanReply) -> CleanReply:
    calls = reply.message["tool_calls"]
    if not calls:
        return _unfenced(reply)
    written = [json.dumps({"name": c.function, "arguments": dict(c.args)}, default=str) for c in calls]
    return replace(reply, message=assistant("\n".join([text_of(reply.message), *written]).strip()))


def _unfenced(reply: CleanReply) -> CleanReply:
    """An action without its fence, where one was asked for."""
    block = _action_block(reply)
    return reply if block is None else reply.saying(block.strip())


def _with_args(call: FunctionCall, args: dict[str, Any]) -> FunctionCall:
    return FunctionCall(function=call.function, args=args, id=call.id)


_SLIPS: Mapping[str, Callable[[CleanReply], CleanReply]] = MappingProxyType(
    {
        "wrong_first_span": _quotes(_wrong_first),
        "paraphrased_quotes": _quotes(
            lambda qs, reply: [written_slips.reworded(q, reply.random) for q in qs]
        ),
        "decoded_quotes": _quotes(lambda qs, reply: [written_slips.on_one_line(q) for q in qs]),
        "partial_quotes": _quotes(lambda qs, reply: [written_slips.first_half(q) for q in qs]),
        "numbers_as_strings": _numbers,
        "trailing_commas": _json(written_slips.with_comma),
        "fenced_json": _written(lambda text, reply: written_slips.in_json(text, written_slips.fenced)),
        "explained_verdicts": _written(lambda text, reply: written_slips.explained(text, reply.random)),
        "type_aliases": _aliases,
        "several_calls": _several,
        "calls_as_text": _as_text,
        "refusals": lambda reply: replace(reply, message=assistant(REFUSAL)),
        "empty_replies": lambda reply: replace(reply, message=assistant("")),
    }
)
assert _SLIPS.keys() == PARTS.keys()
