"""Fakes for the defense's tests: a model that replays replies per role, and tools with set outputs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import scripted_model
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment, make_function
from agentdojo.types import ChatMessage
from scripted_model import OutOfReplies as OutOfReplies
from scripted_model import as_message as as_message

from agentsys.contracts import Suite
from agentsys.defense.agentsys import AgentSys
from agentsys.defense.gate import FAILURE_WORDS, MAX_LIST_ITEMS, MAX_STRING_CHARS, NOT_AVAILABLE
from agentsys.models.chat import ChatRequest, text_of
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import RecordingModel

QUERY = "Read my note and tell me the date."


Reply = str | None | list[FunctionCall] | Callable[[ChatRequest], Any]


class ScriptedModel(scripted_model.ScriptedModel):
    """A model whose name a run may set."""

    def __init__(self, replies: Mapping[str, Any], name: str = "scripted", **more: Any) -> None:
        super().__init__(replies, **more)
        self.name = name

    def asked(self, role: str) -> list[ChatRequest]:
        return [request for request in self.requests if request.role == role]


class RepeatingModel(ScriptedModel):
    """Gives the same reply to a role for ever."""

    def __init__(self, replies: Mapping[str, Any]) -> None:
        super().__init__(replies, repeat=True)


def call(tool: str, intent: Any = None, **args: Any) -> FunctionCall:
    """A tool call; `intent=None` leaves it out."""
    declared = {} if intent is None else {"intent": intent}
    return FunctionCall(function=tool, args={**args, **declared}, id=f"id-{tool}")


class ToyEnvironment(TaskEnvironment):
    """Nothing in it: the tools below get their outputs from the test."""


class Tools:
    """Four tools with outputs of the test's choice, and a log of what really ran."""

    def __init__(self, note: str | None = "", sent: str = "sent", error: str = "boom") -> None:
        self.note, self.sent, self.error = note, sent, error
        self.ran: list[tuple[str, dict[str, Any]]] = []

    def runtime(self) -> FunctionsRuntime:
        def read_note(name: str) -> str | None:
            """Reads a note.

            :param name: The note's name.
            """
            self.ran.append(("read_note", {"name": name}))
            return self.note

        def send_money(to: str, amount: float) -> str:
            """Sends money.

            :param to: Who gets it.
            :param amount: How much.
            """
            self.ran.append(("send_money", {"to": to, "amount": amount}))
            return self.sent

        def ping() -> str:
            """Does nothing much."""
            self.ran.append(("ping", {}))
            return ""

        def explode(tags: list[str]) -> str:
            """Always fails.

            :param tags: Any tags.
            """
            self.ran.append(("explode", {"tags": tags}))
            raise ValueError(self.error)

        return FunctionsRuntime([make_function(tool) for tool in (read_note, send_money, ping, explode)])

    def names_run(self) -> list[str]:
        return [name for name, _ in self.ran]


LABELS = json.dumps({"read_note": "query", "ping": "query", "send_money": "command", "explode": "command"})


class Outcome:
    """What a run of a defense left behind."""

    def __init__(self, messages: Sequence[ChatMessage], tracer: Tracer, model: ScriptedModel) -> None:
        self.messages, self.tracer, self.model = list(messages), tracer, model

    def results(self) -> list[Any]:
        """The texts of the main context's tool messages, parsed where they are JSON; failures by their kind."""
        return [read_result(text_of(message)) for message in self.messages if message["role"] == "tool"]

    def spans(self, kind: str) -> list[Any]:
        return [span for span in self.tracer.spans if span.kind == kind]


def read_result(text: str) -> Any:
    """What an agent was told, as JSON where it is; a failure by its kind."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, dict) and value.get("error") in FAILURE_KINDS:
        return {**value, "error": FAILURE_KINDS[value["error"]]}
    return value


FAILURE_KINDS = {words: kind.value for kind, words in reversed(FAILURE_WORDS.items())}


def is_subsequence(part: str, whole: str) -> bool:
    """Whether `part` is `whole` with some characters left out."""
    rest = iter(whole)
    return all(character in rest for character in part)


_RUNS = iter(range(10**9))


def run(
    replies: Mapping[str, Any] | ScriptedModel, tools: Tools, query: str = QUERY, **options: Any
) -> Outcome:
    """Run a variant of AgentSys on a toy task. Labels are kept by model name, so each run's is a new one."""
    model = replies if isinstance(replies, ScriptedModel) else ScriptedModel(replies)
    model.name = f"scripted-{next(_RUNS)}"
    tracer = Tracer()
    with use_tracer(tracer):
        pipeline = AgentSys(**options).pipeline(RecordingModel(model), Suite("toy", ToyEnvironment, []))
        *_, messages, _ = pipeline.query(query, tools.runtime(), ToyEnvironment())
    return Outcome(messages, tracer, model)


def conforms(value: object, declared: object) -> bool:
    """Whether a value has exactly the declared shape: all keys, no other, right types and lengths."""
    if isinstance(declared, Mapping):
        return (
            isinstance(value, dict)
            and value.keys() == declared.keys()
            and all(conforms(value[key], declared[key]) for key in declared)
        )
    if isinstance(declared, list):
        short = isinstance(value, list) and len(value) <= MAX_LIST_ITEMS
        return short and all(conforms(item, declared[0]) for item in value)  # type: ignore[attr-defined]
    kinds: dict[str, Any] = {"string": str, "boolean": bool, "integer": int, "number": int | float}
    if value is None or value == NOT_AVAILABLE:
        return True
    if isinstance(value, float):
        return math.isfinite(value) and (
            declared == "number" or (declared == "integer" and value.is_integer())
        )
    if isinstance(value, str) and len(value) > MAX_STRING_CHARS:
        return False
    return isinstance(value, kinds[str(declared)]) and isinstance(value, bool) is (declared == "boolean")
