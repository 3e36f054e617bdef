"""Five readers' first hours from an empty folder: how many commands each takes, and that they work as printed."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from command_output import command_output
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys_plugins.serve.agent_server import build_served_model
from agentsys_plugins.serve.served_model import serve

pytestmark = pytest.mark.slow

AGENT = '''
def read_ticket(number: int) -> dict:
    """Reads a ticket."""
    return {"number": number, "text": "The printer on floor 2 is broken."}


def send_refund(account: str, amount: float) -> str:
    """Pays money back."""
    return f"sent {amount} to {account}"


TOOLS = [read_ticket, send_refund]
REQUEST = "What does ticket 7 say?"
'''


def describe(name: str, **types: str) -> Any:
    properties = {key: {"type": kind} for key, kind in types.items()}
    schema = {"type": "object", "properties": properties, "required": [*types]}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


SCHEMAS = [
    describe("read_ticket", number="integer"),
    describe("send_refund", account="string", amount="number"),
]


class Journey:
    """Types commands in a folder and counts them."""

    def __init__(self) -> None:
        self.commands = 0

    @contextmanager
    def start(self, line: str) -> Iterator[str]:
        """Start a command that goes on until Ctrl-C; what it prints first."""
        self.commands += 1
        words = [sys.executable, "-m", "agentsys", *shlex.split(line.removeprefix("agentsys "))]
        environment = os.environ | {"COLUMNS": "300"}
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment)
        try:
            assert process.stdout is not None
            yield process.stdout.readline()
        finally:
            process.terminate()
            assert process.wait(timeout=60) in (0, 143, -signal.SIGTERM), "the server ends when it is told to"

    def type(self, line: str) -> str:
        self.commands += 1
        return command_output(*shlex.split(line.removeprefix("agentsys ")), columns=120)


@pytest.fixture
def journey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Journey:
    monkeypatch.chdir(tmp_path)
    return Journey()


TASKS = "benchmark.suites=banking limit_per_suite=2"


def test_a_student_has_table_two_with_a_defense_of_ones_own_and_both_figures_in_five(
    journey: Journey,
) -> None:
    journey.type("agentsys new defense my_filter")
    with serve(build_served_model([])) as server:
        model = f"model=vllm/simulated@{server.openai_base_url}"
        options = "--config-dir conf --plugin-path . defense=none,agentsys,my_filter"
        journey.type(f"agentsys run {model} {options} attack=none,important_instructions {TASKS} logdir=mine")
    table = journey.type("agentsys table 2 mine --mine")
    assert re.search(r"agentsys .* 64\.36", table) and "my_filter" in table
    journey.type("agentsys figure 3 mine --out figures")
    journey.type("agentsys figure 4 mine --out figures")
    assert {path.name for path in Path("figures").glob("*.png")} == {"figure3.png", "figure4.png"}
    assert journey.commands <= 5


def test_a_reviewer_checks_a_bundle_and_a_published_folder_in_two(journey: Journey, published: Path) -> None:
    runs = f"run model=simulated defense=none attack=none,important_instructions {TASKS} logdir=runs"
    command_output(*runs.split())
    command_output("bundle", "runs", "--out", "paper.zip")
    assert "Holds" in journey.type("agentsys check paper.zip")
    folder = published("agentdojo-gpt-4o-mini-2024-07-18")  # type: ignore[operator]
    assert re.search(r"cases read", journey.type(f"agentsys check {folder}"))
    assert journey.commands <= 2


def test_an_engineer_probes_an_agent_and_serves_a_defense_in_two(journey: Journey) -> None:
    Path("my_agent.py").write_text(AGENT)
    assert re.search(r"agentsys +yes .* 0 of 12 ", journey.type("agentsys probe my_agent.py:TOOLS"))
    with journey.start("agentsys serve model=simulated defense=agentsys --port 0") as printed:
        address = re.findall(r"OpenAI at (\S+/v1);", printed)[0]
        messages = converse(address, "What does ticket 7 say?")
    assert journey.commands <= 2
    calls = [call.function for message in messages[1::2] for call in message.tool_calls or ()]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("read_ticket", {"number": 7})]
    assert "The printer on floor 2 is broken." in messages[-1].content
    [record] = Path("results/served").glob("*__*/*/*/*/*.json")
    spans = json.loads(record.read_text())["agentsys"]["spans"]
    assert "worker" in {span["kind"] for span in spans}, "a worker of AgentSys read the ticket"
    assert "1 trajectory" in command_output("report", "results/served", columns=120)


def converse(address: str, request: str) -> list[Any]:
    """The loop of an agent of two tools, as its owner has it: only the base URL is another."""
    tools: dict[str, Any] = {}
    exec(AGENT, tools)
    client = openai.OpenAI(base_url=address, api_key="none")
    messages: list[Any] = [{"role": "user", "content": request}]
    while True:
        reply = client.chat.completions.create(model="any", messages=messages, tools=SCHEMAS)
        messages.append(reply.choices[0].message)
        if not messages[-1].tool_calls:
            return messages
        assert len(messages[-1].tool_calls) == 1
        for call in messages[-1].tool_calls:
            result = tools[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})


def test_a_guard_has_a_row_in_three(journey: Journey) -> None:
    printed = journey.type("agentsys new guard my_score")
    [scores] = re.findall(r"Next: (agentsys .*)", printed)
    assert "my_score" in journey.type(f"{scores} --unconfined")
    run = f"agentsys run --config-dir conf model=simulated defense=none,my_score attack=important_instructions {TASKS}"
    assert "my_score" in journey.type(f"{run} logdir=guarded")
    assert journey.commands <= 3


def test_a_sweep_on_a_server_that_dies_stops_with_the_reason_and_goes_on_in_three(
    journey: Journey,
) -> None:
    served = build_served_model([])
    sweep = (
        "run {model} defense=none,spotlighting,agentsys attack=none,important_instructions model.temperature=0.0,null "
        "model.retry.total_s=2 benchmark.suites=banking limit_per_suite=6 logdir=sweep"
    )
    with serve(served) as server:
        address, port = server.openai_base_url, int(server.openai_base_url.split(":")[2].split("/")[0])
        model = f"model=vllm/simulated@{address}"

        def kill_in_the_middle() -> None:
            while server.requests < 60:
                time.sleep(0.01)
            server.stop()

        threading.Thread(target=kill_in_the_middle, daemon=True).start()
        journey.commands += 1
        stopped = CliRunner().invoke(app, sweep.format(model=model).split(), env={"COLUMNS": "120"})
    assert stopped.exit_code, "the server is gone"
    said = f"{stopped.output} {stopped.exception}"
    assert "connection" in said.lower(), said
    with serve(served, port=port):
        resumed = journey.type(sweep.format(model=model))
    finished = int(re.findall(r"(\d+) finished before", resumed)[0])
    assert 0 < finished < 72
    assert "broken" not in journey.type("agentsys results sweep")
    assert journey.commands <= 3
