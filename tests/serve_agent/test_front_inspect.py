"""Inspect's port of AgentDojo against served defenses: scores as our runner's, case by case (slow).

It runs in an environment of its own, whose command `AGENTSYS_INSPECT_EVALS` names: docs/interop.md says how
to make it. `AGENTSYS_INSPECT_GRID=1` runs all of Banking.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from agentdojo_cli import by_us
from interop_page import PAGE

from agentsys.serve_agent.agent_server import serve_agent

pytestmark = pytest.mark.slow

WHOLE = os.environ.get("AGENTSYS_INSPECT_GRID", "") not in ("", "0")
USERS, INJECTIONS = ((), ()) if WHOLE else (("0", "6"), ("1",))
DEFENSES = ("none", "agentsys", "drift", "melon") if WHOLE else ("none", "melon")
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
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {**variables, "OPENAI_BASE_URL": f"{root}/v1", "INSPECT_DISPLAY": "none"}
    done = subprocess.run(
        [command, *words, "--log-format", "json", "--log-dir", str(folder / "logs")],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    [path] = (folder / "logs").glob("*.json")
    found = {}
    for sample in json.loads(path.read_bytes())["samples"]:
        user, injection = re.fullmatch(r"banking-u(\d+)-i(\d+)", sample["id"]).groups()  # type: ignore[union-attr]
        [score] = sample["scores"].values()
        both = score["value"]["utility"] == "C", score["value"]["security"] == "C"
        found[f"user_task_{user}", f"injection_task_{injection}"] = both
    return found


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
