"""Patterns of attacks, and the ways to read a text in which they are looked for.

`patterns.yaml` lists the patterns; a text is read as it is, without disguises, and decoded.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field

from agentsys_plugins.vectors.middleware.disguised_characters import INVISIBLE, to_plain_letters
from agentsys_plugins.vectors.middleware.guard_settings import RiskFinding
from agentsys_plugins.vectors.middleware.url_path_checks import UrlReach, classify_reach

PATTERN_FILE = Path(__file__).parent / "patterns.yaml"
GAP = 80
"""Most characters, within a sentence, that a `~` in a pattern matches."""
LOOK_BACK = 40
_MACROS = {
    "{ai}": r"(?:ais?|a\.i\.|assistants?|(?:ai|language|coding) (?:assistants?|agents?|models?|tools?|coding "
    r"(?:tools?|assistants?|agents?))|agents?|llms?|model|chat ?bots?|bots?|other ai)",
    "{to}": r"(?:(?<![\w.+-])[\w.+-]++@[\w-]+\.[\w.-]+|https?://\S+|internal_url)",
}
_WORD = re.compile(r"[a-z_]+")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


class RiskCategory(StrEnum):
    """The aim of an attack."""

    OVERRIDE = "override"
    ROLE = "role"
    EXTRACTION = "extraction"
    EXFILTRATION = "exfiltration"
    EXECUTION = "execution"
    PROPAGATION = "propagation"
    OBFUSCATION = "obfuscation"


class RiskPattern(BaseModel):
    """One entry of `patterns.yaml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    category: RiskCategory
    weight: float = Field(gt=0, lt=1)
    """Confidence that a text with it is an attack."""
    words: tuple[str, ...]
    """The pattern is tried at each of these words."""
    then: str
    """Required text after the word: a regular expression, `~` for a gap."""
    before: str = ""
    """Required text before the word: a regular expression that ends with `$`; empty: anything."""
    matches: str
    """Example text that it must match."""
    passes: str
    """A text it must not be found in."""

    @cached_property
    def follows(self) -> Sequence[Sequence[re.Pattern[str]]]:
        """The alternatives of `then`, each as the parts between its gaps."""
        return [
            [re.compile(_expand_macros(part)) for part in _split_outside_groups(branch, "~")]
            for branch in _split_outside_groups(self.then, "|")
        ]

    @cached_property
    def precedes(self) -> re.Pattern[str] | None:
        """`before`, compiled."""
        return re.compile(_expand_macros(self.before)) if self.before else None

    def match_at(self, text: str, start: int, end: int) -> int | None:
        """Return the end of the pattern's match whose word spans `start` to `end`; None if there is none."""
        if self.precedes and not self.precedes.search(text[max(0, start - LOOK_BACK) : start]):
            return None
        for parts in self.follows:
            reached = _match_parts(parts, text, end)
            if reached is not None:
                return reached
        return None


FLOOD_PATTERN = RiskPattern(
    id="flood", category=RiskCategory.OBFUSCATION, weight=0.7, words=(), then="", matches="", passes=""
)
"""Reported for a text with more trigger words than everyday texts have."""
FEWEST_IN_FLOOD = 2000
CHARACTERS_PER_TRY = 6
"""An everyday text tries one pattern per 25 characters; mails about attacks, one per 7."""


PatternHit = tuple[RiskPattern, int, int]
"""A matched pattern, its start and its end."""
_LONG = 20_000
"""Characters from which tried contexts are remembered: floods repeat themselves."""


class PatternMatcher:
    """Patterns, sorted by the words they begin with. Work is linear in the text: what follows is bounded."""

    def __init__(self, patterns: Sequence[RiskPattern]) -> None:
        self.patterns = tuple(patterns)
        self._by_word: dict[str, list[RiskPattern]] = {}
        for pattern in patterns:
            for word in pattern.words:
                self._by_word.setdefault(word, []).append(pattern)
        self.words = frozenset(self._by_word)

    @cached_property
    def spellings(self) -> Mapping[str, frozenset[str]]:
        """Long words of the patterns, whole and with one letter left out -> the words they may stand for."""
        spellings: dict[str, set[str]] = {}
        spelled_out = (word for pattern in self.patterns for word in _spell_out(pattern.then))
        for word in {*self.words, *spelled_out}:
            for piece in _leave_one_out(word) if len(word) >= _SHORTEST_MENDED else ():
                spellings.setdefault(piece, set()).add(word)
        return {piece: frozenset(words) for piece, words in spellings.items()}

    def find_hits(self, text: str) -> Iterator[PatternHit]:
        """Yield each pattern's first match in a text (lower case, single spaces), in text order.

        A text of nothing but trigger words is a flood, a finding of its own: the rest is not read.
        """
        matched: set[str] = set()
        tried: set[tuple[str, str]] = set()
        left = FEWEST_IN_FLOOD + len(text) // CHARACTERS_PER_TRY
        for word in _WORD.finditer(text):
            for pattern in self._by_word.get(word.group(), ()):
                if pattern.id in matched:
                    continue
                start, end = word.span()
                if len(text) > _LONG:
                    context = (pattern.id, text[max(0, start - LOOK_BACK) : end + 2 * GAP])
                    if context in tried:
                        continue
                    tried.add(context)
                left -= 1
                if left < 0:
                    yield FLOOD_PATTERN, start, end
                    return
                reached = pattern.match_at(text, start, end)
                if reached is not None:
                    matched.add(pattern.id)
                    yield pattern, start, reached


@lru_cache(maxsize=1)
def load_shipped_patterns() -> PatternMatcher:
    """Load and check the patterns of `patterns.yaml`."""
    # Every scalar as text: `no` and `on` are words here.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    entries = yaml.load(PATTERN_FILE.read_text(encoding="utf-8"), Loader=loader)
    patterns = [RiskPattern.model_validate(entry) for entry in entries]
    ids = [pattern.id for pattern in patterns]
    twice = sorted(name for name in set(ids) if ids.count(name) > 1)
    if twice:
        raise ValueError(f"{PATTERN_FILE}: an id stands there twice: {twice}")
    for pattern in patterns:
        if any("~" in part.pattern for parts in pattern.follows for part in parts):
            raise ValueError(f"{PATTERN_FILE}: {pattern.id}: a gap (~) stands inside a group.")
    return PatternMatcher(patterns)


def _match_parts(parts: Sequence[re.Pattern[str]], text: str, at: int) -> int | None:
    first, *rest = parts
    fits = first.match(text, at)
    if fits is None:
        return None
    at = fits.end()
    for part in rest:
        window = text[at : at + 2 * GAP]
        stop = _SENTENCE_END.search(window)
        # The part may end with the sentence's own full stop; it has to begin before it and within the gap.
        begins = part.search(window)
        if begins is None or begins.start() > min(GAP, stop.start() if stop else GAP):
            return None
        at += begins.end()
    return at


def _expand_macros(expression: str) -> str:
    for name, meaning in _MACROS.items():
        expression = expression.replace(name, meaning)
    return expression


def _split_outside_groups(expression: str, separator: str) -> list[str]:
    """Split an expression at separators outside all groups and character classes."""
    parts, depth, bracket, escaped = [""], 0, False, False
    for char in expression:
        if char == separator and not (depth or bracket or escaped):
            parts.append("")
            continue
        if not escaped:
            bracket = char == "[" or (bracket and char != "]")
            depth += 0 if bracket else (char == "(") - (char == ")")
        escaped = char == "\\" and not escaped
        parts[-1] += char
    return parts


_SPACES = re.compile(r"(?:\s|\\[ntr]|\\(?=\s))+")
"""White space, written out or as escapes; a backslash before it is how YAML breaks a long line."""
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

    pattern: RiskPattern
    view: str
    """`plain`: as it is written, but for letters' case. Else the disguise that was undone."""
    weight: float
    excerpt: str

    def as_finding(self, layer: str, share: float = 1.0) -> RiskFinding:
        """Build a layer's finding, with a share of the pattern's weight."""
        kind, category = self.pattern.id, self.pattern.category
        return RiskFinding(layer, kind, category, self.weight * share, self.excerpt)


@lru_cache(maxsize=512)
def find_sightings(text: str) -> Sequence[PatternSighting]:
    """Find every shipped pattern that any reading of the text shows, each once. Cached: layers ask again."""
    matcher = load_shipped_patterns()
    sightings: dict[str, PatternSighting] = {}
    for view, read in _iterate_views(text, matcher):
        for pattern, start, end in matcher.find_hits(read):
            if pattern.id not in sightings:
                share = _QUOTED_COUNTS if _is_quoted(read, start, end) else 1.0
                weight = pattern.weight * share
                sightings[pattern.id] = PatternSighting(pattern, view, weight, read[start:end])
    return tuple(sightings.values())


def _iterate_views(text: str, matcher: PatternMatcher) -> Iterator[tuple[str, str]]:
    """(name, text) of each way to read it. A view that shows nothing new is not given."""
    plain = _squeeze_spaced(text.lower())
    yield "plain", plain
    read = plain
    if not text.isascii():
        # Without invisible characters and combining floods, look-alike letters in plain ones.
        forward = re.sub("\u202e([^\u202c\n]{0,2000})\u202c?", lambda run: run.group(1)[::-1], text)
        shown = unicodedata.normalize("NFKC", forward.translate(INVISIBLE))
        read = _squeeze_spaced(to_plain_letters(shown).lower())
        if read != plain:
            yield "characters", read
    if (leet := _decode_leet(read, matcher)) is not None:
        yield "leet", leet
    if _SPACED.search(read):
        yield "spaced", _SPACED.sub(lambda run: _JOINTS.sub("", run.group()), read)
    if not _rotate_words(matcher.words).isdisjoint(_LONG_WORD.findall(read)):
        yield "rot13", codecs.encode(read, "rot13")
    spelt = _MENDABLE.sub(lambda word: _mend_word(word.group(), matcher), read)
    if spelt != read:
        yield "misspelt", spelt


def _squeeze_spaced(lower: str) -> str:
    read = _SPACES.sub(" ", lower)
    return _URL.sub(_name_internal_addresses, read) if "://" in read else read


def _name_internal_addresses(url: re.Match[str]) -> str:
    """Addresses inside the network by a name that patterns can look for."""
    names = {UrlReach.PUBLIC: url.group(), UrlReach.METADATA: "metadata_url "}
    return names.get(classify_reach(url.group()), "internal_url ")


def _decode_leet(read: str, matcher: PatternMatcher) -> str | None:
    """Return the text with digits read as letters, if at least one of its words then begins a pattern."""
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
_SHORTEST_MENDED = 6
"""Letters; shorter words are one letter from too many others."""
_MENDABLE = re.compile(rf"[a-z]{{{_SHORTEST_MENDED - 1},24}}")
_LITERAL = re.compile(r"[a-z]+\??")


def _spell_out(expression: str) -> Iterator[str]:
    """Yield the words in a regular expression, with and without an optional last letter."""
    for literal in _LITERAL.findall(expression):
        yield literal.removesuffix("?")
        if literal.endswith("?"):
            yield literal[:-2]


def _leave_one_out(word: str) -> set[str]:
    return {word, *(word[:at] + word[at + 1 :] for at in range(len(word)))}


@lru_cache(maxsize=8192)
def _mend_word(word: str, matcher: PatternMatcher) -> str:
    """Return the pattern word that a word is, or is one slip from; else the word itself."""
    near = {other for piece in _leave_one_out(word) for other in matcher.spellings.get(piece, ())}
    return word if word in near else min((other for other in near if _is_one_slip(word, other)), default=word)


def _is_one_slip(word: str, meant: str) -> bool:
    """True if a letter was added, dropped, changed, or swapped with its neighbour.

    Not at the end: "ignored" is not "ignore" misspelt.
    """
    start = next((at for at, (a, b) in enumerate(zip(word, meant, strict=False)) if a != b), len(meant))
    rest, other = word[start:], meant[start:]
    swapped = rest[1:2] + rest[:1] + rest[2:]
    return len(other) > 1 and (other in (rest[1:], swapped) or other[1:] in (rest, rest[1:]))


def _is_quoted(read: str, start: int, end: int) -> bool:
    """True if a text about attacks quotes it: in quotation marks, with a word about attacks near them."""
    offset = max(0, start - _NEAR)
    around = read[offset : end + _NEAR]
    return _REPORTING.search(around) is not None and any(
        quote.start() + offset < start + 1 and start < quote.end() + offset
        for quote in _QUOTED.finditer(around)
    )


REMOVED_TEXT = "[removed]"
"""Stands where sentences were cut."""
_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?](?!\s)[^.!?\n]*)*(?:[.!?]+|\n+|\Z)[ \t]*")


def remove_instructions(text: str, *, between: bool = False) -> str:
    """Remove the sentences, or lines, that show a pattern by themselves. Layout stays.

    With `between` all from the first to the last of them goes: an order often stands between two sentences
    that prepare it.
    """
    sentences = [sentence for sentence in _SENTENCE.findall(text) if sentence]
    gone = {index for index, sentence in enumerate(sentences) if find_sightings(sentence)}
    if between and gone:
        gone = set(range(min(gone), max(gone) + 1))
    parts: list[str] = []
    for index, sentence in enumerate(sentences):
        if index not in gone:
            parts.append(sentence)
            continue
        ending = sentence[len(sentence.rstrip()) :]
        if parts and parts[-1].rstrip() == REMOVED_TEXT:
            parts[-1] = REMOVED_TEXT + ending
        else:
            indent = sentence[: len(sentence) - len(sentence.lstrip())]
            parts.append(indent + REMOVED_TEXT + ending)
    return "".join(parts)
