"""`Pattern`: how an injected instruction sounds, and the matcher that tries all patterns in one pass."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field

PATTERN_FILE = Path(__file__).parent / "patterns.yaml"
GAP = 80
"""Most characters, within a sentence, that a `~` in a pattern stands for."""
LOOK_BACK = 40
_MACROS = {
    "{ai}": r"(?:ais?|a\.i\.|assistants?|(?:ai|language|coding) (?:assistants?|agents?|models?|tools?|coding "
    r"(?:tools?|assistants?|agents?))|agents?|llms?|model|chat ?bots?|bots?|other ai)",
    "{to}": r"(?:(?<![\w.+-])[\w.+-]++@[\w-]+\.[\w.-]+|https?://\S+|internal_url)",
}
_WORD = re.compile(r"[a-z_]+")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


class RiskCategory(StrEnum):
    """What an attack goes for."""

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
    """It is tried wherever one of these words stands."""
    then: str
    """What follows the word: a regular expression, `~` for a gap."""
    before: str = ""
    """What stands before it: a regular expression that ends with `$`; empty: anything."""
    matches: str
    """A text it must be found in."""
    passes: str
    """A text it must not be found in."""

    @cached_property
    def follows(self) -> Sequence[Sequence[re.Pattern[str]]]:
        """The alternatives of `then`, each as the parts between its gaps."""
        return [[re.compile(_expand_macros(part)) for part in _split_outside_groups(one, "~")] for one in _split_outside_groups(self.then, "|")]

    @cached_property
    def precedes(self) -> re.Pattern[str] | None:
        """`before`, compiled."""
        return re.compile(_expand_macros(self.before)) if self.before else None

    def match_at(self, text: str, start: int, end: int) -> int | None:
        """Where the pattern ends if its word stands from `start` to `end`; None if it is not there."""
        if self.precedes and not self.precedes.search(text[max(0, start - LOOK_BACK) : start]):
            return None
        for parts in self.follows:
            reached = _match_parts(parts, text, end)
            if reached is not None:
                return reached
        return None


FLOOD_PATTERN = RiskPattern(
    id="flood",
    category=RiskCategory.OBFUSCATION,
    weight=0.7,
    words=(),
    then="",
    matches="",
    passes="",
)
"""What stands for a text with so many beginnings of patterns that it cannot be an everyday one."""
FEWEST_IN_FLOOD = 2000
CHARACTERS_PER_TRY = 6
"""An everyday text tries one pattern per 25 characters; mails about attacks, one per 7."""


@dataclass(frozen=True)
class PatternHit:
    """A pattern that was found."""

    pattern: RiskPattern
    start: int
    end: int


_LONG = 20_000
"""Characters from which contexts that were tried before are remembered: floods repeat themselves."""


class PatternMatcher:
    """Patterns, sorted by the words they begin with.

    Work is linear in the text: each word is looked up, and a pattern that it begins looks at a bounded
    piece of what follows and never goes back (a gap ends at the first place where the next part fits).
    """

    def __init__(self, patterns: Sequence[RiskPattern]) -> None:
        self.patterns = tuple(patterns)
        self._by_word: dict[str, list[RiskPattern]] = {}
        for pattern in patterns:
            for word in pattern.words:
                self._by_word.setdefault(word, []).append(pattern)
        self.words = frozenset(self._by_word)

    def find_hits(self, text: str) -> Iterator[PatternHit]:
        """The first place of each pattern in a text (small letters, single spaces), in order of place.

        A text that is made of such words and nothing else is a flood, which is a finding of its own: nothing
        behind the place where that becomes clear is looked at.
        """
        found: set[str] = set()
        tried: set[tuple[str, str]] = set()
        left = FEWEST_IN_FLOOD + len(text) // CHARACTERS_PER_TRY
        for word in _WORD.finditer(text):
            for pattern in self._by_word.get(word.group(), ()):
                if pattern.id in found:
                    continue
                start, end = word.span()
                if len(text) > _LONG:
                    context = (pattern.id, text[max(0, start - LOOK_BACK) : end + 2 * GAP])
                    if context in tried:
                        continue
                    tried.add(context)
                left -= 1
                if left < 0:
                    yield PatternHit(FLOOD_PATTERN, start, end)
                    return
                reached = pattern.match_at(text, start, end)
                if reached is not None:
                    found.add(pattern.id)
                    yield PatternHit(pattern, start, reached)


@lru_cache(maxsize=1)
def load_shipped_patterns() -> PatternMatcher:
    """The patterns of `patterns.yaml`.

    Raises:
        ValueError: If two have one id, or a gap stands inside a group.
    """
    # Every scalar as text: `no` and `on` are words here.
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    entries = yaml.load(PATTERN_FILE.read_text(encoding="utf-8"), Loader=loader)
    patterns = [RiskPattern.model_validate(entry) for entry in entries]
    ids = [pattern.id for pattern in patterns]
    if len(set(ids)) < len(ids):
        raise ValueError(
            f"{PATTERN_FILE}: an id stands there twice: {sorted(i for i in set(ids) if ids.count(i) > 1)}"
        )
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
    """The parts of an expression between separators that stand outside all groups and character classes."""
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
