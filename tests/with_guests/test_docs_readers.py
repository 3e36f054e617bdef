"""The pages for three readers are short, and each command on them prints what stands below it.

`WRITE_GOLDEN=1 pytest -m slow tests/with_guests/test_docs_readers.py` writes the output into the pages anew.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from command_output import run_program
from prose import count_words, read_prose

ROOT = Path(__file__).parents[2]
PAGES = ("student.md", "reviewer.md", "engineer.md")
MOST_WORDS = 700
_SCREEN = re.compile(r"(?<=^```console\n).*?(?=^```)", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ (.*)\n", re.MULTILINE)
_AGENT = re.compile(r"`(\w+\.py)`:\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
"""A file that the page has its reader write."""
_GOES_ON = "...\n"
"""Last line of an output that is shown in part."""
_VARYING = {r"\b\d:\d\d:\d\d\b": "0:00:00", r"\b[0-9a-f]{64}\b": "0" * 64, r" +$": ""}
"""Times, and hashes of files that hold times; blanks at the end of a line, which editors cut."""
_SHOWN_LINES = 14
"""Lines of a longer output that a page gets."""


def read_page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def normalize(text: str) -> str:
    for pattern, constant in _VARYING.items():
        text = re.sub(pattern, constant, text, flags=re.MULTILINE)
    return text


def run_line(line: str, folder: Path) -> str:
    words = [sys.executable, "-m", *shlex.split(line)]
    done = run_program(words, folder, 300, COLUMNS="80", PYTHONPATH=str(ROOT))
    assert done.returncode == 0, f"{line}: {done.stderr}"
    return done.stdout


def shorten(output: str) -> str:
    """The output's beginning, if it is long: up to the last empty line, so that no table is cut."""
    lines = output.splitlines(keepends=True)
    if len(lines) <= 2 * _SHOWN_LINES:
        return output
    end = max((at for at in range(_SHOWN_LINES) if not lines[at].strip()), default=_SHOWN_LINES)
    return "".join(lines[:end]) + _GOES_ON


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_short_and_shows_output(page: str) -> None:
    text = read_page(page)
    screens = _SCREEN.findall(text)
    assert count_words(text) <= MOST_WORDS
    assert screens
    for screen in screens:
        _, *parts = _COMMAND.split(screen)
        assert all(output.strip(".\n") for output in parts[1::2]), f"{page}: a command without its output"


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_each_command_prints_what_stands_below_it(page: str, tmp_path: Path) -> None:
    text = read_page(page)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for name, source in _AGENT.findall(text):
        (tmp_path / name).write_text(source, encoding="utf-8")
    for screen in _SCREEN.findall(text):
        _, *parts = _COMMAND.split(screen)
        lines, shown = parts[::2], parts[1::2]
        printed = [run_line(line, tmp_path) for line in lines]
        if os.environ.get("WRITE_GOLDEN"):
            made = "".join(f"$ {line}\n{shorten(out)}" for line, out in zip(lines, printed, strict=True))
            made = re.sub(r" +$", "", made, flags=re.MULTILINE)
            path = ROOT / "docs" / page
            path.write_text(path.read_text(encoding="utf-8").replace(screen, made), encoding="utf-8")
            continue
        for line, output, below in zip(lines, printed, shown, strict=True):
            if below.endswith(_GOES_ON):
                assert normalize(output).startswith(normalize(below.removesuffix(_GOES_ON))), line
            else:
                assert normalize(output) == normalize(below), line


def test_the_pages_repeat_no_paragraph_of_another() -> None:
    """What is told on them is told there alone; the rest is a link."""
    others = [path for path in (ROOT / "docs").rglob("*.md") if path.name not in PAGES]
    elsewhere = "\n".join(" ".join(path.read_text(encoding="utf-8").split()) for path in others)
    for page in PAGES:
        blocks = (" ".join(block.split()) for block in read_prose(read_page(page)).split("\n\n"))
        assert [block for block in blocks if len(block.split()) > 12 and block in elsewhere] == [], page
