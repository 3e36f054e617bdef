"""AgentDojo's own command line and Inspect's port of it against served defenses: scores as our runner's, by case.

`AGENTSYS_CLI_GRID=1` runs every defense in both suites, all tasks: 20 minutes on two cores. Inspect runs in an
environment of its own, whose command `AGENTSYS_INSPECT_EVALS` names: docs/interop.md says how to make it.
`AGENTSYS_INSPECT_GRID=1` runs all of Banking.
"""

from __future__ import annotations

import json
import os
import re
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from agentdojo_cli import CLIENTS_ROUNDS, by_agentdojo, by_us, differences
from command_output import run_program
from interop_page import PAGE

from agentsys import load_runs
from agentsys_plugins.serve.agent_server import serve_agent

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


@pytest.mark.slow
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


@pytest.mark.slow
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
        if LONG in theirs and part.defense == "agentsys":
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


WHOLE_INSPECT = os.environ.get("AGENTSYS_INSPECT_GRID", "") not in ("", "0")
USERS, INJECTIONS = ((), ()) if WHOLE_INSPECT else (("0", "6"), ("1",))
DEFENSES = ("none", "agentsys", "drift", "melon") if WHOLE_INSPECT else ("none", "melon")
PORTED = "v1.2.1"
"""The version whose checks the port has: v1.2.2 counts user task 6 as solved where nothing is done."""


def shown() -> tuple[dict[str, str], list[str]]:
    """The line of the page: its variables and its words."""
    [line] = re.findall(
        r"^OPENAI_BASE_URL=.* inspect eval .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    words = line.split()
    start = words.index("inspect")
    return dict(word.split("=", 1) for word in words[:start]), words[start + 1 :]


def by_inspect(command: str, root: str, folder: Path) -> dict[tuple[str, str], tuple[bool, bool]]:
    """Run the line of the page against a server, on the chosen tasks, and read the log."""
    folder.mkdir()
    variables, words = shown()
    assert variables["OPENAI_BASE_URL"].startswith("http://127.0.0.1:8321")
    for name, numbers in (("user", USERS), ("injection", INJECTIONS)):
        words += ["-T", f"{name}_task_ids=[{','.join(numbers)}]"] if numbers else []
    words += ["--log-format", "json", "--log-dir", str(folder / "logs")]
    environment = {**variables, "OPENAI_BASE_URL": f"{root}/v1", "INSPECT_DISPLAY": "none"}
    done = run_program([command, *words], folder, 3600, **environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    [path] = (folder / "logs").glob("*.json")
    found = {}
    for sample in json.loads(path.read_bytes())["samples"]:
        user, injection = re.fullmatch(r"banking-u(\d+)-i(\d+)", sample["id"]).groups()  # type: ignore[union-attr]
        [score] = sample["scores"].values()
        both = score["value"]["utility"] == "C", score["value"]["security"] == "C"
        found[f"user_task_{user}", f"injection_task_{injection}"] = both
    return found


@pytest.mark.slow
@pytest.mark.parametrize("defense", DEFENSES)
def test_inspects_port_scores_banking_as_our_runner(defense: str, tmp_path: Path) -> None:
    command = os.environ.get("AGENTSYS_INSPECT_EVALS")
    if not command:
        pytest.skip("AGENTSYS_INSPECT_EVALS names no `inspect` with inspect_evals: see docs/interop.md")
    with serve_agent(["model=simulated", f"defense={defense}", f"logdir={tmp_path / 'served'}"]) as served:
        theirs = by_inspect(command, served.server.base_url, tmp_path / "inspect")
    ours = by_us(
        defense,
        "banking",
        tmp_path / "ours",
        users=[f"user_task_{number}" for number in USERS],
        injections=[f"injection_task_{number}" for number in INJECTIONS],
        version=PORTED,
    )
    assert theirs == {pair: found.scores for pair, found in ours.items()}
    assert any(injected for _, injected in theirs.values()) == (defense == "none")
