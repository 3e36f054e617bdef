"""Text for a terminal: whatever it came from, it can only be read and does nothing.

Config texts, tool outputs and model replies may hold escape sequences (that recolour, overwrite or
rename a terminal) and rich markup. Everything printed that we did not write goes through here.
"""

from __future__ import annotations

import logging
import sys
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that steer a terminal or hide text: controls, bidi and zero-width marks, separators."""


def printable(text: str) -> str:
    """`text` with everything but newlines and tabs that steers a terminal spelled out (`\\x1b`)."""
    if text.isprintable():
        return text
    return "".join(char if _harmless(char) else _spelled(char) for char in text)


def one_line(text: str) -> str:
    """`printable`, on a single line: newlines are spelled out too."""
    return printable(text).replace("\n", "\\n").replace("\t", " ")


def as_cell(text: str) -> Text:
    """`one_line` for rich's tables and consoles: square brackets are shown, not obeyed.

    A `Text` and not `rich.markup.escape`, which loses a backslash before a bracket.
    """
    from rich.text import Text

    return Text(one_line(text))


class _Printable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def filter_logs() -> None:
    """Let warnings and logged lines, ours and other packages', pass through `printable` as well.

    They may quote what a server said. Shown as without this: from warnings on, on stderr, the message alone.
    """
    shown = logging.StreamHandler()
    shown.setFormatter(_Printable())
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    logging.captureWarnings(True)


def forgive_encoding() -> None:
    """Let the terminal's encoding lack a character without ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _harmless(char: str) -> bool:
    return char in "\n\t" or unicodedata.category(char) not in _ESCAPED


def _spelled(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
