"""What the tests of FIDES share: scripted replies on AgentDojo's suites, and what became of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.types import ChatAssistantMessage, ChatMessage

from agentsys.models.chat import ChatReply, ChatRequest, assistant, text_of
from agentsys.models.trace import Tracer, use_tracer
from baselines.fides.defense import Fides

Reply: TypeAlias = ChatAssistantMessage | Callable[[ChatRequest], ChatAssistantMessage]


class Scripted:
    """Gives the planner's replies and the quarantined model's, each in order, and keeps what was asked."""

    name = "scripted"

    def __init__(self, replies: Sequence[Reply], answers: Sequence[Any] = ()) -> None:
        self.replies, self.answers = list(replies), list(answers)
        self.planned: list[ChatRequest] = []
        self.read: list[list[ChatMessage]] = []

    def complete(self, request: ChatRequest) -> ChatReply:
        if request.role == "query":
            assert not request.tools
            self.read.append(copy.deepcopy(list(request.messages)))
            answer = self.answers.pop(0)
            return ChatReply(assistant(answer if isinstance(answer, str) else json.dumps(answer)))
        self.planned.append(ChatRequest(copy.deepcopy(list(request.messages)), request.tools, request.role))
        reply = self.replies.pop(0)
        return ChatReply(reply(request) if callable(reply) else copy.deepcopy(reply))

    @property
    def heard(self) -> str:
        """Everything the planner was ever asked with."""
        return json.dumps([request.messages for request in self.planned], default=str)


def call(function: str, **args: Any) -> ChatAssistantMessage:
    """A reply with one call."""
    return assistant(
        f"Calling {function}.", [FunctionCall(function=function, args=args, id=f"call_{function}")]
    )


def say(text: str) -> ChatAssistantMessage:
    """A reply without calls."""
    return assistant(text)


@dataclass
class Ran:
    """What a run of the defense left."""

    messages: list[ChatMessage]
    environment: Any
    tracer: Tracer

    @property
    def answer(self) -> str:
        return text_of(self.messages[-1])

    def results(self) -> list[str]:
        """What the planner read of its calls: text, or error."""
        return [text_of(m) or str(m["error"] or "") for m in self.messages if m["role"] == "tool"]

    def labels(self) -> list[tuple[bool, bool]]:
        """Whether the conversation was trusted, and public, at each call."""
        spans = [span for span in self.tracer.spans if span.kind == "fides_call"]
        return [(span.decision["trusted"], span.decision["public"]) for span in spans]


@lru_cache(maxsize=8)
def suite_of(name: str) -> Any:
    return get_suite("v1.2.2", name)


@lru_cache(maxsize=8)
def _environment(name: str) -> TaskEnvironment:
    environment: TaskEnvironment = suite_of(name).load_and_inject_default_environment({})
    return environment


def fresh(suite: str) -> Any:
    """A copy of the suite's clean environment."""
    return _environment(suite).model_copy(deep=True)


def run_fides(
    suite: str, model: Scripted, environment: Any = None, *, query: str = "Do it.", **options: Any
) -> Ran:
    """One task of the defense on a suite's tools."""
    chosen, environment = suite_of(suite), fresh(suite) if environment is None else environment
    with use_tracer(Tracer()) as tracer:
        pipeline = Fides(**options).pipeline(model, chosen)
        messages = list(pipeline.query(query, FunctionsRuntime(chosen.tools), environment)[3])
    return Ran(messages, environment, tracer)
