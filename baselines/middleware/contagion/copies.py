"""What an output took over from what was read: word by word, or in other words (TF-IDF and cosine)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from baselines.middleware.extra import load_optional

COPIED_WORDS = 8
"""Fewest words in a row that count as copied."""
_TOKEN = re.compile(r"\w+", re.UNICODE)


@dataclass(frozen=True)
class CopiedRuns:
    """What an output took over."""

    share: float
    """Share of the output's words that stand in copied runs, 0 to 1."""
    runs: tuple[str, ...]
    """The copied runs as they stand in the output, in order."""


class ReadTexts:
    """The word runs of everything untrusted that was read so far."""

    def __init__(self) -> None:
        self._grams: set[tuple[str, ...]] = set()

    def add_text(self, text: str) -> None:
        """Remember a text."""
        self._grams.update(_word_grams([token.group().casefold() for token in _TOKEN.finditer(text)]))

    def find_copied(self, output: str) -> CopiedRuns:
        """The runs of at least `RUN` words that an output shares with what was read."""
        tokens = list(_TOKEN.finditer(output))
        words = [token.group().casefold() for token in tokens]
        inside = [False] * len(words)
        for start, gram in enumerate(_word_grams(words)):
            if gram in self._grams:
                inside[start : start + COPIED_WORDS] = [True] * COPIED_WORDS
        spans = list(_merge_spans(inside))
        runs = tuple(output[tokens[a].start() : tokens[b - 1].end()] for a, b in spans)
        return CopiedRuns(sum(inside) / len(inside) if inside else 0.0, runs)


def _word_grams(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(words[at : at + COPIED_WORDS]) for at in range(len(words) - COPIED_WORDS + 1))


def _merge_spans(inside: Sequence[bool]) -> Iterator[tuple[int, int]]:
    start = None
    for place, one in enumerate([*inside, False]):
        if one and start is None:
            start = place
        elif not one and start is not None:
            yield start, place
            start = None


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
