"""The first layer: takes out what hides or disguises text, and encoded instructions.

Encoded runs are decoded up to three levels deep, and cut where they say what they should not.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from agentsys_plugins.vectors.middleware.disguised_characters import remove_disguises
from agentsys_plugins.vectors.middleware.guard_settings import RiskFinding, combine_weights
from agentsys_plugins.vectors.middleware.hidden_markup import remove_hidden_markup
from agentsys_plugins.vectors.middleware.risk_patterns import find_sightings

LEVELS = 3
"""Most levels of nested encodings."""
MOST_BYTES = 64 * 1024
"""Longest encoded run that is decoded; of a longer one the beginning."""
MOST_RUNS = 64
"""Runs of one kind that are decoded in a text, the longest first."""
_LEAST_INSTRUCTION_SCORE = 1.5
"""Score from which a decoded text counts; plain text with so little would pass."""
_ENCODED = 0.5
"""Confidence that instructions which had to be decoded were meant for a machine."""

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{16,}(?:\r?\n[ \t]*[A-Za-z0-9+/_-]{8,})*={0,2}")
_HEX = re.compile(r"(?<![0-9A-Za-z])(?:[0-9a-fA-F]{2}[ :]?){12,}(?![0-9A-Za-z])")
_PERCENT = re.compile(r"(?:[A-Za-z0-9.+_-]{0,12}%[0-9A-Fa-f]{2}){8,}[A-Za-z0-9.+_-]{0,12}")
_ENTITIES = re.compile(r"(?:[\w .,]{0,4}&(?:#\d{2,6}|#[xX][0-9a-fA-F]{2,5});){8,}[\w.]{0,4}")
_WORDS = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True)
class EncodedPayload:
    """An encoded run that says something it should not."""

    start: int
    end: int
    kinds: tuple[str, ...]
    """The encodings, from the outside in."""
    text: str
    """The decoded text."""
    weight: float


def find_payloads(text: str) -> list[EncodedPayload]:
    """Encoded runs of a text that hold instructions, in order of place; none lies in another."""
    payloads: list[EncodedPayload] = []
    for start, end, kind, decoded in sorted(_find_runs(text), key=lambda run: (run[0], -run[1])):
        if payloads and start < payloads[-1].end:
            continue
        if (deepest := _find_instructions(decoded, (kind,))) is not None:
            payloads.append(EncodedPayload(start, end, *deepest))
    return payloads


def _find_instructions(text: str, kinds: tuple[str, ...]) -> tuple[tuple[str, ...], str, float] | None:
    """Find instructions in a decoded text, or in an encoding inside it; None if there are none."""
    if is_prose(text):
        weights = [sighting.weight for sighting in find_sightings(text)]
        if combine_weights(weights) >= _LEAST_INSTRUCTION_SCORE:
            return kinds, text, combine_weights([_ENCODED, *weights]) / 10
    if len(kinds) < LEVELS:
        for _, _, kind, decoded in _find_runs(text):
            deeper = _find_instructions(decoded, (*kinds, kind))
            if deeper is not None:
                return deeper
    return None


def is_prose(text: str) -> bool:
    """True if a text is natural language: printable, several words, mostly letters."""
    if not text or sum(char.isprintable() or char.isspace() for char in text) < 0.95 * len(text):
        return False
    words = _WORDS.findall(text)
    return len(words) >= 3 and sum(map(len, words)) >= 0.5 * len(text)


def _find_runs(text: str) -> Iterator[tuple[int, int, str, str]]:
    """(start, end, kind, decoded) of every run that may be an encoding and decodes."""
    for kind, (expression, hint, decode) in _KINDS.items():
        if hint and hint not in text:
            continue
        places = sorted(expression.finditer(text), key=lambda run: run.start() - run.end())[:MOST_RUNS]
        for run in places:
            decoded = decode(run.group()[:MOST_BYTES])
            if decoded:
                yield run.start(), run.end(), kind, decoded


def _decode_base64(run: str) -> str:
    compact = re.sub(r"\s+", "", run).rstrip("=").replace("-", "+").replace("_", "/")
    compact = compact[: len(compact) // 4 * 4] if len(compact) % 4 == 1 else compact
    try:
        raw = base64.b64decode(compact + "=" * (-len(compact) % 4))
    except (binascii.Error, ValueError):
        return ""
    return _decode_bytes(raw)


def _decode_hex(run: str) -> str:
    digits = re.sub(r"[ :]", "", run)
    return _decode_bytes(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def _decode_bytes(raw: bytes) -> str:
    """Decode bytes as UTF-8 (or UTF-16, which PowerShell writes); `""` if they are no text."""
    if raw[1::2].count(0) * 3 > len(raw):
        return raw.decode("utf-16-le", "ignore")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        # A run that was cut, or grown together with a word behind it, still begins well.
        return raw[: error.start].decode("utf-8") if error.start > 0.8 * len(raw) else ""


_KINDS: Mapping[str, tuple[re.Pattern[str], str, Callable[[str], str]]] = {
    "base64": (_BASE64, "", _decode_base64),
    "hex": (_HEX, "", _decode_hex),
    "percent": (_PERCENT, "%", unquote),
    "entities": (_ENTITIES, "&#", html.unescape),
}
"""Name -> (pattern, characters that the text must contain, decoder). ROT13 is a way to read a
whole text and not a run in it: see `agentsys_plugins.vectors.middleware.risk_patterns`."""


LAYER = "normalization"
REMOVED = "[removed]"
"""Replaces an encoded payload."""
_HIDDEN_WEIGHT = 0.5
"""Confidence that hidden instructions address a machine."""
_SHORTEST = 12
"""Characters; a shorter ASCII text without markup can hold none of these disguises."""


def normalize_text(text: str) -> tuple[str, list[RiskFinding]]:
    """Take out what hides or disguises text, and encoded instructions. Linear in the text.

    Returns:
        The text, which is the very same object if nothing was found that has to go, and what was found.
    """
    if len(text) < _SHORTEST and text.isascii() and "<" not in text:
        return text, []
    findings: list[RiskFinding] = []
    text, disguises = remove_disguises(text)
    for removed in disguises:
        weight = _weigh_hiding_place(removed.weight, removed.hidden_text)
        findings.append(RiskFinding(LAYER, removed.kind, "obfuscation", weight, removed.excerpt))
    page = remove_hidden_markup(text)
    findings += [
        RiskFinding(LAYER, "hidden_text", "obfuscation", _weigh_hiding_place(0.0, passage), passage)
        for passage in page.hidden
    ]
    findings += [
        RiskFinding(LAYER, "active_markup", "obfuscation", 0.0, name) for name in dict.fromkeys(page.active)
    ]
    text = page.text
    parts, at = [], 0
    for payload in find_payloads(text):
        kind = "encoded_" + "_in_".join(reversed(payload.kinds))
        findings.append(RiskFinding(LAYER, kind, "obfuscation", payload.weight, payload.text))
        parts += [text[at : payload.start], REMOVED]
        at = payload.end
    return "".join([*parts, text[at:]]) if parts else text, findings


def _weigh_hiding_place(weight: float, passage: str) -> float:
    """Return the weight of hidden text: more if it gives instructions."""
    weights = [sighting.weight for sighting in find_sightings(passage)] if passage else []
    if combine_weights(weights) < _LEAST_INSTRUCTION_SCORE:
        return weight
    return combine_weights([max(weight, _HIDDEN_WEIGHT), *weights]) / 10
