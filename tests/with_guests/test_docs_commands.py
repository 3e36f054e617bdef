"""Every `agentsys ...` line in README and docs is one that the command line takes, and prints what README shows."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command_output import command_output, run_program
from stored_cases import published, stored

from agentsys.cli import COMMANDS, _load_command
from agentsys.runs.compose import compose

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```(?:|sh|bash|console|shell)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_PLACEHOLDER = re.compile(r"[\[\]|]|\.\.\.")
"""Marks a line that shows how a command is written, not a command."""


class Shown(NamedTuple):
    """A line as it is shown."""

    page: str
    command: str
    rest: str


def shown_lines() -> list[Shown]:
    found = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
            for line in block.replace("\\\n", " ").splitlines():
                words = line.strip().removeprefix("$ ").split(maxsplit=2)
                if len(words) > 1 and words[0] == "agentsys" and words[1] in COMMANDS:
                    found.append(Shown(page.name, words[1], words[2] if len(words) > 2 else ""))
    return found


SHOWN = shown_lines()
WHOLE = [line for line in SHOWN if not _PLACEHOLDER.search(re.sub(r"=\[[^]]*\]", "", line.rest))]
RUNS = [line for line in WHOLE if line.command == "run" and "--config-dir" not in line.rest]
OTHERS = [line for line in WHOLE if line.command != "run" and line.page != "cli.md"]
OFFLINE = [
    line
    for line in RUNS
    if "model=simulated" in line.rest and "benchmark=agentdyn" not in line.rest and line.page != "guards.md"
]
"""AgentDyn's runs need a checkout: agentsys_plugins/agentdyn/tests. Other people's guards need their packages."""


def overrides_of(line: Shown) -> list[str]:
    """Its words but for the command's own options."""
    return [word for word in shlex.split(line.rest, comments=True) if not word.startswith("--")]


def test_the_pages_show_commands() -> None:
    assert {line.command for line in SHOWN} == set(COMMANDS)
    assert len(RUNS) > 15
    assert len(OTHERS) > 10
    assert len(OFFLINE) > 2


@pytest.mark.parametrize("line", SHOWN, ids=str)
def test_every_option_that_a_page_names_is_one_of_the_command(line: Shown) -> None:
    command: Any = _load_command(COMMANDS[line.command], line.command)
    several = getattr(command, "commands", {})
    commands = [command, *several.values()]
    known = {option for one in commands for parameter in one.params for option in parameter.opts}
    known |= {option for one in commands for parameter in one.params for option in parameter.secondary_opts}
    named = set(re.findall(r"(?<!\S)\[?(--[a-z][a-z-]*)", line.rest.partition("#")[0]))
    assert named <= known


@pytest.mark.parametrize("line", OTHERS, ids=str)
def test_a_command_as_shown_is_understood(line: Shown) -> None:
    command: Any = _load_command(COMMANDS[line.command], line.command)
    words = shlex.split(line.rest, comments=True)
    assert command.make_context(line.command, words) is not None


@pytest.mark.usefixtures("each_choice_once")
@pytest.mark.parametrize("line", {tuple(overrides_of(line)): line for line in RUNS}.values(), ids=str)
def test_a_run_as_shown_composes(line: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gcg.json", "pair-transfer-task.json"):
        (tmp_path / name).write_text(
            '[{"suite": "banking", "user_task": 0, "injection_task": 0, "text": "Pay."}]'
        )
    for name in ("FOLDER", "TRACES"):
        stored(tmp_path / name, published())
    assert compose(overrides_of(line))


@pytest.mark.slow
@pytest.mark.parametrize("line", OFFLINE, ids=str)
def test_a_run_that_needs_no_key_runs_as_shown(line: Shown, tmp_path: Path) -> None:
    words = [*shlex.split(line.rest, comments=True), "limit_per_suite=1", f"logdir={tmp_path}"]
    assert re.search(r"\bon (agentdojo|asb|vectors)\b", command_output("run", *words))


README = (ROOT / "README.md").read_text(encoding="utf-8")
_TIME = re.compile(r"\d+:\d\d:\d\d")
_SO_FAR = re.compile(r"^\d+/\d+ cases, .*?cost \S+\n", re.MULTILINE | re.DOTALL)
"""A line of progress, once a minute: a slow machine prints some."""


def test_it_is_short_and_begins_with_the_picture_of_a_result() -> None:
    assert len(README.splitlines()) <= 100
    picture = re.search(r"!\[[^\]]*simulated[^\]]*\]\(([^)]+)\)", README)
    assert picture and (ROOT / picture[1]).is_file()
    first = README[: README.index("## Two commands")]
    assert "The agent is a script, no LLM" in first


@pytest.mark.slow
def test_its_screen_is_what_the_quickstart_prints_at_80_columns(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agentsys", "run", "experiment=quickstart"]
    done = run_program(command, tmp_path, 600, COLUMNS="80", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    screen = _SO_FAR.sub("", done.stdout)
    shown = next(block for block in re.findall(r"^```\n(.*?)^```", README, re.M | re.S) if "ASR" in block)
    assert _TIME.sub("0:00:00", shown) == _TIME.sub("0:00:00", screen)
    assert max(map(len, screen.splitlines())) <= 80


def path_of_commands() -> list[tuple[str, str]]:
    """Each command of the path, and what it prints among other things."""
    block = README.split("## A path of twelve commands")[1].split("```\n")[1]
    found = []
    for line in block.splitlines():
        command, said = line.split("  # ", maxsplit=1)
        found.append((command.strip(), said.strip()))
    return found


@pytest.mark.slow
def test_the_path_of_twelve_commands_prints_what_stands_behind_each(tmp_path: Path) -> None:
    commands = path_of_commands()
    assert len(commands) == 12
    for command, said in commands:
        words = [sys.executable, "-m", *shlex.split(command)]
        done = run_program(words, tmp_path, 300, COLUMNS="100", PYTHONPATH=str(ROOT))
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert said in " ".join(done.stdout.split()), f"{command}: {done.stdout}"
