"""How a text is read before patterns are tried on it: disguises undone, small letters, single spaces."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from baselines.middleware.normalization.characters import INVISIBLE, to_plain_letters
from baselines.middleware.policy.urls import UrlReach, classify_reach
from baselines.middleware.risk.patterns import PatternHit, PatternMatcher, load_shipped_patterns

_SPACES = re.compile(r"(?:\s|\\n|\\t|\\r)+")
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,12}://[^\s\"'<>`|]+")
_LEET_WORD = re.compile(r"[a-z013457$@]+")
_LEET_SIGN = re.compile(r"[013457$@]")
_LEET = str.maketrans("013457$@", "oieastsa")
_SPACED = re.compile(r"\b(?:[a-z][-._*·|/ ]){3,40}[a-z]\b")
_JOINTS = re.compile(r"[-._*·|/ ]")
_QUOTED = re.compile(
    r"\"[^\"]{3,400}\"|“[^”]{3,400}”|`[^`]{3,400}`|«[^»]{3,400}»|(?<!\w)''?[^']{3,400}''?(?!\w)"
)
_REPORTING = re.compile(
    r"\b(?:phishing|prompt injection|attacks?|attackers?|researchers?|research|training|awareness|defend|"
    r"jailbreak|hoax|scam|poisoning|malware|a virus|worms?|forgery|quiz|report them|report such|never|avoid|"
    r"(?:security )?(?:paper|article|study|tutorial|course)|tricks?|chat bot|fooled)\b"
)
_NEAR = 300
_QUOTED_COUNTS = 0.2
"""Share of a pattern's weight that is left where a text about attacks quotes it."""


@dataclass(frozen=True)
class PatternSighting:
    """A pattern in one of the ways to read a text."""

    hit: PatternHit
    view: str
    """`plain`: as it is written, but for letters' case. Else the disguise that was undone."""
    weight: float
    excerpt: str


@lru_cache(maxsize=512)
def find_sightings(text: str) -> Sequence[PatternSighting]:
    """Every shipped pattern that some way of reading the text shows, each once. Layers ask again: kept."""
    return find_sightings_with(load_shipped_patterns(), text)


def find_sightings_with(tried: PatternMatcher, text: str) -> Sequence[PatternSighting]:
    """Every one of a matcher's patterns that some way of reading the text shows, each once."""
    found: dict[str, PatternSighting] = {}
    for view, read in _iterate_views(text, tried):
        for hit in tried.find_hits(read):
            if hit.pattern.id not in found:
                share = _QUOTED_COUNTS if _is_quoted(read, hit) else 1.0
                excerpt = read[hit.start : hit.end]
                found[hit.pattern.id] = PatternSighting(hit, view, hit.pattern.weight * share, excerpt)
    return tuple(found.values())


def _iterate_views(text: str, matcher: PatternMatcher) -> Iterator[tuple[str, str]]:
    """(name, text) of each way to read it. A view that shows nothing new is not given."""
    plain = _squeeze_spaced(text.lower())
    yield "plain", plain
    read = plain
    if not text.isascii():
        read = _squeeze_spaced(strip_disguises(text).lower())
        if read != plain:
            yield "characters", read
    leet = _decode_leet(read, matcher)
    if leet is not None:
        yield "leet", leet
    if _SPACED.search(read):
        yield "spaced", _SPACED.sub(lambda run: _JOINTS.sub("", run.group()), read)
    turned = _decode_rot13(read, matcher)
    if turned is not None:
        yield "rot13", turned


def strip_disguises(text: str) -> str:
    """The text without invisible characters and combining floods, look-alike letters in plain ones."""
    return to_plain_letters(unicodedata.normalize("NFKC", _turn_overrides(text).translate(INVISIBLE)))


def _turn_overrides(text: str) -> str:
    """Text inside right-to-left overrides, turned as it is shown."""
    if "\u202e" not in text:
        return text
    return re.sub("\u202e([^\u202c\n]{0,2000})\u202c?", lambda run: run.group(1)[::-1], text)


def _squeeze_spaced(lower: str) -> str:
    read = _SPACES.sub(" ", lower)
    return _URL.sub(_name_internal_addresses, read) if "://" in read else read


def _name_internal_addresses(url: re.Match[str]) -> str:
    """Addresses inside the network by a name that patterns can look for."""
    reach = classify_reach(url.group())
    if reach is UrlReach.PUBLIC:
        return url.group()
    return "metadata_url " if reach is UrlReach.METADATA else "internal_url "


def _decode_leet(read: str, matcher: PatternMatcher) -> str | None:
    """The text with digits read as letters, where at least one of its words begins a pattern then."""
    if not _LEET_SIGN.search(read):
        return None
    words = {word for word in _LEET_WORD.findall(read) if len(word) > 2 and _LEET_SIGN.search(word)}
    if not any(word.translate(_LEET) in matcher.words for word in words):
        return None
    return _LEET_WORD.sub(
        lambda word: word.group() if word.group().isdigit() else word.group().translate(_LEET), read
    )


@lru_cache(maxsize=8)
def _rotate_words(words: frozenset[str]) -> frozenset[str]:
    return frozenset(codecs.encode(word, "rot13") for word in words if len(word) > 3)


_LONG_WORD = re.compile(r"[a-z]{4,}")


def _decode_rot13(read: str, matcher: PatternMatcher) -> str | None:
    """The text turned by 13 letters, where words in it begin patterns then."""
    turned = _rotate_words(matcher.words)
    if turned.isdisjoint(_LONG_WORD.findall(read)):
        return None
    return codecs.encode(read, "rot13")


def _is_quoted(read: str, hit: PatternHit) -> bool:
    """Whether a text about attacks quotes it: in quotation marks, with a word of that kind near them."""
    around = read[max(0, hit.start - _NEAR) : hit.end + _NEAR]
    if not _REPORTING.search(around):
        return False
    offset = max(0, hit.start - _NEAR)
    return any(
        quote.start() + offset < hit.start + 1 and hit.start < quote.end() + offset
        for quote in _QUOTED.finditer(around)
    )


REMOVED_TEXT = "[removed]"
"""Stands where sentences were cut."""
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?!\s)[^.!?\n]*)*(?:[.!?]+|\n+|\Z)[ \t]*")


def remove_instructions(text: str, *, between: bool = False) -> str:
    """The text without the sentences, or lines, that show a pattern by themselves. Layout stays.

    Args:
        text: Untrusted text.
        between: Whether what stands between the first and the last of them goes as well: the order itself is
            often put between two sentences that prepare it.
    """
    sentences = [sentence for sentence in _SENTENCE.findall(text) if sentence]
    shown = [bool(find_sightings(sentence)) for sentence in sentences]
    if between and any(shown):
        first, last = shown.index(True), len(shown) - shown[::-1].index(True)
        shown = [place in range(first, last) for place in range(len(shown))]
    parts: list[str] = []
    for sentence, goes in zip(sentences, shown, strict=True):
        if not goes:
            parts.append(sentence)
            continue
        ending = sentence[len(sentence.rstrip()) :]
        if parts and parts[-1].rstrip() == REMOVED_TEXT:
            parts[-1] = REMOVED_TEXT + ending
        else:
            indent = sentence[: len(sentence) - len(sentence.lstrip())]
            parts.append(indent + REMOVED_TEXT + ending)
    return "".join(parts)
