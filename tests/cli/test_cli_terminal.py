"""Printed text can only be read: nothing in it steers the terminal."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agentsys.cli.terminal import escape_controls, escape_to_line, ignore_closed_output


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
        PlainProgress(RunningTotals(1), console).stopping("unknown_model: \x1b]0;PWNED\x07", 1)
        print_to_console(console, "Stopped early: \x1b[31mred at http://me:secret@host/v1")
    assert "\x1b" not in capture.get()
    assert "\\x1b]0;PWNED" in capture.get()
    assert "http://***@host/v1" in capture.get()


def test_output_that_nobody_reads_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
