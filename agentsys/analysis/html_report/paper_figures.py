"""`paper_figures`: the paper's figures drawn with these runs, as images that the page can hold.

matplotlib is imported only when this is called: it costs a second or more.
"""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.errors import ConfigError
from agentsys.records.case_row import CaseRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES = {
    "2": "Figure 2: other attacks",
    "3": "Figure 3: security, utility and cost",
    "4": "Figure 4: utility and attack success by length of the task",
    "table1": "Table 1 as a figure: attack success by trajectory length and injection round",
    "tokens": "Tokens by trajectory length",
}


@dataclass(frozen=True)
class PaperFigure:
    """One figure."""

    title: str
    image: str
    """SVG in base64. As an image a browser runs nothing in it and loads nothing for it."""
    numbers: str
    """What is plotted, as CSV."""


def paper_figures(cases: Sequence[CaseRow], errors: ErrorRule = ErrorRule.REPORT) -> list[PaperFigure]:
    """Those of the paper's figures that the runs have cases for, one model in each."""
    from agentsys.analysis.figures.catalog import FIGURES, make_figure
    from agentsys.analysis.figures.mark import marks_csv

    made: list[PaperFigure] = []
    for name, kind in FIGURES.items():
        if not kind.selection(cases).lines:
            continue
        with warnings.catch_warnings():
            # Names in runs may hold characters that the font lacks: they show as boxes.
            warnings.simplefilter("ignore", UserWarning)
            try:
                drawn = make_figure(kind, cases, errors=errors)
            except ConfigError:  # nothing to draw: published runs hold no tokens, say
                continue
            made.append(PaperFigure(_TITLES.get(name, name), _svg(drawn.figure), marks_csv(drawn.marks)))
    return made


def _svg(figure: Figure) -> str:
    import matplotlib

    from agentsys.analysis.figures.style import styled

    file = io.BytesIO()
    # Outlines instead of text, since an image cannot load a font; ids that are the same every time.
    with styled(), matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "agentsys"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return base64.b64encode(file.getvalue()).decode()
