"""`Drawn`: a finished figure with the numbers in it, and how it is put on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentsys.analysis.figures.mark import Mark, marks_csv
from agentsys.analysis.figures.style import styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawn:
    """A figure and what is plotted in it."""

    name: str
    """The files' stem, e.g. `figure3`."""
    figure: Figure
    marks: Sequence[Mark]


def save(drawn: Drawn, folder: Path) -> list[Path]:
    """Write PDF, PNG and the plotted numbers into a folder, which is made if it is not there.

    Returns:
        The three files. The same figure gives the same bytes: no date is put into them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pdf, png, numbers = (folder / f"{drawn.name}.{kind}" for kind in ("pdf", "png", "csv"))
    with styled():
        drawn.figure.savefig(pdf, metadata={"CreationDate": None})
        drawn.figure.savefig(png, dpi=200, metadata={"Software": None})
    numbers.write_text(marks_csv(drawn.marks), encoding="utf-8")
    return [pdf, png, numbers]
