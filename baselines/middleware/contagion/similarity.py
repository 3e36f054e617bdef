"""How alike two texts are in their words (TF-IDF and cosine): finds paraphrases that share no long run."""

from __future__ import annotations

from collections.abc import Sequence

from baselines.middleware.extra import optional

_MOST_CHARACTERS = 20_000
"""Of each text; the rest is not compared."""


def similarity(output: str, inputs: Sequence[str]) -> tuple[float, int]:
    """The cosine of an output and the most similar input, and which one that is.

    Args:
        output: What crosses the boundary.
        inputs: Untrusted texts read before; may be empty.

    Returns:
        (0.0 to 1.0, index of the input); (0.0, -1) where there is nothing to compare.
    """
    texts = [output[:_MOST_CHARACTERS], *(text[:_MOST_CHARACTERS] for text in inputs)]
    if len(texts) < 2:
        return 0.0, -1
    vectorizer = optional("sklearn.feature_extraction.text").TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b"
    )
    try:
        vectors = vectorizer.fit_transform(texts)
    except ValueError:  # no words at all
        return 0.0, -1
    cosines = (vectors[1:] @ vectors[0].T).toarray().ravel()
    best = int(cosines.argmax())
    return float(cosines[best]), best
