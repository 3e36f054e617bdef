"""Says which injected texts a quoted YAML text holds unharmed, which character breaks it, and mends one.

AgentDojo substitutes injections into YAML text with `str.format` and parses all of it anew for every case.
PyYAML's own
 scanner takes 60 ms for Workspace, libyaml 5 ms; `is_read_alike` says where both are known to read the same.
"""

from __future__ import annotations

import pickle
import re
import string
from collections.abc import Mapping
from functools import lru_cache

import yaml

# What PyYAML refuses to read anywhere is yaml.reader.Reader.NON_PRINTABLE; this is the rest.
_READABLE = "\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff"
_BREAKS = "\n\r\x85\u2028\u2029"
_ESCAPE = re.compile(
    rf"\\(?:[0abt\tnvfre \"/\\N_LP{_BREAKS}]|x[0-9A-Fa-f]{{2}}|u[0-9A-Fa-f]{{4}}"
    r"|U(?:000[0-9A-Fa-f]|0010)[0-9A-Fa-f]{4})"
)
"""A whole escape: YAML 1.1 section 5.6, and the backslash before a line's end."""
_PLAIN = re.compile(
    r"(?:[ !#-\[\]-~\n\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
    r"|\\[0abtnvfre \"\\N_LP\n])*+"
)
"""What libyaml and PyYAML's own scanner read alike. They differ in tabs and in escapes of code points."""
_READABLE_CHARACTER = re.compile(f"[{_READABLE}]")
_DOCUMENT_MARK = re.compile(rf"[{_BREAKS}][ \t]*(?:---|\.\.\.)(?=[ \t{_BREAKS}]|$)")


def is_plain(text: object) -> bool:
    """Say whether a text, put inside double quotes, stays there and means the same to both YAML parsers.

    It has no double quote of its own, and each backslash begins an escape that is complete within the text:
    so a scanner meets the closing quote where it met it before.
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


def is_read_alike(text: str, defaults: Mapping[str, str]) -> bool:
    """Say whether libyaml reads an environment text as PyYAML does, with any plain injection in it.

    Args:
        text: YAML with `{vector}` placeholders, as `read_suite_file` returns it.
        defaults: Injection vector -> default text.

    Returns:
        False where that is not known: libyaml is not there, it reads the defaults otherwise, or a placeholder
        stands outside double quotes, where an injection could change what the text around it means.
    """
    try:
        filled = text.format(**defaults)
        tokens = yaml.scan(text, Loader=yaml.SafeLoader)
        quoted = [
            text[token.start_mark.index : token.end_mark.index]
            for token in tokens
            if isinstance(token, yaml.ScalarToken) and token.style == '"'
        ]
        return (
            yaml.__with_libyaml__
            and _count_placeholders(text) == sum(map(_count_placeholders, quoted))
            and bool(yaml.load(filled, Loader=yaml.CSafeLoader) == yaml.safe_load(filled))
        )
    except (yaml.YAMLError, LookupError, ValueError):
        return False


def _count_placeholders(text: str) -> int:
    """Count the placeholders of a format string.

    Raises:
        ValueError: If one is more than a name, so that it puts something else into the text.
    """
    count = 0
    for _, field, specification, conversion in string.Formatter().parse(text):
        if field is not None:
            if not field.isidentifier() or specification or conversion:
                raise ValueError(field)
            count += 1
    return count


@lru_cache(maxsize=64)
def parse_with_libyaml(text: str) -> bytes:
    """Parse a text, and pickle the document: a case loads the same one several times.

    Raises:
        yaml.YAMLError: If it is no YAML.
    """
    return pickle.dumps(yaml.load(text, Loader=yaml.CSafeLoader), pickle.HIGHEST_PROTOCOL)
