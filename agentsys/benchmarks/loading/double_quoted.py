"""Double-quoted YAML texts: what may stand inside one, as PyYAML's own scanner reads it."""

from __future__ import annotations

import re

# What PyYAML refuses to read anywhere is yaml.reader.Reader.NON_PRINTABLE; this is the rest.
_READABLE = "\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff"
_BREAKS = "\n\r\x85\u2028\u2029"
_ESCAPE = re.compile(
    rf"\\(?:[0abt\tnvfre \"/\\N_LP{_BREAKS}]|x[0-9A-Fa-f]{{2}}|u[0-9A-Fa-f]{{4}}"
    r"|U(?:000[0-9A-Fa-f]|0010)[0-9A-Fa-f]{4})"
)
"""A whole escape: YAML 1.1 section 5.6, and the backslash before a line's end."""
# The byte order mark is left out because it means something at a document's start only.
_PLAIN = re.compile(rf"(?:(?![\"\\\ufeff])[{_READABLE}]|{_ESCAPE.pattern})*+")
_READABLE_CHARACTER = re.compile(f"[{_READABLE}]")
_DOCUMENT_MARK = re.compile(rf"[{_BREAKS}][ \t]*(?:---|\.\.\.)(?=[ \t{_BREAKS}]|$)")


def is_plain(text: object) -> bool:
    """Say whether a text, put inside double quotes, provably stays there.

    It does if it has no double quote of its own and each backslash begins an escape that is
    complete within the text: the scanner then meets the closing quote where it met it before.
    """
    return isinstance(text, str) and _PLAIN.fullmatch(text) is not None


def find_breaking_character(text: str) -> tuple[int, str] | None:
    """The first character that cannot stand inside a double-quoted YAML text.

    Returns:
        Its position, from 0, and what is wrong with it; None if no character of the text is to blame.
    """
    index = 0
    while index < len(text):
        if text[index] == '"':
            return index, "a double quote ends the environment's quoted text"
        if text[index] == "\\":
            escape = _ESCAPE.match(text, index)
            if escape is None:
                return index, "a backslash that begins no YAML escape"
            index = escape.end()
            continue
        if not _READABLE_CHARACTER.match(text, index):
            return index, "a character that YAML does not allow"
        if mark := _DOCUMENT_MARK.match(text, index):
            return mark.end() - 3, "a document mark (--- or ...) at the start of a line"
        index += 1
    return None


_SPELLED_BREAK = re.compile(r"\\n(?![a-z])|\\[rt](?![A-Za-z])")
_UNREADABLE = re.compile(f"[^{_READABLE}]")


def mend_text(text: str) -> str:
    """The text with what would break a double-quoted YAML text replaced by the nearest thing that does not.

    A double quote becomes an apostrophe; line breaks and tabs that a model spelled out (a backslash and `n`)
    a space; every other backslash a slash; a character that YAML refuses, or a document mark, spaces.
    """
    plain = _SPELLED_BREAK.sub(" ", text).replace('"', "'").replace("\\", "/")
    plain = _UNREADABLE.sub(" ", plain)
    return _DOCUMENT_MARK.sub(lambda mark: mark[0][0] + " " * (len(mark[0]) - 1), plain)
