"""Draw the pictures of README and docs by running what they show; they are kept in docs/images.

Usage: .venv/bin/python scripts/draw_screens.py [NAME...] [--inspect PYTHON] [--out DIR]

Needs Chromium with its driver, and for `inspect_view` an environment that has the extra `inspect`
(constraints-inspect.txt), whose Python is given with --inspect; without it that one picture stays as it is.
Names choose pictures; without one all are drawn. Takes a few minutes: the quickstart is run twice, at 120 and
at 80 columns. Everything shown is simulated.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from html import escape
from pathlib import Path
from urllib.parse import quote

import pyte
from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from browser import Browser, browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
RUNS = Path("results", "runs", "quickstart")
SHOWN_CASE = {"suite": "workspace", "user_task": "user_task_14", "injection_task": "injection_task_4"}
"""The case whose trajectories are shown: none carries the injection out, AgentSys does not."""
COLOURS = 96
"""Of a picture's palette; text on plain ground needs no more."""


class Workshop:
    """A folder in which commands run as a newcomer's would, a browser, and the runs that pictures show.

    Args:
        folder: Empty.
        window: The browser.
        inspect: A Python that has the extra `inspect`, if there is one.
    """

    def __init__(self, folder: Path, window: Browser, inspect: Path | None) -> None:
        self.folder, self.window, self.inspect = folder, window, inspect

    @cached_property
    def quickstart(self) -> Terminal:
        """The quickstart at 120 columns; its records stay in `RUNS`."""
        return played(["run", "experiment=quickstart"], self.folder, 120)

    def command(self, *arguments: str) -> None:
        """Run a command of ours, on the quickstart's records as a rule."""
        assert self.quickstart
        subprocess.run([*AGENTSYS, *arguments], cwd=self.folder, env=environment(), check=True)


AGENTSYS = [sys.executable, "-m", "agentsys"]


def environment(columns: int | None = None) -> dict[str, str]:
    """Ours, with a terminal of so many columns."""
    found = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    found |= {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"}
    return found if columns is None else found | {"COLUMNS": str(columns)}


class Terminal:
    """What a command wrote to its terminal, in the order in which it came.

    Args:
        columns: The terminal's width.
        shown: What was typed.
    """

    def __init__(self, columns: int, shown: str) -> None:
        self.columns, self.shown = columns, shown
        self.pieces: list[bytes] = []

    def screen(self, until: Callable[[str], bool] = lambda text: False) -> pyte.Screen:
        """The screen at the end, or as soon as its text is as wanted."""
        screen = pyte.Screen(self.columns, 60)
        screen.set_mode(pyte.modes.LNM)
        stream = pyte.ByteStream(screen)
        for piece in self.pieces:
            stream.feed(piece)
            if until("\n".join(screen.display)):
                break
        return screen


def played(arguments: list[str], folder: Path, columns: int) -> Terminal:
    """Run a command of ours in a terminal of its own."""
    terminal = Terminal(columns, " ".join(["agentsys", *arguments]))
    process, end = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execve(AGENTSYS[0], [*AGENTSYS, *arguments], environment())
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 60, columns, 0, 0))
    while select.select([end], [], [], 600)[0]:
        try:
            piece = os.read(end, 65536)
        except OSError:  # how a terminal says that nobody writes to it any more
            break
        if not piece:
            break
        terminal.pieces.append(piece)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(end)
    if status:
        raise SystemExit(f"{terminal.shown}: ended with status {status}")
    return terminal


_PALETTE = {
    "default": "#d8dee9", "black": "#4c566a", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b",
    "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#eceff4",
}  # fmt: skip
_STYLE = """
  body { margin: 0; background: #ffffff; }
  #terminal { display: inline-block; background: #20242c; color: #d8dee9; padding: 14px 18px; }
  pre { margin: 0; font: 13px/1.32 "DejaVu Sans Mono", monospace; }
  .typed { color: #98c379; }
"""


def drawn_terminal(work: Workshop, terminal: Terminal, screen: pyte.Screen) -> bytes:
    """Have the browser draw a screen."""
    lines = [_line(screen, row) for row in range(screen.lines)]
    while lines and not lines[-1].strip():
        lines.pop()
    typed = f'<span class="typed">$ {escape(terminal.shown)}</span>'
    page = work.folder / "terminal.html"
    written = "\n".join([typed, *lines])
    body = f'<div id="terminal"><pre>{written}</pre></div>'
    page.write_text(f'<!doctype html><meta charset="utf-8"><style>{_STYLE}</style>{body}', encoding="utf-8")
    return picture_of(work.window, page.as_uri(), "#terminal")


def _line(screen: pyte.Screen, row: int) -> str:
    """One line as HTML: every character escaped, colours and bold as they were."""
    parts = []
    for column in range(screen.columns):
        cell = screen.buffer[row][column]
        colour = _PALETTE.get(cell.fg, f"#{cell.fg}")
        style = f"color:{colour};" * (cell.fg != "default") + "font-weight:bold;" * cell.bold
        text = escape(cell.data)
        parts.append(f'<span style="{style}">{text}</span>' if style and text.strip() else text)
    return "".join(parts).rstrip()


def picture_of(window: Browser, address: str, selector: str | None = None, height: int = 1000) -> bytes:
    """The window, or the part of it that an element covers."""
    window.resize(1400, height)
    window.open(address)
    if selector is None:
        return window.picture()
    box = window.run(
        "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
        "return [box.left, box.top, box.right, box.bottom].map(Math.ceil)",
        selector,
    )
    return cropped(window.picture(), box)


def cropped(png: bytes, box: list[int]) -> bytes:
    """A part of a picture."""
    file = io.BytesIO()
    Image.open(io.BytesIO(png)).crop(tuple(box)).save(file, "png")
    return file.getvalue()


def kept(name: str, png: bytes, folder: Path) -> None:
    """Store a picture with a palette: a fifth of the bytes."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    path = folder / f"{name}.png"
    image.quantize(COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    print(f"{path}: {image.width} x {image.height}, {path.stat().st_size / 1000:.0f} kB")


def screen_120(work: Workshop) -> bytes:
    """The end of the quickstart at 120 columns."""
    return drawn_terminal(work, work.quickstart, work.quickstart.screen())


def screen_80(work: Workshop) -> bytes:
    """The same at 80 columns."""
    folder = work.folder / "narrow"
    folder.mkdir(exist_ok=True)
    terminal = played(["run", "experiment=quickstart"], folder, 80)
    return drawn_terminal(work, terminal, terminal.screen())


def progress(work: Workshop) -> bytes:
    """The quickstart under way."""
    halfway = re.compile(r"\b(\d+)/480 cases")

    def now(text: str) -> bool:
        found = halfway.search(text)
        return found is not None and 150 <= int(found[1]) < 480

    return drawn_terminal(work, work.quickstart, work.quickstart.screen(now))


def report(work: Workshop) -> bytes:
    """The report's head, tables and first figure."""
    work.command("report", str(RUNS))
    return picture_of(work.window, (work.folder / RUNS / "report.html").as_uri())


def trajectory(work: Workshop) -> bytes:
    """One case under AgentSys in the report."""
    work.command("report", str(RUNS))
    page = (work.folder / RUNS / "report.html").as_uri()
    work.window.resize(1400, 1650)
    work.window.open(page)
    ids = case_ids(work.window, "agentsys")
    work.window.open(f"{page}#case={ids['agentsys']}")
    work.window.wait_for("return document.querySelector('#case .tree') !== null")
    return work.window.picture()


def side_by_side(work: Workshop) -> bytes:
    """The same case without a defense and under AgentSys, in the report."""
    work.command("report", str(RUNS))
    page = (work.folder / RUNS / "report.html").as_uri()
    work.window.resize(1400, 1650)
    work.window.open(page)
    ids = case_ids(work.window, "none", "agentsys")
    work.window.open(f"{page}#case={ids['none']}&beside={ids['agentsys']}")
    work.window.wait_for("return document.querySelectorAll('#case .half').length === 2")
    return work.window.picture()


def case_ids(window: Browser, *defenses: str) -> dict[str, str]:
    """Defense -> id of the case that is shown, from the page's own list."""
    rows = window.run("return JSON.parse(document.querySelector('#index-data').textContent)")
    return {
        row["defense"]: row["id"]
        for row in rows
        if row["defense"] in defenses and all(row[name] == value for name, value in SHOWN_CASE.items())
    }


def inspect_view(work: Workshop) -> bytes:
    """The same case in Inspect's viewer."""
    assert work.inspect is not None and work.quickstart
    logs = "results/inspect"
    export = [str(work.inspect), "-m", "agentsys", "export", "inspect", str(RUNS), "--out", logs]
    subprocess.run(export, cwd=work.folder, env=environment(), check=True)
    (log,) = (work.folder / logs).glob(f"*_{SHOWN_CASE['suite']}-agentsys-important-instructions_*.eval")
    port = free_port()
    viewer = [str(work.inspect.with_name("inspect")), "view", "--log-dir", logs, "--host", "127.0.0.1"]
    with server([*viewer, "--port", str(port)], work.folder, says=f":{port}"):
        sample = "/".join(SHOWN_CASE[name] for name in ("user_task", "injection_task"))
        address = (
            f"http://127.0.0.1:{port}/#/logs/{quote(log.name)}/samples/sample/{quote(sample, safe='')}/1/"
        )
        work.window.resize(1400, 1000)
        work.window.open(address)
        work.window.wait_for("return document.body.textContent.includes('worker_agent')")
        time.sleep(3)  # its lanes are drawn after its texts
        return work.window.picture()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def server(command: list[str], folder: Path, says: str) -> Iterator[str]:
    """Run a server; give the line in which it says where it listens."""
    process = subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        yield next(line for line in process.stdout if says in line)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def figure(number: str) -> Callable[[Workshop], bytes]:
    """One of `agentsys figure`'s, of the quickstart's runs."""

    def draw(work: Workshop) -> bytes:
        work.command("figure", number, str(RUNS), "--out", "figures")
        stem = number if number.isdecimal() else f"_{number}"
        image = Image.open(work.folder / "figures" / f"figure{stem}.png").convert("RGB")
        file = io.BytesIO()
        image.resize((image.width * 3 // 4, image.height * 3 // 4), Image.Resampling.LANCZOS).save(
            file, "png"
        )
        return file.getvalue()

    return draw


PICTURES: dict[str, Callable[[Workshop], bytes]] = {
    "screen_120": screen_120,
    "screen_80": screen_80,
    "progress": progress,
    "report": report,
    "trajectory": trajectory,
    "side_by_side": side_by_side,
    "inspect_view": inspect_view,
    "figure3": figure("3"),
    "figure4": figure("4"),
    "figure_tokens": figure("tokens"),
}
"""Name of a picture in docs/images, without `.png` -> how it is drawn."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PICTURES, []], metavar="NAME")
    parser.add_argument(
        "--inspect", type=Path, metavar="PYTHON", help="of an environment with the extra inspect"
    )
    parser.add_argument("--out", type=Path, default=IMAGES, metavar="DIR", help="instead of docs/images")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="agentsys-"))
    try:
        with browser() as window:
            work = Workshop(folder, window, options.inspect)
            for name in options.names or PICTURES:
                if name == "inspect_view" and options.inspect is None:
                    print("inspect_view is left as it is: give --inspect PYTHON")
                else:
                    kept(name, PICTURES[name](work), options.out)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
