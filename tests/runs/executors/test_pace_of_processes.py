"""Worker processes together ask a server no faster than it answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paid_server import Answer, fails, paid_model, paid_server, says
from small_runs import Silent

from agentsys.runs.executors.outcome import RunOutcome
from agentsys.runs.session import prepare

ALLOWED = 10
"""Requests that the server answers in any second."""
SETTLED_S = 15.0
"""After so long the rate has been found."""


class Window:
    """Refuses what is beyond so many requests in a second."""

    def __init__(self) -> None:
        self._answered = deque[float]()
        self._start = time.monotonic()
        self.asked = self.refused = 0

    def answer(self, _: int, __: dict[str, Any]) -> Answer:
        now = time.monotonic()
        while self._answered and self._answered[0] <= now - 1.0:
            self._answered.popleft()
        full = len(self._answered) >= ALLOWED
        if now - self._start > SETTLED_S:
            self.asked += 1
            self.refused += full
        if full:
            return fails(429)
        self._answered.append(now)
        return says()


def ran(folder: Path, answer: Callable[[int, dict[str, Any]], Answer], epochs: int) -> RunOutcome:
    """All cases of a suite, of one request each, in two processes of 16 agents."""
    many = ["executor=processes", "executor.processes=2", "executor.workers=32", f"epochs={epochs}"]
    plan = ["model=paid", "benchmark.suites=[slack]", "attack=direct", "preflight=false", *many]
    with paid_server(answer) as server:
        conf = paid_model(folder, server.url, cache=False, retry={"attempts": 8})
        return prepare([*plan, f"logdir={folder / 'runs'}"], config_dirs=[conf]).execute(Silent())


@pytest.mark.slow
def test_a_server_that_is_asked_too_often_refuses_few_and_no_case_fails(tmp_path: Path) -> None:
    window = Window()
    outcome = ran(tmp_path, window.answer, epochs=4)
    assert (outcome.errors, outcome.fatal, outcome.finished) == (0, None, 420)
    assert window.asked >= 200, "it was over before the rate was found"
    assert window.refused <= 0.1 * window.asked


@pytest.mark.slow
def test_what_one_process_is_told_to_wait_both_wait(tmp_path: Path) -> None:
    refused_at, disturbed = list[float](), list[float]()

    def answer(number: int, _: dict[str, Any]) -> Answer:
        """Refuse one request of many; who was not told is answered all the same."""
        if number == 60:
            refused_at.append(time.monotonic())
            return 429, {"error": {"message": "no", "details": [{"retryDelay": "4s"}]}}
        time.sleep(0.02)
        if refused_at and 1.5 < (after_s := time.monotonic() - refused_at[0]) < 3.9:
            disturbed.append(after_s)
        return says()

    outcome = ran(tmp_path, answer, epochs=4)
    assert (outcome.errors, outcome.fatal, outcome.finished) == (0, None, 420)
    assert disturbed == []
