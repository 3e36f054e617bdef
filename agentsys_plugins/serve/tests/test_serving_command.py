"""`agentsys serve`: what it prints and refuses; the model behind it is stubbed."""

from __future__ import annotations

import os
import re
import signal
import threading
import urllib.request
from collections.abc import Sequence
from unittest.mock import Mock

import pytest
import typer
from scripted_for_serving import Scripted, says
from typer.testing import CliRunner, Result

from agentsys_plugins.serve import agent_server, serve_command

WAIT = serve_command.wait_for_interrupt
SEEN: list[str] = []


@pytest.fixture(autouse=True)
def _no_benchmark_and_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def model(overrides: Sequence[str]) -> Scripted:
        SEEN.extend(overrides)
        return Scripted(says("x"))

    monkeypatch.setattr(agent_server, "build_served_model", model)
    monkeypatch.setattr(serve_command, "wait_for_interrupt", lambda: None)
    monkeypatch.setattr(serve_command, "gc", Mock())  # This process is not the server's own.


def invoke(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(serve_command.serve_command)
    return CliRunner().invoke(app, ["--port", "0", *arguments])


def test_the_server_is_up_while_it_waits_and_one_line_says_how_to_use_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    printed: list[str] = []
    monkeypatch.setattr(serve_command, "print_line", printed.append)

    def visit() -> None:
        root = re.search(r"OpenAI at (\S+/v1);", printed[0])
        assert root is not None
        with urllib.request.urlopen(f"{root[1]}/models", timeout=100) as reply:
            assert reply.status == 200

    monkeypatch.setattr(serve_command, "wait_for_interrupt", visit)
    assert invoke().exit_code == 0
    assert "(not an LLM)" in printed[0] and "model=served" in printed[0]
    assert printed[1:] == ["Served 1 requests."]


def test_settings_of_the_simulated_model_reach_it_and_begin_no_agent() -> None:
    SEEN.clear()
    settings = ["benchmark=asb", "benchmark.tasks=2", "model.susceptibility=0.5", "seed=7"]
    assert invoke(*settings).exit_code == 0
    assert settings == SEEN


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_kill_end_the_wait(end: signal.Signals) -> None:
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    # Tests that were started in the background come with Ctrl-C switched off, and would wait for ever.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.1, os.kill, (os.getpid(), end)).start()
    try:
        WAIT()
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
