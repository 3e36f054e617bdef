"""Compares texts as a reader would: layout, quoting, escapes, case and defensive marks folded away.

Tool results reach a model as YAML, JSON or Python reprs, re-flowed and escaped, and defenses mark or
encode them. Both sides of every comparison are folded; what is searched in also has its base64 decoded.
`find_instruction_spans` finds where in an output the words of a goal stand, however they were laid out.
"""

from __future__ import annotations

import base64
import binascii
import re
from functools import lru_cache

# A line that a double-quoted YAML string continues: backslash, newline, indent, escaped space.
_CONTINUED = re.compile(r"\\\r?\n[ \t]*(?:\\(?= ))?")
# Any number of backslashes: a Python repr or YAML that was put into JSON is escaped once more on the way.
_ESCAPE = re.compile(r"((?:\\+u[0-9A-Fa-f]{4})+)|\\+(?:x([0-9A-Fa-f]{2})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_LAYOUT_ESCAPES = frozenset("nrtNLP_ ")
_SYNTAX_ESCAPES = frozenset("\\\"'")
_LAST_CODE_POINT = 0x10FFFF

_QUOTES = ("'", '"', "`", "‘", "’", "“", "”")
# Private-use characters are what datamarking puts between words; `^` and `▁` are the other usual marks.
_UNICODE_MARKS = re.compile("[\ue000-\uf8ff\u2581]+")

# A whole text may be any length of base64; inside a text only long runs are worth a try.
_ALL_BASE64 = re.compile(r"[A-Za-z0-9+/\n]+={0,2}\n?")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/\n]{16,}={0,2}")


def fold_text(text: str) -> str:
    """The text with escapes resolved, quotes dropped, white space and marks collapsed, in lower case."""
    if "\\" in text:
        text = _ESCAPE.sub(_resolve_escape, _CONTINUED.sub("", text))
    for quote in _QUOTES:
        text = text.replace(quote, "")
    if not text.isascii():
        text = _UNICODE_MARKS.sub(" ", text)
    return " ".join(text.replace("^", " ").casefold().split())


def _resolve_escape(match: re.Match[str]) -> str:
    """Resolve one escape. Backslashes and quotes vanish on both sides of a comparison."""
    utf16, byte, code_point, other = match.groups()
    if utf16 is not None:
        return bytes.fromhex(utf16.replace("\\", "").replace("u", "")).decode("utf-16-be", "replace")
    if byte is not None:
        return chr(int(byte, 16))
    if code_point is not None:
        value = int(code_point, 16)
        return chr(value) if value <= _LAST_CODE_POINT else ""
    if other in _LAYOUT_ESCAPES:
        return " "
    return "" if other in _SYNTAX_ESCAPES else str(other)


def decode_base64_parts(text: str) -> list[str]:
    """Decode what stands base64-encoded in a text, or is the whole of it; most long words are no text."""
    found = []
    for run in [text] if _ALL_BASE64.fullmatch(text) else _BASE64.findall(text):
        try:
            plain = base64.b64decode(run.replace("\n", ""), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
        if plain.replace("\n", "").replace("\t", "").isprintable():
            found.append(plain)
    return found


@lru_cache(maxsize=1024)
def fold_decoded(text: str) -> str:
    """Fold what a reader of this text has seen, base64 decoded; remembered, as conversations repeat their texts."""
    return fold_text("\n".join([text, *decode_base64_parts(text)]))


def occurs_in(needle: str, hay: str) -> bool:
    """Whether a folded text stands in another one as whole words.

    A number must be a number of its own there: `5` stands neither in `2024-05-15` nor in `5.1`, but in `5.0`.
    """
    # Nearly all needles stand nowhere.
    return bool(needle) and needle in hay and _compile_whole(needle).search(hay) is not None


@lru_cache(maxsize=1024)
def _compile_whole(needle: str) -> re.Pattern[str]:
    # First, so that it is found fast; what must not stand before it is looked at then.
    literal = re.escape(needle)
    pattern = literal + (rf"(?<!\w{literal})" if re.match(r"\w", needle) else "")
    pattern += r"(?!\w)" if re.match(r"\w", needle[-1]) else ""
    if needle.isdigit():
        pattern += rf"(?<!\d[-:./]{literal})(?=\.0+(?!\w)|(?![-:./]\d))"
    return re.compile(pattern)


# Between two words anything may stand that YAML, JSON or quoting puts there: escapes, quotes, line breaks.
_BETWEEN = r"(?:\\[nrtNLP]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|[\W_])*?"
_WORD_PATTERN = re.compile(r"[0-9A-Za-z]+")
_OPEN, _CLOSE = "<INFORMATION>", "</INFORMATION>"


@lru_cache(maxsize=512)
def compile_words_pattern(text: str) -> re.Pattern[str]:
    """Matches the words of a text in order, with any layout between them and closing punctuation after."""
    words = [re.escape(word) for word in _WORD_PATTERN.findall(text)]
    return re.compile(_BETWEEN.join(words) + r"[.!?]?", re.IGNORECASE) if words else re.compile(r"(?!)")


def find_instruction_spans(text: str, goal: str) -> list[str]:
    """Literal pieces of a tool's output that hold a goal, in order, each with the marks that frame it.

    The whole text if the goal's words are not found in it as they are (an encoded payload).
    """
    places = [_widen_to_frame(text, *found.span()) for found in compile_words_pattern(goal).finditer(text)]
    return [text[start:end] for start, end in places] or [text]


def _widen_to_frame(text: str, start: int, end: int) -> tuple[int, int]:
    """The span widened to the `<INFORMATION>` block around it, if it stands in one."""
    opened = text.rfind(_OPEN, 0, start)
    if opened >= 0 and text.find(_CLOSE, opened, start) < 0:
        closed = text.find(_CLOSE, end)
        return opened, closed + len(_CLOSE) if closed >= 0 else end
    return start, end
