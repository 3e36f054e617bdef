"""AgentDojo's own command line, as it is installed, against a served agent; and its scores beside ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agentsys

ATTACK = "important_instructions"
CLIENTS_ROUNDS = 15
"""Rounds of tools after which AgentDojo's own loop stops, whatever the model still asks for."""

Pair = tuple[str, str]
"""User and injection task."""


MODEL, PROSE_NAME = "GPT_4O_2024_05_13", "GPT-4"
"""What `--model` takes (the server is free of it), and what the attack calls that model."""
ROOM = """from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop

ToolsExecutionLoop.__init__.__defaults__ = (60,)
"""
"""A module for `--module-to-load` that gives AgentDojo's loop room for 60 rounds."""


@dataclass(frozen=True)
class Outcome:
    """What a runner found in one case."""

    utility: bool
    security: bool
    rounds: int
    """Messages of the agent with calls."""
    cut: bool
    """Whether the client stopped at a call that nobody ran."""
    repeated: bool = False
    """Whether a call that had failed was made again at once, the same."""

    @property
    def scores(self) -> tuple[bool, bool]:
        """Whether the user task was solved, and the injection task carried out."""
        return self.utility, self.security

    @property
    def stopped_by_client(self) -> bool:
        """Whether it ended at the client's own bound on rounds."""
        return self.cut and self.rounds == CLIENTS_ROUNDS + 1


def by_agentdojo(
    root: str,
    suite: str,
    folder: Path,
    *,
    users: Sequence[str] = (),
    injections: Sequence[str] = (),
    room: bool = False,
) -> dict[Pair, Outcome]:
    """Run the command line in a process of its own and read the files that it leaves.

    Args:
        root: The server's address.
        suite: A suite of v1.2.2.
        folder: An empty folder for its files.
        users: User tasks; none: all.
        injections: Injection tasks; none: all.
        room: Whether its loop gets more rounds than the 15 that it comes with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "room_for_rounds.py").write_text(ROOM)
    chosen = ["--model", MODEL, "--suite", suite, "--attack", ATTACK, "--logdir", "runs"]
    chosen += [word for task in users for word in ("--user-task", task)]
    chosen += [word for task in injections for word in ("--injection-task", task)]
    chosen += ["--module-to-load", "room_for_rounds"] if room else []
    done = subprocess.run(
        [sys.executable, "-m", "agentdojo.scripts.benchmark", *chosen],
        cwd=folder,
        env={**os.environ, "OPENAI_BASE_URL": f"{root}/v1", "OPENAI_API_KEY": "none"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(outcomes_in(folder / "runs"))


def by_us(
    defense: str,
    suite: str,
    folder: Path,
    *,
    users: Sequence[str] = (),
    injections: Sequence[str] = (),
    version: str = "v1.2.2",
) -> dict[Pair, Outcome]:
    """Run the same cases with our runner, the attack calling the model as it does there."""
    chosen = [f"{key}=[{','.join(names)}]" for key, names in _named(users, injections) if names]
    agentsys.run(
        [
            *(
                "model=simulated",
                "model.reader=literal",
                f"model.prose_name={PROSE_NAME}",
                f"defense={defense}",
            ),
            *(f"attack={ATTACK}", f"benchmark.suites=[{suite}]", f"benchmark.version={version}"),
            *(f"logdir={folder}", *chosen),
        ]
    )
    return dict(outcomes_in(folder))


def _named(users: Sequence[str], injections: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    yield "user_tasks", users
    yield "injection_tasks", injections


def outcomes_in(folder: Path) -> Iterator[tuple[Pair, Outcome]]:
    """The attacked cases among the stored files of either runner."""
    for path in folder.rglob(f"{ATTACK}/injection_task_*.json"):
        record = json.loads(path.read_bytes())
        # AgentDojo also runs each injection task as if a user had asked for it.
        if record["user_task_id"].startswith("user_task"):
            yield (record["user_task_id"], record["injection_task_id"]), _outcome(record)


def _outcome(record: Mapping[str, Any]) -> Outcome:
    called = [bool(one.get("tool_calls")) for one in record["messages"] if one["role"] == "assistant"]
    last = record["messages"][-1]
    cut = last["role"] == "assistant" and bool(last.get("tool_calls"))
    return Outcome(record["utility"], record["security"], sum(called), cut, _repeats(record["messages"]))


def _repeats(messages: Sequence[Mapping[str, Any]]) -> bool:
    failed = None
    for one in messages:
        made = [(call["function"], call["args"]) for call in one.get("tool_calls") or ()]
        if failed in made:
            return True
        if one["role"] == "tool":
            call = one["tool_call"]
            failed = (call["function"], call["args"]) if one.get("error") else None
    return False


def differences(theirs: Mapping[Pair, Outcome], ours: Mapping[Pair, Outcome]) -> dict[Pair, str]:
    """Cases whose scores differ, each with its cause; `unexplained` where none is known.

    OpenAI's wire has no mark for a tool that failed, and the simulated model repeats a call only where one
    says that it failed.

    Raises:
        AssertionError: If the two do not hold the same cases.
    """
    assert theirs.keys() == ours.keys(), sorted(theirs.keys() ^ ours.keys())
    return {
        pair: _cause(found, ours[pair]) for pair, found in theirs.items() if found.scores != ours[pair].scores
    }


def _cause(theirs: Outcome, ours: Outcome) -> str:
    if theirs.stopped_by_client:
        return "rounds of the client"
    return "failure without a mark" if ours.repeated and not theirs.repeated else "unexplained"
