"""Whatever is wrong on the command line is one line on standard error, and status 2."""

from __future__ import annotations

import sys

import pytest
import typer

from agentsys.cli import main, terminal


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run --foo", "No such option: --foo. See agentsys run --help."),
        ("table 2", "Missing argument 'DIR...'. See agentsys table --help."),
        ("figure 3", "Missing argument 'DIR...'. See agentsys figure --help."),
        ("run --limit 5", "No such option: --limit. Here limit_per_suite=VALUE says how many cases"),
        ("run --epochs 5", " Settings have no dashes: epochs=VALUE. See agentsys run --help."),
        ("audit --benchmark asb", "Settings have no dashes: benchmark=VALUE."),
        ("run --cfg job", "agentsys show config prints what a command would work with."),
        ("run --multirun", "comma lists sweep as they are"),
        ("results --limit 5", "No such option: --limit. See agentsys results --help."),
        ("report x --max-cases -1", "Invalid value for '--max-cases'"),
        ("serve --port 99999", "Invalid value for '--port'"),
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
