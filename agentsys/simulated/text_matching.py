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

_NO_CENTS = re.compile(r"\.0+(?!\w)")


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


def with_decodings(text: str) -> str:
    """The text, followed by whatever stands in it base64-encoded."""
    return "\n".join([text, *decode_base64_parts(text)])


def decode_base64_parts(text: str) -> list[str]:
    """Decode what stands base64-encoded in a text, or is the whole of it."""
    runs = [text] if _ALL_BASE64.fullmatch(text) else _BASE64.findall(text)
    return [plain for run in runs if (plain := _decode_run(run)) is not None]


def _decode_run(encoded: str) -> str | None:
    """The text behind a base64 run; None where it is no text (most long words are not)."""
    compact = encoded.replace("\n", "")
    if len(compact) % 4:
        return None
    try:
        plain = base64.b64decode(compact, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return plain if plain.replace("\n", "").replace("\t", "").isprintable() else None


@lru_cache(maxsize=1024)
def fold_decoded(text: str) -> str:
    """Fold what a reader of this text has seen; remembered, as long conversations repeat their texts."""
    return fold_text(with_decodings(text))


def occurs_in(needle: str, hay: str) -> bool:
    """Whether a folded text stands in another one as whole words.

    A number must be a number of its own there: `5` stands neither in `2024-05-15` nor in `5.1`, but in `5.0`.
    """
    return find_words(needle, hay) >= 0


def find_words(needle: str, hay: str) -> int:
    """Find where `needle` first stands in `hay` as whole words; -1 if nowhere. Both are folded."""
    if not needle:
        return -1
    start = hay.find(needle)
    while start >= 0:
        if _is_whole_match(needle, hay, start):
            return start
        start = hay.find(needle, start + 1)
    return -1


def _is_whole_match(needle: str, hay: str, start: int) -> bool:
    end = start + len(needle)
    before, after = hay[max(0, start - 2) : start], hay[end : end + 2]
    if _is_word(needle[0]) and _is_word(before[-1:]):
        return False
    if _is_word(needle[-1]) and _is_word(after[:1]):
        return False
    if not needle.isdigit():
        return True
    goes_on = _continues_number(after) and _NO_CENTS.match(hay, end) is None
    return not (goes_on or _continues_number(before[::-1]))


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


def _continues_number(outwards: str) -> bool:
    """Whether what follows, read away from a number, continues it: a joint and one more digit."""
    return len(outwards) == 2 and outwards[0] in "-:./" and outwards[1].isdigit()


# Between two words anything may stand that YAML, JSON or quoting puts there: escapes, quotes, line breaks.
_BETWEEN = r"(?:\\[nrtNLP]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8}|[\W_])*?"
_WORD_PATTERN = re.compile(r"[0-9A-Za-z]+")
_OPEN, _CLOSE = "<INFORMATION>", "</INFORMATION>"


@lru_cache(maxsize=512)
def words_pattern(text: str) -> re.Pattern[str]:
    """Matches the words of a text in order, with any layout between them and closing punctuation after."""
    words = [re.escape(word) for word in _WORD_PATTERN.findall(text)]
    return re.compile(_BETWEEN.join(words) + r"[.!?]?", re.IGNORECASE) if words else re.compile(r"(?!)")


def find_instruction_spans(text: str, goal: str) -> list[str]:
    """Literal pieces of a text that hold a goal, each with the marks that frame it.

    Args:
        text: A tool output.
        goal: An injection goal, in its own wording.

    Returns:
        Substrings of `text`, in order of place; the whole text if the goal's words are not found in it as
        they are (an encoded payload).
    """
    places = [
        _widen_to_frame(text, match.start(), match.end()) for match in words_pattern(goal).finditer(text)
    ]
    return [text[start:end] for start, end in places] or [text]


def _widen_to_frame(text: str, start: int, end: int) -> tuple[int, int]:
    """The span widened to the `<INFORMATION>` block around it, if it stands in one."""
    opened = text.rfind(_OPEN, 0, start)
    if opened >= 0 and text.find(_CLOSE, opened, start) < 0:
        closed = text.find(_CLOSE, end)
        return opened, closed + len(_CLOSE) if closed >= 0 else end
    return start, end
