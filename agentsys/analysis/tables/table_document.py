"""`Document`: grids of plain text with notes, the common form of everything that is tabulated; `Output`: its writers.

Nothing in a document is escaped. Each writer (here and in `write_terminal`) escapes every string where
it puts it down, so that no producer of a document has to remember to. Names of tasks, attacks and models are
chosen by whoever wrote a file.
"""

from __future__ import annotations

import csv
import io
import math
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

import orjson

from agentsys.analysis.metrics.own_metric import PERCENT
from agentsys.analysis.statistics.case_outcomes import BROKEN
from agentsys.base.json_values import map_texts

if TYPE_CHECKING:
    from jinja2 import Environment

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


FILE_WIDTH = 160
"""Columns of a table that goes to a file or a pipe, where no terminal sets the width."""


class OutputFormat(StrEnum):
    """The forms in which a result is written."""

    TABLE = "table"
    MARKDOWN = "markdown"
    LATEX = "latex"
    HTML = "html"
    CSV = "csv"
    JSON = "json"

    @property
    def for_programs(self) -> bool:
        """True if it holds one record per number with whole names, and has no room for notes."""
        return self in (OutputFormat.CSV, OutputFormat.JSON)


@dataclass(frozen=True)
class LongForm:
    """The long form of a result: one record per number."""

    columns: Mapping[str, str]
    """Name of a column -> what it holds, in order: `str`, `int`, `float` or `bool`."""
    rows: Sequence[Mapping[str, Any]]
    """Each with the columns as keys; None where there is nothing, nan where a number is undefined."""


@dataclass(frozen=True)
class Output:
    """A result, ready to be written in any form."""

    name: str
    """Title of an HTML page of it, e.g. `agentsys results`."""
    document: Document
    records: LongForm
    data: Any = None
    """What JSON holds where that is more than a list of the records: values that JSON knows, names as they
    were found."""


def make_long_form(kind: type, rows: Iterable[Any]) -> LongForm:
    """Make the long form of rows; the fields of their class are the columns.

    A `Percent` becomes a fraction, and its column is called `FIELD_fraction`. A number whose unit stands in another
    field (`Annotated[float, FIELD_OF_THE_UNIT]`) keeps its column; where that unit is percent, the number becomes a
    fraction, and so does the unit.

    Args:
        kind: The class of the rows: a dataclass or a NamedTuple.
        rows: The rows.
    """
    columns: dict[str, str] = {}
    fields: list[tuple[str, str, str]] = []
    """Column, field, and the field of its unit, `percent` or nothing."""
    for name, hint in get_type_hints(kind, include_extras=True).items():
        optional = type(None) in get_args(hint)
        one = next(part for part in get_args(hint) if part is not type(None)) if optional else hint
        unit = getattr(one, "__metadata__", ("",))[0]
        column = f"{name.removesuffix('_value')}_fraction" if unit == PERCENT else name
        columns[column] = str(getattr(one, "__origin__", one).__name__)
        fields.append((column, name, unit))
    units = {unit for _, _, unit in fields}

    def convert_value_of(row: Any, name: str, unit: str) -> Any:
        value = getattr(row, name)
        if name in units:
            return "fraction" if value == PERCENT else value
        in_percent = value is not None and unit and PERCENT in (unit, getattr(row, unit, ""))
        return round(value / 100, 11) if in_percent else value

    return LongForm(columns, [{column: convert_value_of(row, *of) for column, *of in fields} for row in rows])


def make_grid_records(document: Document) -> LongForm:
    """Make the long form of a result that has none: a record per number of a grid."""
    rows = []
    for heading, grids in document.sections:
        for grid in grids:
            names = min(grid.names, len(grid.header) - 1)
            for row in grid.rows:
                name = " / ".join(cell.in_one for cell in row[:names])
                for column, cell in zip(grid.header[names:], row[names:], strict=True):
                    rows.append((heading, grid.caption, name, column, cell.in_one))
    columns = ("section", "table", "row", "column", "value")
    return LongForm(dict.fromkeys(columns, "str"), [dict(zip(columns, row, strict=True)) for row in rows])


# pandas' own writers are not used: they write an undefined number and a missing one alike, and importing
# pandas takes as long as all of `agentsys results`.


def write_csv_text(records: LongForm) -> str:
    """One header line, then one line per record; what is undefined or missing is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records.columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _write_csv_value(value) for name, value in row.items()} for row in records.rows)
    return text.getvalue()


def _write_csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return escape_for_csv(value)
    return "" if isinstance(value, float) and math.isnan(value) else value


def write_json_text(value: Any) -> str:
    """Indented JSON without characters that steer a terminal; what is undefined or missing is `null`."""
    # Values alone: keys are ours.
    plain = map_texts(value, make_plain)
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def write_markdown_document(document: Document) -> str:
    """Headings, tables, a list of notes, commands as a code block; ends in a newline."""
    parts = [f"# {escape_for_markdown(document.title)}"] if document.title else []
    if document.quotable:
        parts.append("\n>\n".join(f"> {escape_for_markdown(sentence)}" for sentence in document.quotable))
    for heading, grids in document.sections:
        parts += [f"### {escape_for_markdown(heading)}", *(_write_markdown_table(grid) for grid in grids)]
    if document.notes:
        parts.append("\n".join(f"- {escape_for_markdown(note)}" for note in document.notes))
    if document.commands:
        # A fence ends at a line of backticks alone, and `make_plain` leaves no second line in a command.
        parts.append("\n".join(["```sh", *(make_plain(command) for command in document.commands), "```"]))
    return "\n\n".join(parts) + "\n"


def _write_markdown_table(grid: Grid) -> str:
    rule = ["---"] * grid.names + ["---:"] * (len(grid.header) - grid.names)
    header = [escape_for_markdown(name) for name in grid.header]
    rows = [[escape_for_markdown(cell.in_one) for cell in row] for row in grid.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rule, *rows])


def write_latex_document(document: Document) -> str:
    """One float per grid, the notes under the first one of a section, commands as comments."""
    parts = [r"% Needs \usepackage{booktabs}, and \usepackage{graphicx} for tables wider than the text."]
    if document.title:
        parts.append(rf"\paragraph{{{escape_for_latex(document.title)}}}")
    if document.quotable:
        sentences = [rf"\item {escape_for_latex(sentence)}" for sentence in document.quotable]
        parts.append("\n".join([r"\begin{itemize}", *sentences, r"\end{itemize}"]))
    for heading, grids in document.sections:
        for index, grid in enumerate(grids):
            caption = f"{escape_for_latex(heading)}, {escape_for_latex(grid.caption)}."
            parts.append("\n".join(_write_latex_table(grid, caption, () if index else document.notes)))
    if document.commands:
        parts.append("\n".join(f"% {make_plain(command)}" for command in document.commands))
    return "\n\n".join(parts) + "\n"


_FITS = 9
"""Columns that fit the width of a page."""


def _write_latex_table(grid: Grid, caption: str, notes: Sequence[str]) -> Iterator[str]:
    is_wide = len(grid.header) > _FITS
    yield from (r"\begin{table}", r"\centering", rf"\caption{{{caption}}}")
    if is_wide:
        yield r"\resizebox{\textwidth}{!}{%"
    columns = "l" * grid.names + "r" * (len(grid.header) - grid.names)
    yield from (rf"\begin{{tabular}}{{{columns}}}", r"\toprule")
    yield " & ".join(map(escape_for_latex, grid.header)) + r" \\"
    yield r"\midrule"
    for index, row in enumerate(grid.rows):
        if index in grid.breaks and index:
            yield r"\midrule"
        yield " & ".join(escape_for_latex(cell.in_one) for cell in row) + r" \\"
    yield from (r"\bottomrule", r"\end{tabular}" + "}" * is_wide)
    if notes:
        yield r"\begin{minipage}{\textwidth}\smallskip\footnotesize"
        yield from (f"{escape_for_latex(note)}\\par" for note in notes)
        yield r"\end{minipage}"
    yield r"\end{table}"


def load_templates(*folders: Path) -> Environment:
    """Load templates of HTML from some folders and our own.

    Whatever text they put down is made plain and escaped there; what is `Markup` (as of the filter `e`) is
    put down as it is.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    return Environment(
        loader=FileSystemLoader([*folders, Path(__file__).with_name("templates")]),
        autoescape=True,
        finalize=lambda value: (
            make_plain(value) if type(value) is not Markup and isinstance(value, str) else value
        ),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        lstrip_blocks=True,
    )


def render_html_document(document: Document, title: str) -> str:
    """A whole page without scripts or external resources; ends in a newline."""
    return load_templates().get_template("document.html").render(document=document, title=title)


def render_html_fragment(document: Document) -> str:
    """Headings, tables, notes and commands, to be put into a page; ends in a newline."""
    return load_templates().get_template("fragment.html").render(document=document)
