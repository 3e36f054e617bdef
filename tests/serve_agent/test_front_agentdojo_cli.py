"""AgentDojo's own command line against served defenses: scores as our runner's, case by case (slow).

`AGENTSYS_CLI_GRID=1` runs every defense in both suites, all tasks: 20 minutes on two cores.
"""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from agentdojo_cli import CLIENTS_ROUNDS, by_agentdojo, by_us, differences

from agentsys import load_runs
from agentsys.serve_agent.agent_server import serve_agent

pytestmark = pytest.mark.slow

WHOLE = os.environ.get("AGENTSYS_CLI_GRID", "") not in ("", "0")
LONG = ("user_task_18", "injection_task_2")
"""A case of Slack that takes AgentSys more rounds than AgentDojo's loop runs."""


class Part(NamedTuple):
    """Cases that are compared."""

    defense: str
    suite: str
    users: tuple[str, ...] = ()
    injections: tuple[str, ...] = ()


SAMPLE = (
    Part("agentsys", "slack", ("user_task_0", "user_task_18"), ("injection_task_1", LONG[1])),
    Part("agentsys", "banking", ("user_task_0", "user_task_3"), ("injection_task_1",)),
    Part("none", "slack", ("user_task_0", "user_task_6"), ("injection_task_1",)),
    Part("drift", "banking", ("user_task_0",), ("injection_task_1",)),
    Part("melon", "banking", ("user_task_0",), ("injection_task_1",)),
)
GRID = tuple(
    Part(*chosen) for chosen in product(("none", "agentsys", "drift", "melon"), ("slack", "banking"))
)


def test_files_of_the_command_line_are_counted_as_the_agent_that_answered(tmp_path: Path) -> None:
    runs = tmp_path / "dojo" / "runs"
    with serve_agent(["model=simulated", "defense=agentsys", f"logdir={runs}"]) as served:
        root, folder = served.server.base_url, tmp_path / "dojo"
        by_agentdojo(root, "banking", folder, users=["user_task_0"], injections=["injection_task_1"])
    rows = load_runs(runs)
    answered = rows[rows["benchmark"] == "agentdojo"]
    assert {*zip(answered["model"], answered["defense"], strict=True)} == {("simulated", "agentsys")}
    assert answered["simulated"].all()
    (runs / "agentsys_served.json").unlink()
    unknown = load_runs(runs)
    assert set(unknown[unknown["foreign"]]["defense"]) == {"unrecorded"}


@pytest.mark.parametrize("part", GRID if WHOLE else SAMPLE, ids=lambda part: "-".join(part[:2]))
def test_the_command_line_scores_as_our_runner_but_where_it_stops_first(part: Part, tmp_path: Path) -> None:
    tasks: dict[str, Any] = {"users": part.users, "injections": part.injections}
    settings = [
        "model=simulated",
        "model.reader=literal",
        f"defense={part.defense}",
        f"logdir={tmp_path / 'served'}",
    ]
    with serve_agent(settings) as served:
        root = served.server.base_url
        theirs = by_agentdojo(root, part.suite, tmp_path / "dojo", **tasks)
        ours = by_us(part.defense, part.suite, tmp_path / "ours", **tasks)
        different = differences(theirs, ours)
        print(f"{'-'.join(part[:2])}: {len(theirs)} cases, different: {different}")
        known = {"rounds of the client", "failure without a mark"}
        assert set(different.values()) <= known
        if (part.defense, part.suite) == ("agentsys", "slack"):
            assert theirs[LONG].rounds == CLIENTS_ROUNDS + 1
            assert LONG in different
        # The same cases again, with room for the rounds that the client stopped at.
        stopped = [pair for pair, cause in different.items() if cause == "rounds of the client"]
        for number, (user, injection) in enumerate(stopped):
            one: dict[str, Any] = {"users": [user], "injections": [injection], "room": True}
            again = by_agentdojo(root, part.suite, tmp_path / f"room{number}", **one)
            assert again[user, injection].scores == ours[user, injection].scores
    attacked = any(found.security for found in theirs.values())
    assert attacked == (part.defense == "none")
