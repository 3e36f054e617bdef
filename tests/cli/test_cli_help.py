"""Every help ends with lines to type, which the command line takes; and the shell completes names."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agentsys.cli import COMMANDS, SECTIONS, LazyCommand, app
from agentsys.runs.compose import compose

EXAMPLES = {name: source.examples for name, source in COMMANDS.items() if source.examples}
SHOWN = [(command, line) for command, lines in EXAMPLES.items() for line in lines]


def test_the_overview_has_every_command_under_a_heading_and_a_line_to_begin_with() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    names = "|".join(sorted(COMMANDS, key=len, reverse=True))
    assert re.findall(rf"^│ ({names}) ", shown, re.MULTILINE) == list(COMMANDS)
    assert re.findall(r"^╭─ ([^─]+) ─", shown, re.MULTILINE) == ["Options", *SECTIONS]
    assert "agentsys demo" in shown and len(COMMANDS) <= 20


@pytest.mark.parametrize("command", sorted(EXAMPLES))
def test_a_help_ends_with_its_examples_on_lines_of_their_own(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(app, [*command.split(), "--help"])
    assert result.exit_code == 0, result.output
    lines = [line.strip() for line in result.output.splitlines() if line.strip()]
    assert lines[-len(EXAMPLES[command]) :] == list(EXAMPLES[command])


@pytest.mark.usefixtures("each_choice_once")
@pytest.mark.parametrize(("command", "line"), SHOWN)
def test_an_example_is_understood(command: str, line: str) -> None:
    program, *words = shlex.split(line.partition(" < ")[0])
    assert program == "agentsys"
    assert words[: len(command.split())] == command.split()
    name, *rest = words
    context: Any = LazyCommand(name, COMMANDS[name]).make_context(name, rest)
    overrides = context.params.get("overrides") or []
    assert compose([text for text in overrides if not text.startswith("runs=")])


def test_docs_list_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    overview = page.split("```")[1]
    named = set(re.findall(r"^agentsys ([a-z-]+)", overview, re.MULTILINE))
    assert named == set(COMMANDS)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("agentsys compa", "compare"),
        ("agentsys run def", "defense="),
        ("agentsys run defense=agentsys_st", "defense=agentsys_strict"),
        ("agentsys run defense=none,agentsys_st", "defense=none,agentsys_strict"),
        ("agentsys run defense = agentsys_st", "agentsys_strict"),
        ("agentsys show prompts agentsys_st", "agentsys_strict"),
    ],
)
def test_the_shell_completes(words: str, offered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(
        app,
        [],
        prog_name="agentsys",
        env={
            "_AGENTSYS_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
    )
    assert offered in result.output.splitlines()
