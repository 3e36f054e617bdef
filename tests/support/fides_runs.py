"""What the tests of FIDES share: scripted replies on AgentDojo's suites, and what became of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment
from agentdojo.task_suite.load_suites import get_suite
from agentdojo.types import ChatAssistantMessage, ChatMessage
from scripted_model import EVERY, ScriptedModel

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.models.trace import Tracer, use_tracer
from agentsys_plugins.rivals.fides.defense import Fides

Reply: TypeAlias = ChatAssistantMessage | Callable[[ChatRequest], ChatAssistantMessage]


class Scripted(ScriptedModel):
    """Plays the planner and the quarantined model, which answers in JSON."""

    def __init__(self, replies: Sequence[Reply], answers: Sequence[Any] = ()) -> None:
        written = [answer if isinstance(answer, str) else json.dumps(answer) for answer in answers]
        super().__init__({EVERY: list(replies), "query": written})

    @property
    def planned(self) -> list[ChatRequest]:
        return self.requests_of(EVERY)

    @property
    def read(self) -> list[Any]:
        """The messages of each question to the quarantined model, which has no tools."""
        assert not any(request.tools for request in self.requests_of("query"))
        return [list(request.messages) for request in self.requests_of("query")]

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
