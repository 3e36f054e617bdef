"""`Document`: grids of plain text with notes, the common form of everything that is tabulated; and escaping.

Nothing in a document is escaped. Each writer (`table_writers`, `write_terminal`) escapes every string where
it puts it down, so that no producer of a document has to remember to. Names of tasks, attacks and models are
chosen by whoever wrote a file.
"""

from __future__ import annotations

import math
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from agentsys.analysis.statistics.case_outcomes import BROKEN

if TYPE_CHECKING:
    from agentsys.analysis.metrics.rates import MetricRow, Number
    from agentsys.analysis.metrics.search_budget import BudgetRow

    WithInterval = MetricRow | Number | BudgetRow

MISSING = "n/a"
"""Where a value is undefined; never 0."""
BEST = "*"
"""Ends the text of a number that is the best of its column."""
PAPER = "paper"
"""Heading of what the paper prints, beside our number."""
BULLET = "- "
"""What a sentence that can be quoted begins with in a terminal."""


class GridCell(NamedTuple):
    """The content of one place of a grid."""

    text: str
    detail: str = ""
    """Smaller print behind the text (in a terminal, below a name): an interval, as a rule."""
    link: str = ""
    """Where the text leads, where links work: `#...` in the same page, or a `file:` URL."""

    @property
    def in_one(self) -> str:
        """Both on one line, e.g. `30.66 (22.4-39.7)`."""
        return f"{self.text} ({self.detail})" if self.detail else self.text


@dataclass(frozen=True)
class Grid:
    """One table."""

    caption: str
    header: tuple[str, ...]
    rows: Sequence[tuple[GridCell, ...]]
    """Each as long as the header."""
    names: int
    """How many leading columns hold names; the others are numbers, aligned to the right."""
    headline: range = range(0)
    """Indices of the columns that stay in the table, however narrow the screen and whether or not they vary."""
    breaks: frozenset[int] = frozenset()
    """Indices of rows that a rule stands above."""
    wraps: frozenset[int] = frozenset()
    """Indices of columns with long texts, which a terminal may break over lines; others are never broken."""
    captioned: bool = False
    """Whether a terminal shows the caption too: where the headings do not say what the numbers are."""
    legend: str = ""
    """What a terminal says below it."""


@dataclass(frozen=True)
class Document:
    """Grids under their headings, and what has to be said above and below them."""

    sections: Sequence[tuple[str, Sequence[Grid]]]
    """(heading, its grids)."""
    notes: Sequence[str]
    """One sentence or two each."""
    commands: Sequence[str] = ()
    """Shell commands, shown verbatim under the notes."""
    title: str = ""
    """Heading of the whole; empty where the sections' headings say enough."""
    quotable: Sequence[str] = ()
    """Sentences that a paper can quote; they come before the grids."""
    dense: bool = False
    """Whether a terminal shows it without empty lines."""


def make_cells(*texts: str | GridCell) -> tuple[GridCell, ...]:
    """A row of a grid from plain texts and ready cells."""
    return tuple(text if isinstance(text, GridCell) else GridCell(text) for text in texts)


def write_number(value: float, form: str = ".2f") -> str:
    """Write a value in a form of `format`; by default with two decimals, e.g. `30.66`."""
    return MISSING if math.isnan(value) else format(value, form)


def write_value(number: WithInterval | None) -> str:
    """Write a number's value; `n/a` where there is no number, `broken` where its cell is."""
    if number is None:
        return MISSING
    if getattr(number, "verdict", "") == BROKEN:
        return BROKEN
    mean = getattr(number, "mean", None)
    return write_number(number.value if mean is None else mean)


def write_interval(number: WithInterval | None, digits: int = 1) -> str:
    """Write an interval, e.g. `22.4-39.7` or `68.2-100`; empty where undefined."""
    if number is None or math.isnan(number.ci_low):
        return ""
    # Without a decimal where there is only one such value: it keeps a column of intervals narrow.
    ends = (number.ci_low, number.ci_high)
    return "-".join(f"{end:.0f}" if end in (0.0, 100.0) else f"{end:.{digits}f}" for end in ends)


def make_number_cell(number: WithInterval | None) -> GridCell:
    """Put a value into a place of a grid, with its interval and, where they differ, its bounds in smaller print."""
    low, high = (getattr(number, name, math.nan) for name in ("bound_low", "bound_high"))
    bounds = f"bounds {low:.1f}-{high:.1f}" if high - low >= 0.05 else ""
    return GridCell(write_value(number), ", ".join(filter(None, (write_interval(number), bounds))))


def make_difference_cell(number: WithInterval) -> GridCell:
    """A difference may be negative on either side: a dash between its bounds could not be read."""
    known = not math.isnan(number.ci_low)
    return GridCell(write_value(number), f"{number.ci_low:.1f} to {number.ci_high:.1f}" if known else "")


_MARKDOWN = str.maketrans(
    {character: f"\\{character}" for character in "\\`*_{}[]()#+!|~$"}
    | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
)
_LATEX = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedbl{}",
        # After a row's end or a rule these would begin an argument.
        "[": "{[}",
        "]": "{]}",
        "*": "{*}",
        "†": r"\textdagger{}",
        "‡": r"\textdaggerdbl{}",
        "—": "---",
    }
)
_LAST_IN_LATEX_FONTS = "\u017f"
"""End of Latin Extended-A: what lies beyond stops pdfLaTeX with the standard fonts."""
_FORMULA_STARTS = ("=", "+", "-", "@")


def make_plain(name: str) -> str:
    """A name on one line, without anything that steers a terminal.

    Control characters, line and paragraph separators, text-direction marks and lone surrogates become
    `?`; everything visible stays.
    """
    if name.isprintable():  # which nothing below is
        return name
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return "".join("?" if unicodedata.category(character) in hidden else character for character in name)


def escape_for_csv(name: str) -> str:
    """A name that no spreadsheet takes for a formula: such a one gets a leading apostrophe."""
    shown = make_plain(name)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA_STARTS) else shown


def escape_for_markdown(name: str) -> str:
    """A name as the text of a Markdown table cell: no markup, HTML or column separators in it."""
    return make_plain(name).translate(_MARKDOWN)


def escape_for_latex(name: str) -> str:
    """A name as LaTeX text: no commands, maths or column separators in it.

    Letters that pdfLaTeX's standard fonts lack become `?`: one such name must not stop a paper.
    """
    shown = make_plain(name).translate(_LATEX)
    return "".join(character if character <= _LAST_IN_LATEX_FONTS else "?" for character in shown)


def break_between_words(text: str, width: int | None, hang: str = "") -> str:
    """Break a text between words alone, so that a path in it can be copied; its own line breaks stay.

    Args:
        text: What is shown.
        width: Columns that there are; None: it is not broken.
        hang: What a line begins with that goes on with the one above.
    """
    if width is None:
        return text
    wrapper = textwrap.TextWrapper(
        width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(map(wrapper.fill, text.split("\n")))
