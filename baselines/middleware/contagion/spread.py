"""`SpreadWatch`: sees what a conversation reads, and judges what crosses to the next agent or step."""

from __future__ import annotations

from dataclasses import dataclass, field

from baselines.middleware.contagion.chain import Chain
from baselines.middleware.contagion.copies import Read, similarity
from baselines.middleware.risk.finding import RiskFinding
from baselines.middleware.risk.patterns import Category
from baselines.middleware.risk.reading import sightings
from baselines.middleware.risk.score import combined

LAYER = "contagion"
ALIKE = 0.6
"""Cosine from which an output counts as a paraphrase of an input."""
_COPIED = 0.1
_COPIED_INSTRUCTION = 0.6
_PARAPHRASED = 0.1
_PARAPHRASED_INSTRUCTION = 0.4
_STAGES = 3
_MANY_STAGES = 0.1
_MANY_STAGES_INSTRUCTION = 0.35
_GIVES_INSTRUCTIONS = 3.0
"""Score from which a text read before counts as one that gives instructions."""
_MOST_COMPARED = 16
"""Suspicious inputs that an output is compared with by TF-IDF, the newest ones."""
_SHORTEST = 24
"""Characters; shorter outputs carry no instruction."""


@dataclass
class SpreadWatch:
    """State of one conversation."""

    read: Read = field(default_factory=Read)
    chain: Chain = field(default_factory=Chain)
    suspicious: list[str] = field(default_factory=list)
    """Untrusted texts that give instructions."""
    _noted: list[tuple[str, str]] = field(default_factory=list)
    """Texts and stages that came in since something went out: conversations read more than they write."""

    def came_in(self, text: str, stage: str) -> None:
        """Note an untrusted text before an agent reads it."""
        if len(text) >= _SHORTEST:
            self._noted.append((text, stage))

    def _look_through(self) -> None:
        for text, stage in self._noted:
            self.read.add(text)
            self.chain.pass_through(text, stage)
            if combined(seen.weight for seen in sightings(text)) >= _GIVES_INSTRUCTIONS:
                self.suspicious.append(text)
        self._noted.clear()

    def goes_out(self, text: str, stage: str) -> list[RiskFinding]:
        """What speaks against passing on what an agent wrote; `stage` is e.g. `argument of send_email`."""
        if len(text) < _SHORTEST:
            return []
        self._look_through()
        instructs = bool(sightings(text))
        found = [*self._propagation(text), *self._copies(text)]
        found += self._paraphrases(text)
        way = self.chain.pass_through(text, stage)
        if len(way) >= _STAGES:
            weight = _MANY_STAGES_INSTRUCTION if instructs else _MANY_STAGES
            found.append(RiskFinding(LAYER, "many_stages", Category.PROPAGATION, weight, " -> ".join(way)))
        return found

    def _propagation(self, text: str) -> list[RiskFinding]:
        return [
            RiskFinding(LAYER, seen.hit.pattern.id, Category.PROPAGATION, seen.weight, seen.excerpt)
            for seen in sightings(text)
            if seen.hit.pattern.category is Category.PROPAGATION
        ]

    def _copies(self, text: str) -> list[RiskFinding]:
        copied = self.read.copied_into(text)
        if not copied.runs:
            return []
        instructing = [run for run in copied.runs if sightings(run)]
        weight = _COPIED_INSTRUCTION if instructing else _COPIED
        kind = "copied_instruction" if instructing else "copied"
        excerpt = f"{copied.share:.0%} copied: {(instructing or copied.runs)[0]}"
        return [RiskFinding(LAYER, kind, Category.PROPAGATION, weight, excerpt)]

    def _paraphrases(self, text: str) -> list[RiskFinding]:
        cosine, _ = similarity(text, self.suspicious[-_MOST_COMPARED:])
        if cosine < ALIKE:
            return []
        instructs = bool(sightings(text))
        weight = _PARAPHRASED_INSTRUCTION if instructs else _PARAPHRASED
        kind = "paraphrased_instruction" if instructs else "paraphrased"
        return [
            RiskFinding(
                LAYER, kind, Category.PROPAGATION, weight, f"cosine {cosine:.2f} with a text read before"
            )
        ]
