"""The third layer: what an agent passes on is compared with the untrusted texts that it has read.

Copied and paraphrased sentences count, and more where they give instructions; so do texts of many stages.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from baselines.middleware.guard_settings import RiskFinding, combine_weights, load_optional
from baselines.middleware.risk_patterns import RiskCategory, find_sightings

COPIED_WORDS = 8
"""Fewest words in a row that count as copied."""
_TOKEN = re.compile(r"\w+", re.UNICODE)


_MOST_CHARACTERS = 20_000
"""Of each text; the rest is not compared."""


def text_similarity(output: str, inputs: Sequence[str]) -> float:
    """The cosine, 0.0 to 1.0, of an output and the most similar input; 0.0 where nothing can be compared."""
    texts = [output[:_MOST_CHARACTERS], *(text[:_MOST_CHARACTERS] for text in inputs)]
    if len(texts) < 2:
        return 0.0
    vectorizer = load_optional("sklearn.feature_extraction.text").TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b"
    )
    try:
        vectors = vectorizer.fit_transform(texts)
    except ValueError:  # no words at all
        return 0.0
    return float((vectors[1:] @ vectors[0].T).toarray().max())


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
FEWEST_WORDS = 5
"""Words of a sentence that is followed; shorter ones recur by chance."""


def split_sentences(text: str) -> list[str]:
    """A text's sentences of some length, as words in small letters with single spaces."""
    sentences = [" ".join(_TOKEN.findall(sentence.casefold())) for sentence in _SENTENCE.findall(text)]
    return [sentence for sentence in sentences if sentence.count(" ") >= FEWEST_WORDS - 1]


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


@dataclass
class ContagionMonitor:
    """State of one conversation."""

    suspicious: list[str] = field(default_factory=list)
    """Untrusted texts that give instructions."""
    _grams: set[tuple[str, ...]] = field(default_factory=set)
    """The runs of words of everything untrusted that was read so far."""
    _stages: dict[str, list[str]] = field(default_factory=dict)
    """Hash of a sentence -> the agents and stages that it was at, in order, each once."""
    _pending: list[tuple[str, str]] = field(default_factory=list)
    """Texts and stages that came in since something went out: conversations read more than they write."""

    def record_input(self, text: str, stage: str) -> None:
        """Note an untrusted text before an agent reads it."""
        if len(text) >= _SHORTEST:
            self._pending.append((text, stage))

    def _scan_pending(self) -> None:
        for text, stage in self._pending:
            words = [word.casefold() for word in _TOKEN.findall(text)]
            self._grams.update(zip(*(words[offset:] for offset in range(COPIED_WORDS)), strict=False))
            self._record_stage(text, stage)
            if combine_weights(seen.weight for seen in find_sightings(text)) >= _GIVES_INSTRUCTIONS:
                self.suspicious.append(text)
        self._pending.clear()

    def check_output(self, text: str, stage: str) -> list[RiskFinding]:
        """What speaks against passing on what an agent wrote; `stage` is e.g. `argument of send_email`."""
        if len(text) < _SHORTEST:
            return []
        self._scan_pending()
        instructs = bool(find_sightings(text))
        findings = [seen.as_finding(LAYER) for seen in find_sightings(text)]
        findings = [one for one in findings if one.category is RiskCategory.PROPAGATION]
        findings += [*self._find_copies(text), *self._find_paraphrases(text, instructs)]
        way = self._record_stage(text, stage)
        if len(way) >= _STAGES:
            weight = _MANY_STAGES_INSTRUCTION if instructs else _MANY_STAGES
            findings.append(_propagation_finding("many_stages", weight, " -> ".join(way)))
        return findings

    def _record_stage(self, text: str, stage: str) -> list[str]:
        """Note that a text is at a stage; the longest way that one of its sentences has come so far."""
        longest: list[str] = []
        for sentence in split_sentences(text):
            way = self._stages.setdefault(_hash(sentence), [])
            if stage not in way:
                way.append(stage)
            longest = max(longest, way, key=len)
        return longest

    def _find_copied_runs(self, output: str) -> tuple[float, list[str]]:
        """The share of an output's words that were read in such a run, and the runs as they stand in it."""
        tokens = list(_TOKEN.finditer(output))
        words = [token.group().casefold() for token in tokens]
        inside = [False] * len(words)
        for start in range(len(words) - COPIED_WORDS + 1):
            if tuple(words[start : start + COPIED_WORDS]) in self._grams:
                inside[start : start + COPIED_WORDS] = [True] * COPIED_WORDS
        runs = []
        for copied, group in groupby(zip(inside, tokens, strict=True), key=itemgetter(0)):
            if copied:
                run = [token for _, token in group]
                runs.append(output[run[0].start() : run[-1].end()])
        return (sum(inside) / len(inside) if inside else 0.0), runs

    def _find_copies(self, text: str) -> list[RiskFinding]:
        share, runs = self._find_copied_runs(text)
        if not runs:
            return []
        instructing = [run for run in runs if find_sightings(run)]
        weight = _COPIED_INSTRUCTION if instructing else _COPIED
        kind = "copied_instruction" if instructing else "copied"
        excerpt = f"{share:.0%} copied: {(instructing or runs)[0]}"
        return [_propagation_finding(kind, weight, excerpt)]

    def _find_paraphrases(self, text: str, instructs: bool) -> list[RiskFinding]:
        cosine = text_similarity(text, self.suspicious[-_MOST_COMPARED:])
        if cosine < ALIKE:
            return []
        weight = _PARAPHRASED_INSTRUCTION if instructs else _PARAPHRASED
        kind = "paraphrased_instruction" if instructs else "paraphrased"
        return [_propagation_finding(kind, weight, f"cosine {cosine:.2f} with a text read before")]


def _propagation_finding(kind: str, weight: float, excerpt: str) -> RiskFinding:
    return RiskFinding(LAYER, kind, RiskCategory.PROPAGATION, weight, excerpt)
