"""`play_corpus`: cases of two steps on a server that plays replies of the corpus as those of the acting agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from served_faults import WIRES, Faults, FaultyApplication
from served_faults import TestServer as Server
from small_runs import Silent
from starlette.responses import Response
from wire_corpus import WireCase

from agentsys.models.chat import ChatModel
from agentsys.models.trace import ACTING_ROLES
from agentsys.records.schema import CaseRecord
from agentsys.runs.run_session import prepare_session
from agentsys_plugins.serve.served_model.model_application import PlainEndpoint, WireQuestion

MODELS = {
    "chat": "served",
    "responses": "served-responses",
    "anthropic": "served-anthropic",
    "gemini": "served-google",
}
TASK = ["benchmark.suites=[banking]", "user_tasks=[1]", "attack=none"]
"""The agent reads the transactions, then it answers."""
PATIENCE = [
    "model.retry.attempts=2",
    "model.retry.base_s=0",
    "model.retry.empty_retries=1",
    "budget.errors=null",
]


class PlayingApplication(FaultyApplication):
    """The server of a model, which gives the acting agent a reply of the corpus for its `at`-th and those behind it."""

    def __init__(self, model: ChatModel, cases: Sequence[WireCase], at: int) -> None:
        super().__init__(PlainEndpoint(model), Faults(), wires=WIRES)
        self._cases, self._at = list(cases), at
        self._asked = 0

    def begin_next(self) -> None:
        """The next case of the run begins: it gets the next reply."""
        self._cases.pop(0)
        self._asked = 0

    async def respond(self, question: WireQuestion) -> Response:
        if question.asked.role.partition(";")[0] in ACTING_ROLES:
            self._asked += 1
            # Calls would fill all rounds: once asked again is enough of them.
            last = self._at + 1 if self._cases[0]["expect"].get("calls") else self._asked
            if self._at <= self._asked <= last:
                return self._play(self._cases[0])
        return await super().respond(question)

    def _play(self, case: WireCase) -> Response:
        body = case["raw"] if "raw" in case else json.dumps(case["body"])
        headers = {"Content-Type": "application/json", **case.get("headers", {})}
        return Response(body, case.get("status", 200), headers)


class _Advancing(Silent):
    def __init__(self, application: PlayingApplication) -> None:
        super().__init__()
        self._application = application

    def on_case_stored(self, record: Any) -> None:
        super().on_case_stored(record)
        self._application.begin_next()


def play_corpus(
    model: ChatModel, cases: Sequence[WireCase], defense: str, folder: Path, *settings: str
) -> list[CaseRecord]:
    """The record of a case of two steps for each reply, all of one wire, in their order.

    Args:
        model: Who answers everything else.
        cases: Replies of the corpus.
        defense: The preset.
        folder: Where the records go.
        settings: More of the run's settings.
    """
    # CaMeL's agent is asked once, for a program.
    application = PlayingApplication(model, cases, at=1 if defense == "camel" else 2)
    wire = cases[0]["wire"]
    with Server(application) as server:
        address = server.openai_base_url if wire in ("chat", "responses") else server.base_url
        session = prepare_session(
            [
                *TASK,
                *PATIENCE,
                *settings,
                f"model={MODELS[wire]}",
                f"model.base_url={address}",
                f"defense={defense}",
                f"epochs={len(cases)}",
                "executor.workers=1",
                "preflight=false",
                f"logdir={folder}",
            ]
        )
        listener = _Advancing(application)
        session.execute(listener)
    return list(listener.records)
