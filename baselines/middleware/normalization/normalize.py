"""`normalized`: the first layer as a function from untrusted text to clean text and findings."""

from __future__ import annotations

from dataclasses import dataclass

from baselines.middleware.normalization.characters import without_disguises
from baselines.middleware.normalization.encodings import payloads
from baselines.middleware.normalization.markup import without_hidden
from baselines.middleware.risk.finding import RiskFinding
from baselines.middleware.risk.reading import sightings
from baselines.middleware.risk.score import combined

LAYER = "normalization"
REMOVED = "[removed]"
"""Stands where an encoded payload stood."""
_HIDDEN = 0.5
"""Confidence that instructions nobody could see were meant for a machine."""
_SAYS_SOMETHING = 1.5
_SHORTEST = 12
"""Characters; a shorter ASCII text without markup can carry nothing that is looked for here."""


@dataclass(frozen=True)
class Normalized:
    """A text after the first layer."""

    text: str
    """The very same object if nothing was found that has to go."""
    findings: tuple[RiskFinding, ...]


def normalized(text: str) -> Normalized:
    """Take out what hides or disguises text, and encoded instructions. Linear in the text."""
    if len(text) < _SHORTEST and text.isascii() and "<" not in text:
        return Normalized(text, ())
    findings: list[RiskFinding] = []
    characters = without_disguises(text)
    for removed in characters.removed:
        weight = _with_what_it_says(removed.weight, removed.said)
        findings.append(RiskFinding(LAYER, removed.kind, "obfuscation", weight, removed.excerpt))
    page = without_hidden(characters.text)
    findings += [
        RiskFinding(LAYER, "hidden_text", "obfuscation", _with_what_it_says(0.0, said), said)
        for said in page.hidden
    ]
    findings += [
        RiskFinding(LAYER, "active_markup", "obfuscation", 0.0, name) for name in dict.fromkeys(page.active)
    ]
    return _without_payloads(page.text, findings)


def _with_what_it_says(weight: float, said: str) -> float:
    """The weight of a hiding place with text in it: more if that text gives instructions."""
    weights = [sighting.weight for sighting in sightings(said)] if said else []
    if combined(weights) < _SAYS_SOMETHING:
        return weight
    return combined([max(weight, _HIDDEN), *weights]) / 10


def _without_payloads(text: str, findings: list[RiskFinding]) -> Normalized:
    parts, at = [], 0
    for payload in payloads(text):
        kind = "encoded_" + "_in_".join(reversed(payload.kinds))
        findings.append(RiskFinding(LAYER, kind, "obfuscation", payload.weight, payload.text))
        parts += [text[at : payload.start], REMOVED]
        at = payload.end
    return Normalized("".join([*parts, text[at:]]) if parts else text, tuple(findings))
