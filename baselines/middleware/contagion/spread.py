"""`SpreadWatch`: sees what a conversation reads, and judges what crosses to the next agent or step."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

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
_SENTENCE = re.compile(r"[^.!?\n]+")
_WORD = re.compile(r"\w+")
FEWEST_WORDS = 5
"""Words of a sentence that is followed; shorter ones recur by chance."""


@dataclass
class Chain:
    """The way of every sentence through agents and stages.

    `links` is a hash chain: each entry hashes the one before, the stage and the content, so that a record
    of it shows any later change.
    """

    seen: dict[str, list[str]] = field(default_factory=dict)
    """Hash of a sentence -> stages, in order, each once."""
    links: list[str] = field(default_factory=list)

    def pass_through(self, text: str, stage: str) -> tuple[str, ...]:
        """Note that a text is at a stage.

        Returns:
            The longest way that one of its sentences has come so far, this stage included.
        """
        longest: list[str] = []
        for sentence in sentences(text):
            way = self.seen.setdefault(_hash(sentence), [])
            if stage not in way:
                way.append(stage)
            longest = max(longest, way, key=len)
        before = self.links[-1] if self.links else ""
        self.links.append(_hash(f"{before}\n{stage}\n{text}"))
        return tuple(longest)


def sentences(text: str) -> list[str]:
    """A text's sentences of some length, as words in small letters with single spaces."""
    found = [" ".join(_WORD.findall(one.casefold())) for one in _SENTENCE.findall(text)]
    return [one for one in found if one.count(" ") >= FEWEST_WORDS - 1]


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


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
        cosine = similarity(text, self.suspicious[-_MOST_COMPARED:])
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
