"""Whether a path argument stays below its root, in whatever encoding it is written."""

from __future__ import annotations

import posixpath
import re
import unicodedata
from urllib.parse import unquote_to_bytes

_LEVELS = 4
"""How often percent signs are decoded: servers and tools do it once, attackers hope for twice."""
_OVERLONG = re.compile(rb"[\xc0\xc1]([\x80-\xbf])|\xe0\x80([\x80-\xbf])|\xf0\x80\x80([\x80-\xbf])")
_PERCENT_U = re.compile(r"%u([0-9a-fA-F]{4})")
_ESCAPE_SEQUENCE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([0-7]{3}))")
_DRIVE = re.compile(r"^[a-zA-Z]:")
_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:(?:/|\\)")
_SHELL = re.compile(r"[$`*?\[\]{}'\"\\;|&<>()!\n\r\t ~]")
"""What a shell expands, removes or ends a word at."""
_LOOK_ALIKES = str.maketrans(
    {"∕": "/", "⁄": "/", "⧸": "/", "╱": "/", "＼": "\\", "∖": "\\", "․": ".", "｡": "."}
)


def find_path_fault(path: str, root: str = ".", *, shell: bool = False) -> str | None:
    """Why a path may not be used; None if it stays below its root.

    Args:
        path: As the agent wrote it.
        root: The folder it must stay in; `.`: wherever the tool looks for relative paths.
        shell: Whether the tool hands it to a shell, unquoted. Then nothing a shell would expand may stand
            in it.
    """
    if shell and _SHELL.search(path):
        return "a shell would expand it"
    for reading in _decoding_steps(path):
        why = _find_escape(reading, root)
        if why is not None:
            return why
    return None


def _decoding_steps(path: str) -> list[str]:
    """The path as written and as each step of decoding leaves it."""
    found = [path]
    for _ in range(_LEVELS):
        plainer = _decode_once(found[-1])
        if plainer == found[-1]:
            break
        found.append(plainer)
    return found


def _decode_once(path: str) -> str:
    text = _PERCENT_U.sub(lambda code: chr(int(code[1], 16)), path)
    text = _ESCAPE_SEQUENCE.sub(_unescape_match, text)
    raw = unquote_to_bytes(text.encode("utf-8", "surrogatepass"))
    text = _OVERLONG.sub(_decode_overlong, raw).decode("utf-8", "replace")
    return unicodedata.normalize("NFKC", text.translate(_LOOK_ALIKES))


def _unescape_match(match: re.Match[str]) -> str:
    byte, unit, octal = match.groups()
    return chr(int(octal, 8) if octal else int(byte or unit, 16))


def _decode_overlong(match: re.Match[bytes]) -> bytes:
    """The character that an overlong UTF-8 sequence of two to four bytes stands for."""
    last = next(group for group in match.groups() if group is not None)[0]
    first = match.group()[0]
    return bytes([((first & 1) << 6 if first in (0xC0, 0xC1) else 0) | (last & 0x3F)])


def _find_escape(path: str, root: str) -> str | None:
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        return "it holds control characters"
    if _DRIVE.match(path) or _SCHEME.match(path) or path.startswith(("\\\\", "//")):
        return "it names a drive, a server or a scheme"
    # Windows' own separator, and the spaces and dots that it drops at the end of a name.
    parts = [part.strip() for part in re.split(r"[/\\;]", path)]
    if any(part == ".." or re.fullmatch(r"\.{2,}", part) for part in parts):
        return "it goes up"
    if path.lstrip().startswith("~") or parts[0].startswith("~"):
        return "it begins in a home folder"
    absolute = path.strip().replace("\\", "/")
    if absolute.startswith("/"):
        inside = posixpath.normpath(absolute)
        if root in (".", "") or not (inside + "/").startswith(root.rstrip("/") + "/"):
            return "it is outside its folder"
    return None
