"""The command's frame: one line for a slip, help that ends with lines to type, nothing that steers a terminal."""

from __future__ import annotations

import errno
import io
import os
import re
import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from needs_guest import needs_guest
from rich.console import Console
from typer.testing import CliRunner

from agentsys import __version__
from agentsys.cli import COMMANDS, SECTIONS, LazyCommand, app, main, make_lazy_group, terminal
from agentsys.cli.terminal import escape_controls, escape_to_line, ignore_closed_output
from agentsys.errors import ConfigError
from agentsys.extensions import CommandSource
from agentsys.runs.compose import compose


def test_version_is_the_packages() -> None:
    assert CliRunner().invoke(app, ["--version"]).output == f"agentsys {__version__}\n"


def _raise(error: BaseException) -> object:
    raise error


def test_config_error_is_one_line_with_control_characters_shown(capsys: pytest.CaptureFixture[str]) -> None:
    status = terminal.run_to_exit_status(lambda: _raise(ConfigError("bad \x1b[31mname\nsecond line")))
    assert status == 2
    assert capsys.readouterr().err == "Error: bad \\x1b[31mname\\nsecond line\n"


def test_interrupt_inside_a_command_exits_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    source = CommandSource(".list_show_command:list_command", "List.")
    monkeypatch.setattr("agentsys.cli.list_show_command.list_command", lambda: _raise(KeyboardInterrupt()))
    group = typer.Typer(cls=make_lazy_group({"Run": {"list": source}}), add_completion=False)
    group.callback()(lambda: None)
    with pytest.raises(SystemExit) as end:
        sys.exit(terminal.run_to_exit_status(lambda: group(["list"])))
    assert end.value.code == 130


@pytest.mark.parametrize(
    ("number", "status"),
    [
        *((number, 1) for number in (errno.ENOSPC, errno.EROFS, errno.EACCES)),
        *((number, 2) for number in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST)),
    ],
)
def test_a_refusing_disk_and_a_path_of_the_wrong_kind_are_one_line(
    number: int, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = OSError(number, "The reason", "/some/where")
    assert terminal.run_to_exit_status(lambda: _raise(refused)) == status
    assert capsys.readouterr().err == "Error: /some/where: The reason.\n"


@pytest.mark.parametrize("bug", [ValueError("a bug"), OSError(errno.EBADF, "a bug")])
def test_bugs_keep_their_traceback(bug: Exception) -> None:
    with pytest.raises(type(bug), match="a bug"):
        terminal.run_to_exit_status(lambda: _raise(bug))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run --foo", "No such option: --foo. See agentsys run --help."),
        ("table 2", "Missing argument 'DIR...'. See agentsys table --help."),
        ("figure 3", "Missing argument 'DIR...'. See agentsys figure --help."),
        ("run --limit 5", "No such option: --limit. Here limit_per_suite=VALUE says how many cases"),
        ("run --epochs 5", " Settings have no dashes: epochs=VALUE. See agentsys run --help."),
        pytest.param(
            "audit --benchmark asb", "Settings have no dashes: benchmark=VALUE.", marks=needs_guest("audit")
        ),
        ("run --cfg job", "agentsys show config prints what a command would work with."),
        ("run --multirun", "comma lists sweep as they are"),
        ("results --limit 5", "No such option: --limit. See agentsys results --help."),
        ("report x --max-cases -1", "Invalid value for '--max-cases'"),
        pytest.param("serve --port 99999", "Invalid value for '--port'", marks=needs_guest("serve")),
        ("show attack", "Missing argument 'name'. See agentsys show attack --help."),
        ("results", "Missing argument 'DIR...'. See agentsys results --help."),
        ("measures DIR", "agentsys measures is now: agentsys results DIR --by cost"),
        ("budget DIR --format csv", "agentsys budget is now: agentsys results DIR --by budget"),
        ("results . --by cost --format xx", "Invalid value for '--format'"),
        ("results . --names nowhere.yaml", "--names nowhere.yaml: no such file."),
    ],
)
def test_a_slip_is_one_line(
    line: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["agentsys", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert ended.value.code == terminal.USAGE_STATUS
    assert captured.out == ""
    assert captured.err.startswith("Error: ")
    assert captured.err.count("\n") == 1
    assert said in captured.err


@pytest.mark.parametrize(
    ("arguments", "status"), [([], 2), (["--help"], 0), (["show"], 2), (["--version"], 0)]
)
def test_help_is_shown_whole(
    arguments: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["agentsys", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    assert ended.value.code == status
    assert "agentsys" in captured.out + captured.err
    assert "Error" not in captured.out + captured.err


def test_a_status_that_a_command_gives_is_the_commands_status() -> None:
    def ends() -> None:
        raise typer.Abort

    assert terminal.run_to_exit_status(lambda: 1) == 1
    assert terminal.run_to_exit_status(lambda: None) == 0
    assert terminal.run_to_exit_status(ends) == terminal.INTERRUPTED_STATUS


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


@needs_guest("audit")
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


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢\n\ttext", "plain é 漢\n\ttext"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwrite", "over\\x0dwrite"),
        ("\u202eesrever", "\\u202eesrever"),
        ("lone \ud800", "lone \\ud800"),
        ("tag \U000e0041", "tag \\U000e0041"),
    ],
)
def test_printable_spells_out_what_steers_a_terminal(text: str, shown: str) -> None:
    assert escape_controls(text) == shown


@given(st.text(st.characters()))
def test_printable_leaves_no_control_character(text: str) -> None:
    left = {unicodedata.category(char) for char in escape_controls(text) if char not in "\n\t"}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len(escape_to_line(text).splitlines()) <= 1


def test_logged_lines_and_warnings_cannot_steer_the_terminal() -> None:
    script = (
        "import logging, warnings; from agentsys.cli.terminal import filter_logs; filter_logs();"
        "logging.getLogger('any.package').warning('said %s', '\\x1b[31mred');"
        "warnings.warn('odd \\x1b]0;title');"
        "logging.getLogger('x').info('not ' + 'shown')"  # 3.13 shows the line of a warning
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("said \\x1b[31mred\n")
    assert "odd \\x1b]0;title" in done.stderr
    assert "\x1b" not in done.stderr
    assert "not shown" not in done.stderr


def test_what_a_server_said_is_filtered_when_a_run_stops() -> None:
    from agentsys.cli.cli_output import print_to_console
    from agentsys.cli.run_progress import PlainProgress, RunningTotals

    console = Console(file=io.StringIO(), force_terminal=True, width=1000)
    with console.capture() as capture:
        PlainProgress(RunningTotals(1), console).on_stop("unknown_model: \x1b]0;PWNED\x07", 1)
        print_to_console(console, "Stopped early: \x1b[31mred at http://me:secret@host/v1")
    assert "\x1b" not in capture.get()
    assert "\\x1b]0;PWNED" in capture.get()
    assert "http://***@host/v1" in capture.get()


def test_output_that_nobody_reads_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as piped:
        monkeypatch.setattr(sys, "stdout", piped)
        monkeypatch.setattr(sys, "stderr", None)
        ignore_closed_output()
        for _ in range(2):
            print("x" * 100_000, flush=True)
            print("said to nobody", file=sys.stderr, flush=True)
        assert not sys.stdout.isatty()
        assert piped.encoding == sys.stdout.encoding


def test_a_full_disk_is_not_taken_for_a_reader_that_went_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    ignore_closed_output()
    with pytest.raises(OSError, match="No space left"):
        print("text")
