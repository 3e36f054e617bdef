"""`normalized`: the first layer as a function from untrusted text to clean text and findings."""

from __future__ import annotations

from dataclasses import dataclass

from baselines.middleware.normalization.characters import remove_disguises
from baselines.middleware.normalization.encodings import find_payloads
from baselines.middleware.normalization.markup import remove_hidden_markup
from baselines.middleware.risk.finding import RiskFinding
from baselines.middleware.risk.reading import find_sightings
from baselines.middleware.risk.score import combine_weights

LAYER = "normalization"
REMOVED = "[removed]"
"""Stands where an encoded payload stood."""
_HIDDEN_WEIGHT = 0.5
"""Confidence that instructions nobody could see were meant for a machine."""
_INSTRUCTION_SCORE = 1.5
_SHORTEST = 12
"""Characters; a shorter ASCII text without markup can carry nothing that is looked for here."""


@dataclass(frozen=True)
class NormalizedText:
    """A text after the first layer."""

    text: str
    """The very same object if nothing was found that has to go."""
    findings: tuple[RiskFinding, ...]


def normalize_text(text: str) -> NormalizedText:
    """Take out what hides or disguises text, and encoded instructions. Linear in the text."""
    if len(text) < _SHORTEST and text.isascii() and "<" not in text:
        return NormalizedText(text, ())
    findings: list[RiskFinding] = []
    characters = remove_disguises(text)
    for removed in characters.removed:
        weight = _weigh_hiding_place(removed.weight, removed.said)
        findings.append(RiskFinding(LAYER, removed.kind, "obfuscation", weight, removed.excerpt))
    page = remove_hidden_markup(characters.text)
    findings += [
        RiskFinding(LAYER, "hidden_text", "obfuscation", _weigh_hiding_place(0.0, said), said)
        for said in page.hidden
    ]
    findings += [
        RiskFinding(LAYER, "active_markup", "obfuscation", 0.0, name) for name in dict.fromkeys(page.active)
    ]
    return _remove_payloads(page.text, findings)


def _weigh_hiding_place(weight: float, said: str) -> float:
    """The weight of a hiding place with text in it: more if that text gives instructions."""
    weights = [sighting.weight for sighting in find_sightings(said)] if said else []
    if combine_weights(weights) < _INSTRUCTION_SCORE:
        return weight
    return combine_weights([max(weight, _HIDDEN_WEIGHT), *weights]) / 10


def _remove_payloads(text: str, findings: list[RiskFinding]) -> NormalizedText:
    parts, at = [], 0
    for payload in find_payloads(text):
        kind = "encoded_" + "_in_".join(reversed(payload.kinds))
        findings.append(RiskFinding(LAYER, kind, "obfuscation", payload.weight, payload.text))
        parts += [text[at : payload.start], REMOVED]
        at = payload.end
    return NormalizedText("".join([*parts, text[at:]]) if parts else text, tuple(findings))
