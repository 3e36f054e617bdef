"""Characters that hide or disguise text: invisible ones, direction marks, look-alike letters."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache

from agentsys_plugins.vectors.middleware.guard_settings import load_optional

_TAGS = range(0xE0000, 0xE0080)
_SELECTORS = (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
_ZERO_WIDTH = (0x200B, 0x200C, 0x200D, 0x2060, 0x2061, 0x2062, 0x2063, 0x2064, 0xFEFF, 0x180E, 0x034F)
_DIRECTION = (0x200E, 0x200F, 0x061C, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_FILLERS = (0x00AD, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0)
INVISIBLE: dict[int, None] = dict.fromkeys(
    (*_TAGS, *_SELECTORS, *_ZERO_WIDTH, *_DIRECTION, *_FILLERS, *range(0x300, 0x370), *range(0x1AB0, 0x1B00))
)
"""Everything that leaves no letter of its own, combining marks of Latin included, for `str.translate`."""

_LATIN = "A-Za-zÀ-ɏ"
_ZW = "\u200b-\u200d\u2060-\u2064\ufeff\u180e\u034f"
_IN_WORD = re.compile(f"(?<=[{_LATIN}0-9])[{_ZW}]+(?=[{_LATIN}0-9])")
_ZERO_WIDTH_RUN = re.compile(f"[{_ZW}]{{4,}}")
_FLAG_OR_TAGS = re.compile(
    "\U0001f3f4[\U000e0020-\U000e007e]{2,6}\U000e007f|(?P<tags>[\U000e0000-\U000e007f]+)"
)
"""The flags of England, Scotland and Wales (tags between a black flag and the cancel tag) match without `tags`."""
_SELECTOR_RUN = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}")
_SOFT_HYPHENS = re.compile("(?:\\w\u00ad){3,}")
_OVERRIDE = re.compile("\u202e([^\u202c\u2069\n]{0,4000})[\u202c\u2069]?|[\u202d\u202c]")
_EMBEDDED = re.compile("[\u202a\u202b\u2066-\u2069\u200e\u200f\u061c]")
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_FLOOD = re.compile("(?:\\w[\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff]{3,}\\W?){3,}|[\u0300-\u036f]{6,}")
_MARKS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u20d0-\u20ff]+")
_WORD = re.compile(r"[^\W\d_]{2,}")
_SCRIPTS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC")
"""Alphabets with letters that look Latin."""


@dataclass(frozen=True)
class RemovedDisguise:
    """Characters removed from a text."""

    kind: str
    weight: float
    excerpt: str
    hidden_text: str = ""
    """Text that the characters carried, for inspection."""


_Cleaned = tuple[str, list[RemovedDisguise]]
"""A text without the disguises, and what was taken out."""


def remove_disguises(text: str) -> _Cleaned:
    """Take out what hides text. Emoji sequences, Persian and Indic joiners, right-to-left text stay."""
    if text.isascii():
        return text, []
    removed: list[RemovedDisguise] = []
    for step in (
        _remove_tags,
        _remove_selectors,
        _remove_zero_width,
        _remove_soft_hyphens,
        _remove_directions,
        _remove_floods,
        _replace_mixed_scripts,
    ):
        text, disguises = step(text)
        removed += disguises
    return text, removed


def _remove_tags(text: str) -> _Cleaned:
    runs = [run for run in _FLAG_OR_TAGS.finditer(text) if run["tags"]]
    tags = [char for run in runs for char in run.group() if ord(char) >= 0xE0020]
    hidden_text = "".join(chr(ord(char) - 0xE0000) for char in tags)
    return _cut_runs(text, runs, RemovedDisguise("tag_characters", 0.7, hidden_text, hidden_text))


def _remove_selectors(text: str) -> _Cleaned:
    runs = list(_SELECTOR_RUN.finditer(text))
    codes = [ord(char) for run in runs for char in run.group()]
    raw = bytes(code - 0xFE00 if code < 0xFE10 else code - 0xE0100 + 16 for code in codes)
    hidden_text = raw.decode("utf-8", "replace")
    return _cut_runs(text, runs, RemovedDisguise("variation_selectors", 0.7, hidden_text, hidden_text))


def _cut_runs(text: str, runs: list[re.Match[str]], disguise: RemovedDisguise) -> _Cleaned:
    if not runs:
        return text, []
    ends = [0, *(run.end() for run in runs)]
    starts = [*(run.start() for run in runs), len(text)]
    parts = [text[end:start] for end, start in zip(ends, starts, strict=True)]
    return "".join(parts), [disguise]


def _remove_zero_width(text: str) -> _Cleaned:
    runs = [*_IN_WORD.finditer(text), *_ZERO_WIDTH_RUN.finditer(text)]
    if not runs:
        return text, []
    weight = 0.45 if len(runs) > 2 or any(len(run.group()) > 3 for run in runs) else 0.15
    disguise = RemovedDisguise("zero_width", weight, f"{len(runs)} places")
    return _ZERO_WIDTH_RUN.sub("", _IN_WORD.sub("", text)), [disguise]


def _remove_soft_hyphens(text: str) -> _Cleaned:
    if not _SOFT_HYPHENS.search(text):
        return text, []
    return text.replace("\u00ad", ""), [RemovedDisguise("soft_hyphens", 0.4, "between single letters")]


def _remove_directions(text: str) -> _Cleaned:
    removed = []
    if "\u202e" in text or "\u202d" in text:
        text = _OVERRIDE.sub(lambda run: (run.group(1) or "")[::-1], text)
        removed.append(RemovedDisguise("direction_override", 0.45, "text shown backwards"))
    if not _RIGHT_TO_LEFT.search(text) and _EMBEDDED.search(text):
        text = _EMBEDDED.sub("", text)
        removed.append(RemovedDisguise("direction_marks", 0.15, "in left-to-right text"))
    return text, removed


def _remove_floods(text: str) -> _Cleaned:
    if not _FLOOD.search(text):
        return text, []
    return _MARKS.sub("", text), [RemovedDisguise("combining_flood", 0.4, "marks on letters")]


def _replace_mixed_scripts(text: str) -> _Cleaned:
    """Words of Latin letters and look-alikes of another alphabet; a single one may just be talked about."""
    words = [word.group() for word in _WORD.finditer(text) if _is_mixed(word.group())]
    excerpt = ", ".join(words[:4])
    if len(words) < 2:
        return text, [RemovedDisguise("mixed_scripts", 0.1, excerpt)] if words else []
    plain = _WORD.sub(lambda word: to_plain_letters(word[0]) if _is_mixed(word[0]) else word[0], text)
    return plain, [RemovedDisguise("mixed_scripts", 0.5, excerpt)]


def _is_mixed(word: str) -> bool:
    if word.isascii():
        return False
    scripts = {_find_unicode_script(char) for char in word}
    return "LATIN" in scripts and not scripts.isdisjoint(_SCRIPTS)


@lru_cache(maxsize=4096)
def _find_unicode_script(char: str) -> str:
    return unicodedata.name(char, "").partition(" ")[0]


def to_plain_letters(text: str) -> str:
    """Replace letters that look like a Latin letter by it."""
    return text if text.isascii() else text.translate(_load_look_alikes())


@lru_cache(maxsize=1)
def _load_look_alikes() -> dict[int, str]:
    data = load_optional("confusable_homoglyphs.confusables").confusables_data
    twins = {ord(char): _find_ascii_letter(char, alike) for char, alike in data.items() if len(char) == 1}
    return {**{code: letter for code, letter in twins.items() if letter}, **_map_small_capitals()}


def _find_ascii_letter(char: str, alike: list[dict[str, str]]) -> str:
    """Return a character's ASCII look-alike, in its own case if it has one; else an empty string."""
    if char.isascii() or not char.isalpha():
        return ""
    characters = [entry["c"] for entry in alike]
    letters = [other for other in characters if len(other) == 1 and other.isascii() and other.isalpha()]
    return next((letter for letter in letters if letter.isupper() == char.isupper()), (letters or [""])[0])


def _map_small_capitals() -> dict[int, str]:
    """Phonetic small capitals, which the library does not have."""
    skeletons = {}
    for code in (*range(0x1D00, 0x1D30), *range(0x250, 0x2B0), *range(0xA720, 0xA800)):
        prefix, _, letter = unicodedata.name(chr(code), "").partition("LATIN LETTER SMALL CAPITAL ")
        if not prefix and len(letter) == 1:
            skeletons[code] = letter.lower()
    return skeletons
