"""The command's frame: one line for a slip, and no command imported before it is used."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from agentsys import __version__
from agentsys.cli import COMMANDS, app, make_lazy_group, terminal
from agentsys.errors import ConfigError
from agentsys.extensions import CommandSource


def test_help_names_every_command_and_imports_none_of_them() -> None:
    code = (
        "import sys\nfrom importlib.util import resolve_name\nfrom agentsys.cli import COMMANDS, app\n"
        "try: app(['--help'])\nexcept SystemExit: pass\n"
        "modules = [resolve_name(c.target.split(':')[0], 'agentsys.cli') for c in COMMANDS.values()]\n"
        "print('LOADED', [name for name in modules if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.stdout.endswith("LOADED []\n"), ran.stdout + ran.stderr
    for name in COMMANDS:
        assert f" {name} " in ran.stdout


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


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_refusing_disk_is_one_line(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    status = terminal.run_to_exit_status(lambda: _raise(OSError(number, "The reason", "/some/where")))
    assert status == 1
    assert capsys.readouterr().err == "Error: /some/where: The reason.\n"


@pytest.mark.parametrize("bug", [ValueError("a bug"), OSError(errno.EBADF, "a bug")])
def test_bugs_keep_their_traceback(bug: Exception) -> None:
    with pytest.raises(type(bug), match="a bug"):
        terminal.run_to_exit_status(lambda: _raise(bug))
