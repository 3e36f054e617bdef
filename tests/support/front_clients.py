"""Clients of a served agent that need no socket: they speak to the desk as a server does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage, text_content_block_from_string

from agentsys.contracts import Defense
from agentsys.models.chat import ChatModel, Scene, ToolSpec, system, text_of, user
from agentsys.models.wrappers.accounting import RecordingModel
from agentsys_plugins.serve.conversation_router import THREAD_NAME, ConversationLimits, ConversationRouter
from agentsys_plugins.serve.defended_agent import DefendedAgent, Dialogue
from agentsys_plugins.serve.served_model import Server, serve
from agentsys_plugins.serve.served_model.wire_format import RequestRefused, TracedReply, WireRequest

TEXT = {"type": "string"}
PAGE = {"type": "object", "properties": {"page": TEXT}, "required": ["page"]}
READ = ToolSpec("read", "Reads a page.", PAGE)
SEND = ToolSpec(
    "send",
    "Sends a text to somebody.",
    {"type": "object", "properties": {"to": TEXT, "text": TEXT}, "required": ["to", "text"]},
)
PATIENCE_S = 120.0
_OPEN: list[ConversationRouter] = []


class PlainStack:
    """A model as it is, in place of a stack of wrappers."""

    simulated = True

    def __init__(self, model: ChatModel) -> None:
        self.model = model

    def for_scene(self, scene: Scene) -> ChatModel:
        return RecordingModel(self.model)

    def model_id(self, role: str) -> str:
        return ""


def desk_of(
    model: ChatModel,
    defense: Defense,
    *,
    limits: ConversationLimits | None = None,
    kept: list[Dialogue] | None = None,
) -> ConversationRouter:
    """A desk whose conversations are kept in a list, as they were when they were stored."""
    keep = (kept if kept is not None else []).append
    desk = ConversationRouter(DefendedAgent(defense, PlainStack(model)), "front", keep, limits)  # type: ignore[arg-type]
    _OPEN.append(desk)
    return desk


@contextmanager
def served_desk(model: ChatModel, defense: Defense, **more: Any) -> Iterator[Server]:
    """A server with a desk behind it."""
    desk = desk_of(model, defense, **more)
    with serve(desk) as server:
        yield server
    desk.stop()


def count_resting(desk: ConversationRouter) -> int:
    """Turns that can be gone on from."""
    return sum(len(account.resting) for account in desk._accounts.values())


def ask(desk: ConversationRouter, owner: str, request: WireRequest) -> TracedReply:
    """The reply to a request, whenever it comes."""
    return desk.take(replace(request, owner=owner))[1].result(PATIENCE_S)


def stop_desks() -> None:
    """End what the clients of every desk made so far left waiting."""
    while _OPEN:
        _OPEN.pop().stop()


def result(call: FunctionCall, text: str) -> ChatMessage:
    content = [text_content_block_from_string(text)]
    return {"role": "tool", "content": content, "tool_call": call, "tool_call_id": call.id, "error": None}


class Client:
    """An agent loop: keeps a transcript, runs the calls that it is handed, resends everything."""

    def __init__(
        self,
        desk: ConversationRouter,
        tools: Mapping[str, Callable[..., str]],
        specs: Sequence[ToolSpec] = (READ, SEND),
        *,
        owner: str = "me",
        told: str = "",
    ) -> None:
        self.desk, self.tools, self.specs, self.owner = desk, dict(tools), specs, owner
        self.messages: list[ChatMessage] = [system(told)] if told else []
        self.replies: list[TracedReply] = []

    def request(self, **more: Any) -> WireRequest:
        return WireRequest(list(self.messages), self.specs, **{"size": len(str(self.messages)), **more})

    def send(self, **more: Any) -> TracedReply:
        """Send the transcript once, and add the reply to it."""
        reply = ask(self.desk, self.owner, self.request(**more))
        self.replies.append(reply)
        self.messages.append(reply.message)
        return reply

    def say(self, text: str) -> TracedReply:
        self.messages.append(user(text))
        return self.send()

    def run_calls(self) -> None:
        """Run the calls of the last reply and add their results."""
        for call in self.replies[-1].message["tool_calls"] or ():
            self.messages.append(result(call, self.tools[call.function](**call.args)))

    def ask(self, text: str) -> str:
        """Say something and run tools until there is an answer."""
        reply = self.say(text)
        while reply.message["tool_calls"]:
            self.run_calls()
            reply = self.send()
        return text_of(reply.message)


def conversations_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(THREAD_NAME)]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait for a state, for as long as a busy machine may take."""
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.01)


@contextmanager
def refused(
    status: int, words: str | None = None, *, code: str | None = None
) -> Iterator[pytest.ExceptionInfo[RequestRefused]]:
    """The block's request is refused with this status, with these words and this code where they are given."""
    with pytest.raises(RequestRefused, match=words) as found:
        yield found
    assert found.value.status == status
    assert code in (None, found.value.code)
