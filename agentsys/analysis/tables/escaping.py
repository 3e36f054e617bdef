"""Names made safe for where they are shown: task, attack and model names, chosen by whoever wrote a file."""

from __future__ import annotations

import html
import textwrap
import unicodedata

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


def plain(name: str) -> str:
    """A name on one line, without anything that steers a terminal.

    Control characters, line and paragraph separators, text-direction marks and lone surrogates become
    `?`; everything visible stays.
    """
    if name.isprintable():  # which nothing below is
        return name
    hidden = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return "".join("?" if unicodedata.category(character) in hidden else character for character in name)


def shortened(name: str, most: int) -> str:
    """A plain name of at most so many characters."""
    shown = plain(name)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def csv_cell(name: str) -> str:
    """A name that no spreadsheet takes for a formula: such a one gets a leading apostrophe."""
    shown = plain(name)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA_STARTS) else shown


def markdown_cell(name: str) -> str:
    """A name as the text of a Markdown table cell: no markup, HTML or column separators in it."""
    return plain(name).translate(_MARKDOWN)


def latex_cell(name: str) -> str:
    """A name as LaTeX text: no commands, maths or column separators in it.

    Letters that pdfLaTeX's standard fonts lack become `?`: one such name must not stop a paper.
    """
    shown = plain(name).translate(_LATEX)
    return "".join(character if character <= _LAST_IN_LATEX_FONTS else "?" for character in shown)


def html_text(name: str) -> str:
    """A name as HTML text or the value of a quoted attribute: no tags, entities or quotes in it."""
    return html.escape(plain(name), quote=True)


def between_words(text: str, width: int | None, hang: str = "") -> str:
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
