"""What the public functions hand back: objects that a notebook shows and a program reads."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from agentsys.analysis.figures.drawn import Drawn
    from agentsys.analysis.tables.document import Document


@dataclass(frozen=True)
class Run:
    """What `run` did."""

    folders: tuple[Path, ...]
    """The pipeline folders that hold its records; `results`, `compare` and `load_runs` take them."""
    planned: int
    """Cases in the plan."""
    finished: int
    """Cases that were run now; the others had been before, or belong to another process."""
    errors: int
    """Cases that ended in an error now: they are in no rate, and the next run tries them again."""
    ended: str | None
    """Why the run ended early; None: it did not."""

    def cases(self) -> pd.DataFrame:
        """The records as a frame, one row per case (see `load_runs`)."""
        from agentsys.records.load import load_runs

        return load_runs(folder for folder in self.folders if folder.is_dir())


@dataclass(frozen=True)
class ResultTables:
    """Numbers, as a frame for programs and as a document for people.

    A notebook shows the document; `print` gives it as text.
    """

    frame: pd.DataFrame
    """The long form: a row per number."""
    document: Document
    """Tables with notes."""

    def __str__(self) -> str:
        from io import StringIO

        from rich.console import Console

        from agentsys.analysis.tables.write_terminal import terminal_document

        file = StringIO()
        Console(file=file, width=100, color_system=None).print(terminal_document(self.document), crop=False)
        return file.getvalue()

    def _repr_html_(self) -> str:
        from agentsys.analysis.tables.write_html import html_fragment

        return html_fragment(self.document)

    def markdown(self) -> str:
        """The document as GitHub-flavoured Markdown."""
        from agentsys.analysis.tables.write_text import markdown_document

        return markdown_document(self.document)

    def latex(self) -> str:
        """The document as LaTeX, for the package booktabs."""
        from agentsys.analysis.tables.write_text import latex_document

        return latex_document(self.document)


@dataclass(frozen=True)
class ComparedDefenses(ResultTables):
    """A comparison of defenses, models, attacks or runs: differences, and the cases that made them."""

    flips: pd.DataFrame
    """A row per case that two sides decided differently.

    Columns: `metric`, `benchmark`, `version`, `model`, `defense` and `attack` (of the compared side),
    `baseline` and `compared` (the sides' names), `gained` (True: the outcome occurred on the compared side
    alone), `suite`, `user_task_id`, `injection_task_id`, `epoch`, the ids `baseline_case` and
    `compared_case` that links to reports take, and the files `baseline_file` and `file`.
    """


@dataclass(frozen=True)
class Drawing:
    """A figure with the numbers in it. A notebook shows the figure."""

    figure: Figure
    """Matplotlib's figure."""
    frame: pd.DataFrame
    """A row per plotted number."""
    figure_output: Drawn
    """What `save` writes."""

    def _repr_png_(self) -> bytes:
        from io import BytesIO

        file = BytesIO()
        self.figure.savefig(file, format="png", dpi=110)
        return file.getvalue()

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write PDF, PNG and the plotted numbers (CSV) into a folder, which is made if it is not there."""
        from agentsys.analysis.figures.drawn import save

        return save(self.figure_output, Path(folder))
