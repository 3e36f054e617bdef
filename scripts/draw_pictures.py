"""Draw the pictures of README and docs from a run of the quickstart; they are kept in docs/images.

Usage: .venv/bin/python scripts/draw_pictures.py [FOLDER of experiment=guarantees]

Needs Chromium and `make browser`. Takes a minute or two. The picture of the guarantees' runs, which take
an hour, is drawn anew where their folder is given. Everything shown is simulated.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from browser import Browser, browser  # noqa: E402

IMAGES = ROOT / "docs" / "images"
RUNS = Path("results", "runs", "quickstart")
FIGURES = {"figure3": "3", "figure4": "4", "figure_tokens": "tokens"}
"""Picture -> what `agentsys figure` calls it."""
GUARANTEES = "figure_guarantees"
PICTURES = (*FIGURES, GUARANTEES, "report", "trajectory")
"""Their names in docs/images, without `.png`."""
SHOWN_CASE = {
    "defense": "agentsys",
    "suite": "slack",
    "user_task": "user_task_1",
    "injection_task": "injection_task_2",
}
COLOURS = 96
"""Size of a picture's palette: text on plain ground needs no more, and takes a fifth of the bytes."""


def run_agentsys(folder: Path, *arguments: str) -> None:
    """Run a command of ours in a folder."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-m", "agentsys", *arguments], cwd=folder, env=environment, check=True)


def draw_report(window: Browser, page: str) -> bytes:
    """The report's head, tables and first figure."""
    window.resize(1400, 1000)
    window.open(page)
    return window.picture()


def draw_trajectory(window: Browser, page: str) -> bytes:
    """One case under AgentSys, by its id in the page's own list."""
    window.resize(1400, 2150)
    window.open(page)
    wanted = "+".join(f"{name}%3D{value}" for name, value in SHOWN_CASE.items())
    window.open(f"{page}#where={wanted}")
    window.click("#cases a")
    window.wait_for("return document.querySelector('#case .tree') !== null")
    return window.picture()


def keep_picture(name: str, image: Image.Image) -> None:
    """Store a picture with a palette."""
    path = IMAGES / f"{name}.png"
    # A median cut would spend the palette on greys, and draw one defense in another's colour.
    coverage, plain = Image.Quantize.MAXCOVERAGE, Image.Dither.NONE
    small = image.convert("RGB").quantize(COLOURS, method=coverage, kmeans=3, dither=plain)
    small.save(path, optimize=True)
    print(f"{path}: {image.width} x {image.height}, {path.stat().st_size / 1000:.0f} kB")


def draw_figure(folder: Path, picture: str, name: str, runs: Path) -> None:
    """Draw a figure of some runs and keep it, smaller."""
    run_agentsys(folder, "figure", name, str(runs), "--out", "figures")
    image = Image.open(folder / "figures" / f"{picture}.png")
    size = (image.width * 3 // 4, image.height * 3 // 4)
    keep_picture(picture, image.convert("RGB").resize(size, Image.Resampling.LANCZOS))


def main(*guarantees: str) -> None:
    """Run the quickstart and draw all pictures."""
    with tempfile.TemporaryDirectory() as name, browser() as window:
        folder = Path(name)
        run_agentsys(folder, "run", "experiment=quickstart", "--quiet")
        for picture, number in FIGURES.items():
            draw_figure(folder, picture, number, RUNS)
        for runs in guarantees[:1]:
            draw_figure(folder, GUARANTEES, "guarantees", Path(runs).resolve())
        run_agentsys(folder, "report", str(RUNS))
        page = (folder / RUNS / "report.html").as_uri()
        for picture, draw in (("report", draw_report), ("trajectory", draw_trajectory)):
            keep_picture(picture, Image.open(io.BytesIO(draw(window, page))))


if __name__ == "__main__":
    main(*sys.argv[1:])
