"""A made-up world for questions side by side: replies drawn from what is asked, at moments drawn by a schedule."""

from __future__ import annotations

import datetime
import hashlib
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from random import Random
from typing import Annotated, Any

from agentdojo.functions_runtime import Depends, FunctionCall, TaskEnvironment, make_function
from agentdojo.task_suite import get_suite
from agentdojo.types import ChatMessage
from pydantic import Field
from scripted_model import as_message

from agentsys.benchmarks.repeatable_tools import (
    CaseRandom,
    install_case_clocks,
    install_case_random,
    use_case_clock,
    use_case_random,
)
from agentsys.benchmarks.traced_tools import TracedRuntime
from agentsys.contracts import Defense
from agentsys.models.budget import UsageLog
from agentsys.models.chat import ChatReply, ChatRequest, ModelError, Usage
from agentsys.models.trace import Tracer, use_tracer
from agentsys.models.wrappers.accounting import MeteredModel, RecordingModel

BANKING = get_suite("v1.2.2", "banking")
Draw = Callable[[Random, ChatRequest], Any]
"""Makes a reply (see `scripted_model`), or an error, of a question."""


class Diary(TaskEnvironment):
    """An environment with a list of lines."""

    lines: list[str] = Field(default_factory=lambda: ["first", "second", "third"])


Lines = Annotated[list[str], Depends("lines")]


def read_line(lines: Lines, number: int) -> str:
    """Reads a line.

    :param number: Its number.
    """
    return f"{lines[number % len(lines)]}, one of {len(lines)}"


def read_clock() -> str:
    """Reads the clock."""
    return str(datetime.datetime.now())


def read_dice() -> int:
    """Rolls a die."""
    return random.randint(1, 6)


def read_and_mark(lines: Lines) -> str:
    """Reads the last line, and secretly writes another."""
    lines.append("marked")
    return lines[-2]


def read_nothing() -> str:
    """Fails."""
    raise ValueError("nothing to read")


def write_line(lines: Lines, text: str) -> str:
    """Writes a line.

    :param text: Its text.
    """
    lines.append(text)
    return "written"


TOOLS = [
    make_function(f) for f in (read_line, read_clock, read_dice, read_and_mark, read_nothing, write_line)
]
LABELS = {tool.name: "query" if tool.name.startswith("read") else "command" for tool in TOOLS}
install_case_clocks(BANKING, [sys.modules[__name__]])
install_case_random([sys.modules[__name__]])


def draw_calls(draw: Random, most: int, intent: Any = None) -> list[FunctionCall]:
    """One to `most` calls of these tools, most of them reading."""
    calls = []
    for number in range(draw.randint(1, most)):
        tool = draw.choice(["read_line"] * 4 + [each.name for each in TOOLS])
        args: dict[str, Any] = {} if intent is None else {"intent": intent}
        args |= {"number": draw.randint(0, 4)} if tool == "read_line" else {}
        args |= {"text": draw.choice("abc")} if tool == "write_line" else {}
        calls.append(FunctionCall(function=tool, args=args, id=f"call_{number}_{draw.randint(0, 999)}"))
    return calls


class DrawnModel:
    """Replies as the question and the seed say; waits as the schedule says."""

    def __init__(self, name: str, roles: Mapping[str, Draw], seed: int, schedule: int | None = None) -> None:
        self.name, self.roles, self.seed = name, roles, seed
        self._delays = None if schedule is None else Random(schedule)
        self._lock = threading.Lock()
        self.asked: list[str] = []
        self.asked_ahead = 0

    def complete(self, request: ChatRequest) -> ChatReply:
        text = json.dumps([self.seed, request.role, list(request.messages)], default=str)
        draw = Random(hashlib.sha256(text.encode()).digest())
        with self._lock:
            self.asked.append(text)
            self.asked_ahead += threading.current_thread().name.startswith("early-question")
            delay = 0.0 if self._delays is None else self._delays.choice([0, 0, 0.0005, 0.002])
        time.sleep(delay)
        value = self.roles[request.role](draw, request)
        if isinstance(value, Exception):
            raise value
        return ChatReply(as_message(value), Usage(draw.randint(1, 90), draw.randint(1, 9)), model_id="drawn")


class _Onlooker:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def note_request(self, request: ChatRequest) -> None:
        self.seen.append([request.role, json.dumps(list(request.messages), default=str)])

    def note_tool_result(self, value: object, error: str | None) -> None:
        self.seen.append([str(value), error])

    def holds_planted(self, text: str) -> bool:
        return False

    def note_rewritten_text(self, original: str, shown: str) -> None:
        self.seen.append([original, shown])


def play_case(
    defense: Defense, model: DrawnModel, *, side_by_side: bool, books: UsageLog | None = None
) -> dict[str, Any]:
    """Run one request; everything that a record and a watcher see of it, without times."""
    env, onlooker = Diary(), _Onlooker()
    recording = RecordingModel(MeteredModel(model, sent=False), side_by_side=side_by_side)
    pipeline = defense.pipeline(recording, BANKING)
    messages: Sequence[ChatMessage] = ()
    error = ""
    with (
        use_tracer(Tracer(watchers=[onlooker], usage_log=books)) as tracer,
        use_case_clock(datetime.datetime(2025, 1, 1)),
        use_case_random(CaseRandom(("dice",))),
    ):
        try:
            messages = pipeline.query("Read my diary.", TracedRuntime(TOOLS), env)[3]
        except ModelError as raised:
            error = str(raised)
        after = [read_clock(), read_dice()]
    spans = [{**asdict(span), "duration_s": 0} for span in tracer.spans]
    for span in spans:
        span["calls"] = [{**call, "latency_s": 0} for call in span["calls"]]
    return {
        "messages": list(messages),
        "error": error,
        "spans": spans,
        "lines": env.lines,
        "executed": [tracer.executed_calls, tracer.executed_attempts, tracer.decision_points],
        "tokens": tracer.tokens,
        "seen": onlooker.seen,
        "after": after,
    }
