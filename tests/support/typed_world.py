"""A small world for `agentsys_typed`: tools whose values a test sets, and models that read and answer by rule."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml
from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment, make_function
from agentdojo.types import ChatMessage
from scripted_for_defense import Outcome, ScriptedModel, as_message

from agentsys.defense.prompts import WORKER_SECTIONS, read_sections
from agentsys.models.chat import ChatReply, ChatRequest, text_of, user
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import RecordingModel
from agentsys_plugins.typed.typed_agentsys import AgentSysTyped

LABELS = json.dumps({"look": "query", "listing": "query", "send": "command", "fail": "query"})


class NoData(TaskEnvironment):
    """Nothing in it: tools get their values from the test."""


class World:
    """Tools with values of the test's choice; `ran` holds what really ran."""

    def __init__(self, value: Any = None, error: Exception | None = None) -> None:
        self.value, self.error = value, error
        self.sent: Any = "sent"
        self.ran: list[tuple[str, dict[str, Any]]] = []

    def runtime(self) -> FunctionsRuntime:
        def look(query: str) -> Any:
            """Look something up.

            :param query: What is wanted.
            """
            self.ran.append(("look", {"query": query}))
            return self.value

        def listing(n: int = 10) -> Any:
            """List one's own things.

            :param n: How many.
            """
            self.ran.append(("listing", {"n": n}))
            return self.value

        def send(recipient: str, amount: float = 1.0, body: str = "", password: str | None = None) -> Any:
            """Send something.

            :param recipient: To whom.
            :param amount: How much.
            :param body: What is said.
            :param password: The password.
            """
            self.ran.append(("send", {"recipient": recipient, "amount": amount, "body": body}))
            return self.sent

        def fail(query: str) -> str:
            """Always fails.

            :param query: Anything.
            """
            raise self.error or ValueError("no")

        return FunctionsRuntime([make_function(tool) for tool in (look, listing, send, fail)])


class FaithfulReader(ScriptedModel):
    """Replays the main agent's replies; its workers give what stands under a field's name, or null."""

    def complete(self, request: ChatRequest) -> ChatReply:
        if request.role != "worker":
            return super().complete(request)
        self.requests.append(request)
        return ChatReply(as_message(json.dumps(self.read(request))))

    def read(self, request: ChatRequest) -> dict[str, Any]:
        sections = read_sections(text_of(request.messages[1]), WORKER_SECTIONS)
        assert sections is not None
        try:
            output = yaml.safe_load(sections[2])
        except yaml.YAMLError:
            output = None
        return {name: find_value(output, name) for name in json.loads(sections[0])}


def find_value(node: Any, name: str) -> Any:
    """The first value under a key anywhere in plain data; signs of the blind view are none."""
    if isinstance(node, list):
        node = dict(enumerate(node))
    if not isinstance(node, Mapping):
        return None
    if name in node and not str(node[name]).startswith("<text"):
        return node[name] if isinstance(node[name], bool | int | float | str | list) else str(node[name])
    return next((value for child in node.values() if (value := find_value(child, name)) is not None), None)


_RUNS = iter(range(10**9))


class TypedOutcome(Outcome):
    """What one request left behind."""

    @property
    def answer(self) -> str:
        return text_of(self.messages[-1])

    def main_texts(self) -> list[str]:
        """Everything that the main agent was ever asked with, calls included."""
        return [
            repr([(m["role"], text_of(m), str(m.get("tool_calls"))) for m in request.messages])
            for request in self.model.asked("main")
        ]


def run_typed(
    model: ScriptedModel | Mapping[str, Any],
    world: World,
    query: str,
    before: Sequence[ChatMessage] = (),
    **options: Any,
) -> TypedOutcome:
    """Run a variant over a world; labels are kept by model name, so each run's is a new one."""
    chosen = model if isinstance(model, ScriptedModel) else FaithfulReader(model)
    chosen.replies.setdefault("privileges", [LABELS])
    chosen.name = f"typed-{next(_RUNS)}"
    tracer = Tracer()
    with use_tracer(tracer):
        pipeline = AgentSysTyped(**options).pipeline(RecordingModel(chosen), object())  # type: ignore[arg-type]
        start = [*before, user(query)] if before else []
        element = pipeline.elements[-1] if before else pipeline  # type: ignore[attr-defined]
        *_, messages, _ = element.query(query, world.runtime(), NoData(), start)
    return TypedOutcome(messages, tracer, chosen)


Choose = Callable[[list[Any]], Any]
"""Picks one of several things."""
