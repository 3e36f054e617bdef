"""A model with a reply for each of DRIFT's roles, and a short way to run the agent with it."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.types import ChatMessage

from agentsys.models.chat import ChatReply, ChatRequest, assistant, text_of
from agentsys.models.trace import Span, Tracer, use_tracer
from baselines.drift.drift_agent import DriftAgent
from baselines.drift.drift_settings import DriftSettings, PermissionCache

QUERY = "Pay the bill in bill.txt."
STOP = "<function_call>[]</function_call><final_answer>Done.</final_answer>"


def plan(*names: str, checklist: object = None) -> str:
    """A planner's reply."""
    entries = checklist if checklist is not None else [entry(name) for name in names]
    text = entries if isinstance(entries, str) else json.dumps(entries)
    return (
        f"<function_trajectory>[{', '.join(names)}]</function_trajectory>"
        f"<parameter_checklist>{text}</parameter_checklist>"
    )


def entry(name: str, **required: Any) -> dict[str, Any]:
    return {"name": name, "required parameters": required or None, "conditions": None}


def call(*calls: str) -> str:
    """An actor's reply that makes these calls."""
    return f"<function_thought>next</function_thought><function_call>[{', '.join(calls)}]</function_call>"


def detected(*spans: Any) -> str:
    return f"<detected_instructions>{json.dumps(spans)}</detected_instructions>"


class RoleModel:
    """Gives each role its replies in order; the last one again and again."""

    name = "roles"

    def __init__(self, **replies: str | Sequence[str]) -> None:
        given = {"agent": STOP, "drift_planner": plan(), "drift_isolator": detected(), **replies}
        self.replies: dict[str, list[str]] = {
            role: [said] if isinstance(said, str) else list(said) for role, said in given.items()
        }
        self.asked: list[ChatRequest] = []

    def complete(self, request: ChatRequest) -> ChatReply:
        self.asked.append(copy.deepcopy(request))
        said = self.replies.get(request.role)
        if said is None:
            assert request.role == "drift_formatter", f"nobody expected {request.role}"
            question = text_of(request.messages[-1])
            return ChatReply(assistant(question.partition("<parameter_checklist>")[2].partition("</")[0]))
        return ChatReply(assistant(said.pop(0) if len(said) > 1 else said[0]))

    def count(self, role: str) -> int:
        return sum(request.role == role for request in self.asked)

    def requests(self, role: str) -> list[str]:
        """What each request of a role says, all its messages together."""
        found = [request for request in self.asked if request.role == role]
        return ["\n".join(_read(message) for message in request.messages) for request in found]


def _read(message: ChatMessage) -> str:
    error = message["error"] if message["role"] == "tool" else None
    return f"{text_of(message)}\n{error}" if error else text_of(message)


class Tools:
    """A runtime of four tools that notes what ran."""

    def __init__(self, bill: Any = "Pay 5 to Bob.", note: Any = "A note.") -> None:
        self.ran: list[str] = []
        self.runtime = FunctionsRuntime()

        def read_bill(path: str = "bill.txt") -> str:
            """Reads a bill.

            :param path: Where it is.
            """
            return self._result("read_bill", bill)

        def read_note() -> str:
            """Reads a note."""
            return self._result("read_note", note)

        def pay(to: str, amount: int = 0) -> str:
            """Pays.

            :param to: Whom.
            :param amount: How much.
            """
            self.ran.append(f"pay {to} {amount}")
            return "paid"

        def mail(to: str) -> str:
            """Sends a mail.

            :param to: To whom.
            """
            self.ran.append(f"mail {to}")
            return "sent"

        for tool in (read_bill, read_note, pay, mail):
            self.runtime.register_function(tool)

    def _result(self, name: str, result: Any) -> str:
        self.ran.append(name)
        if isinstance(result, Exception):
            raise result
        return str(result)


PERMISSIONS = {"drift_permissions": ["A", "A", "B", "C"]}


def run(
    model: RoleModel, tools: Tools, settings: DriftSettings | None = None, **options: Any
) -> tuple[list[Any], list[Span]]:
    """The conversation and the spans of one task."""
    model.replies.setdefault("drift_permissions", list(PERMISSIONS["drift_permissions"]))
    agent = DriftAgent(model, settings or DriftSettings(**options), "You work for Emma.", PermissionCache())
    first: ChatMessage = {"role": "user", "content": [{"type": "text", "content": QUERY}]}
    with use_tracer(Tracer()) as tracer:
        messages = agent.query(QUERY, tools.runtime, messages=[first])[3]
    return list(messages), tracer.spans


def decisions(spans: Sequence[Span], kind: str) -> list[Mapping[str, Any]]:
    return [span.decision for span in spans if span.kind == kind]
