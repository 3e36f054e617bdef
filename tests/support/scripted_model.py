"""`ScriptedModel`: the fake model of the tests, with a script of replies for each role."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage

from agentsys.models.chat import ChatReply, ChatRequest, Usage, assistant, text_of

EVERY = "*"
"""The script of whatever role has none of its own."""


class OutOfReplies(AssertionError):
    """The code asked the model more often than the test foresaw."""


class ScriptedModel:
    """Gives each role its replies in order and keeps what it was asked.

    A reply is a text, calls, a message, a whole `ChatReply`, an error to raise, or a function of the request
    that gives one of these.

    Args:
        replies: Role -> replies (one or several); or replies for whatever role asks.
        repeat: Whether the last reply is given for ever. Else a question too many fails the test.
        usage: What a reply is said to have used.
    """

    name = "scripted"

    def __init__(
        self, replies: Mapping[str, Any] | Sequence[Any], *, repeat: bool = False, usage: Usage | None = None
    ) -> None:
        scripts = replies if isinstance(replies, Mapping) else {EVERY: replies}
        self.replies: dict[str, list[Any]] = {
            role: list(said) if isinstance(said, list | tuple) else [said] for role, said in scripts.items()
        }
        self.repeat, self.usage = repeat, usage or Usage()
        self.requests: list[ChatRequest] = []
        self._lock = threading.Lock()

    def complete(self, request: ChatRequest) -> ChatReply:
        """The next reply of the request's script."""
        with self._lock:
            self.requests.append(replace(request, messages=copy.deepcopy(list(request.messages))))
            reply = self._next_reply(self.script_of(request))
        return self.as_reply(reply(request) if callable(reply) else reply)

    def script_of(self, request: ChatRequest) -> str:
        """Which script answers a request: its role's."""
        return request.role if request.role in self.replies else EVERY

    def _next_reply(self, who: str) -> Any:
        script = self.replies.get(who)
        if not script:
            raise OutOfReplies(f"no reply left for {who!r} (request {len(self.requests)})")
        return script[0] if self.repeat and len(script) == 1 else script.pop(0)

    def as_reply(self, value: Any) -> ChatReply:
        """A reply of whatever a script holds."""
        if isinstance(value, Exception):
            raise value
        if isinstance(value, ChatReply):
            return value
        return ChatReply(as_message(value), self.usage, model_id=self.name)

    def requests_of(self, who: str) -> list[ChatRequest]:
        """The requests of one script."""
        return [request for request in self.requests if self.script_of(request) == who]

    def questions(self, who: str) -> list[str]:
        """What each request of a script says, all its messages together, errors among them."""
        return [
            "\n".join(_read(message) for message in request.messages) for request in self.requests_of(who)
        ]

    @property
    def counts(self) -> dict[str, int]:
        """How often each script was asked."""
        return dict(Counter(self.script_of(request) for request in self.requests))

    @property
    def used_up(self) -> bool:
        """Whether every reply was given."""
        return not any(self.replies.values())


def _read(message: Any) -> str:
    return "\n".join(filter(None, (text_of(message), message.get("error"))))


def as_message(value: Any) -> ChatAssistantMessage:
    """An assistant message of a text, of calls, or of such a message."""
    if isinstance(value, dict):
        message: Any = copy.deepcopy(value)
        return message
    return assistant(None, value) if isinstance(value, list) else assistant(value)


def call(function: str, **args: Any) -> FunctionCall:
    """A tool call."""
    return FunctionCall(function=function, args=args, id=f"call_{function}")


__all__ = ["EVERY", "OutOfReplies", "ScriptedModel", "as_message", "call"]
