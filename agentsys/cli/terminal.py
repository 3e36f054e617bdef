"""Text for a terminal: whatever it came from, it can only be read and does nothing.

Config texts, tool outputs and model replies may hold escape sequences (that recolour, overwrite or
rename a terminal) and rich markup. Everything printed that we did not write goes through here.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

_CLOSED_ERRNOS = frozenset({errno.EPIPE, errno.EIO})
_ESCAPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories that steer a terminal or hide text: controls, bidi and zero-width marks, separators."""


def escape_controls(text: str) -> str:
    r"""`text` with everything but newlines and tabs that steers a terminal spelled out (`\x1b`)."""
    if text.isprintable():
        return text
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) not in _ESCAPED_CATEGORIES
        else _escape_char(char)
        for char in text
    )


def escape_to_line(text: str) -> str:
    """Escape as `escape_controls` does, on a single line: newlines are spelled out too."""
    return escape_controls(text).replace("\n", "\\n").replace("\t", " ")


class _EscapingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return escape_controls(super().format(record))


def filter_logs() -> None:
    """Let warnings and logged lines, ours and other packages', pass through `escape_controls` as well.

    They may quote what a server said. Shown as without this: from warnings on, on stderr, the message alone.
    """
    shown = logging.StreamHandler()
    shown.setFormatter(_EscapingFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[shown])
    logging.captureWarnings(True)
    # Python 3.12 and later warn of installed packages' docstrings when these are first compiled.
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=".*site-packages")


def ignore_closed_output() -> None:
    """Let a command go on where nobody reads what it prints: a run that is paid for must not die of that.

    The reader may never have been there (`>&-`), or go away (`| head`, a closed terminal).
    """
    sys.stdout, sys.stderr = _ForgivingStream.wrap(sys.stdout), _ForgivingStream.wrap(sys.stderr)


class _ForgivingStream:
    """A text stream that drops what it cannot get rid of."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @classmethod
    def wrap(cls, stream: TextIO | None) -> Any:
        return cls(Path(os.devnull).open("w") if stream is None else stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        return self._try_write(lambda: self._stream.write(text)) or 0

    def flush(self) -> None:
        self._try_write(self._stream.flush)

    def _try_write(self, action: Callable[[], int | None]) -> int | None:
        try:
            return action()
        except OSError as error:
            if error.errno not in _CLOSED_ERRNOS:
                raise
            # The file itself: what waits in the buffer is written to it when the process ends.
            with Path(os.devnull).open("w") as nowhere:
                os.dup2(nowhere.fileno(), self._stream.fileno())
            return None


def replace_unencodable() -> None:
    """Let the terminal's encoding lack a character without ending the command."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _escape_char(char: str) -> str:
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
