"""A policy model and an agent with scripted replies, and a short way to run Progent with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.types import ChatMessage
from scripted_model import ScriptedModel

from agentsys.models.chat import ChatRequest, assistant, text_of
from agentsys.models.trace import Tracer, use_tracer
from baselines.progent.defense import Progent

QUERY = "Pay Bob's bill\nand tell him."


def rules(**tools: Any) -> str:
    """A policy model's reply: tool -> conditions; a list of conditions gives a rule for each."""
    entries = [
        {"name": name, "args": args}
        for name, given in tools.items()
        for args in (given if isinstance(given, list) else [given])
    ]
    return json.dumps(entries)


def call(name: str, **args: Any) -> FunctionCall:
    return FunctionCall(function=name, args=args, id=f"call_{name}")


class Scripted(ScriptedModel):
    """Plays the agent, whose turns are calls and then "Done.", and the policy model, which repeats itself."""

    def __init__(self, turns: Sequence[Sequence[FunctionCall]], policy: Any = "[]") -> None:
        calling = [assistant("next", list(turn)) for turn in turns]
        super().__init__({"agent": [*calling, assistant("Done.", [])], "policy": policy}, repeat=True)


class Desk:
    """A runtime of a few tools that notes what ran."""

    def __init__(self, note: str = "The account is DE89.") -> None:
        self.ran: list[tuple[Any, ...]] = []
        self.runtime = FunctionsRuntime()

        def get_note() -> str:
            """Gets the note."""
            self.ran.append(("get_note",))
            return note

        def get_page(url: str) -> str:
            """Gets a page.

            :param url: Where.
            """
            self.ran.append(("get_page", url))
            return "A page."

        def pay(to: str, amount: float = 1.0, subject: str | None = None) -> str:
            """Pays.

            :param to: Whom.
            :param amount: How much.
            :param subject: What for.
            """
            self.ran.append(("pay", to, amount, subject))
            return "paid"

        def mail(to: list[str]) -> str:
            """Mails.

            :param to: To whom.
            """
            self.ran.append(("mail", *to))
            if to == ["broken"]:
                raise ValueError("no such address")
            return "sent"

        for tool in (get_note, get_page, pay, mail):
            self.runtime.register_function(tool)


def suite_named(name: str) -> Any:
    """What a defense looks at of a suite."""
    return SimpleNamespace(name=name, system_message="You work for Emma.")


def run(
    model: Scripted,
    desk: Desk | None = None,
    *,
    query: str = QUERY,
    suite: str = "nowhere",
    tracer: Tracer | None = None,
    **options: Any,
) -> list[ChatMessage]:
    """The conversation of one task."""
    pipeline = Progent(**options).pipeline(model, suite_named(suite))
    with use_tracer(tracer or Tracer()):
        return list(pipeline.query(query, (desk or Desk()).runtime)[3])


def errors(messages: Sequence[ChatMessage]) -> list[str | None]:
    """The error of each tool message, in order."""
    return [message["error"] for message in messages if message["role"] == "tool"]


def question_of(request: ChatRequest) -> str:
    """Everything a policy model is told."""
    return "\n".join(text_of(message) for message in request.messages)


__all__ = ["QUERY", "Desk", "Scripted", "call", "errors", "question_of", "rules", "run"]
