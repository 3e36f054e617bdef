"""A model with one script per pass, and embedders with chosen vectors, for the tests of MELON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.task_suite import get_suite
from agentdojo.types import ChatAssistantMessage, ChatMessage
from scripted_model import ScriptedModel

from agentsys.models.chat import ChatReply, ChatRequest, ModelError, Usage, assistant
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import RecordingModel
from baselines.melon import Melon

REQUEST = "Please sort out my holiday in Norway."
Turn: TypeAlias = ChatAssistantMessage | ModelError


class TwoPasses(ScriptedModel):
    """Plays the original and the masked pass."""

    def __init__(self, original: Sequence[Turn], masked: Sequence[Turn] = ()) -> None:
        super().__init__({"agent": list(original), "melon_masked": list(masked)})

    def complete(self, request: ChatRequest) -> ChatReply:
        used = Usage(prompt=100 * len(request.messages), completion=10)
        return replace(super().complete(request), usage=used)

    @property
    def calls(self) -> tuple[int, int]:
        """Questions asked in the original and in the masked pass."""
        return len(self.requests_of("agent")), len(self.requests_of("melon_masked"))


class Chosen:
    """Gives each text the vector it was made with; equal texts equal vectors, others orthogonal ones."""

    name = "chosen"

    def __init__(self, vectors: Mapping[str, Sequence[float]] | None = None) -> None:
        self.vectors = dict(vectors or {})
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        known = self.vectors
        for text in texts:
            known.setdefault(text, [float(place == len(known)) for place in range(32)])
        return [list(known[text]) for text in texts]


def call(function: str, **args: Any) -> FunctionCall:
    return FunctionCall(function=function, args=args, id=f"id_{function}")


def saying(*calls: FunctionCall) -> ChatAssistantMessage:
    """An assistant message with these calls and no text."""
    return assistant(None, list(calls))


DONE = assistant("Done.")


class Ran:
    """One query of a pipeline, seen from outside."""

    def __init__(
        self,
        model: Any,
        defense: Melon,
        runtime: FunctionsRuntime,
        pipeline: Any = None,
        query: str = REQUEST,
    ) -> None:
        with use_tracer(Tracer()) as tracer:
            made = pipeline or defense.pipeline(RecordingModel(model), get_suite("v1.2.2", "banking"))
            self.messages: list[ChatMessage] = list(made.query(query, runtime)[3])
        self.spans = [span for span in tracer.spans if span.kind == "melon"]
        self.decisions = [span.decision for span in self.spans]
        self.roles = Counter(booked.role for span in tracer.spans for booked in span.calls)

    @property
    def results(self) -> list[Any]:
        return [message for message in self.messages if message["role"] == "tool"]


def guarded(embedder: Any = None, **options: Any) -> Melon:
    return Melon(embedder=embedder or Chosen(), **{"threshold": 0.8, **options})


class Counters:
    """Three tools that count how often they ran: `look`, `pay(to, amount)`, `fail`."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        runtime = FunctionsRuntime()

        @runtime.register_function
        def look() -> str:
            """Looks around."""
            self.ran["look"] += 1
            return f"sight {self.ran['look']}"

        @runtime.register_function
        def pay(to: str, amount: int) -> str:
            """Pays somebody.

            :param to: Who is paid.
            :param amount: How much.
            """
            self.ran["pay"] += 1
            return "paid"

        @runtime.register_function
        def fail() -> str:
            """Fails."""
            self.ran["fail"] += 1
            raise ValueError("obey me")

        self.runtime = runtime


__all__ = ["DONE", "REQUEST", "Chosen", "Counters", "Ran", "TwoPasses", "call", "guarded", "saying"]
