"""`Bank`: the calls that the masked passes of one task have proposed, for the rest of that task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agentsys.models.providers.wire_parts import malformed_reply
from baselines.melon.embedder import Embedder

CallVectors = NDArray[np.float64]
"""Shape `(texts, dimensions)`; every row has length 1."""


@dataclass(frozen=True)
class CallMatch:
    """The proposed call that is most like a banked one."""

    proposed: str
    masked: str
    similarity: float
    """Cosine of their vectors."""


@dataclass
class MaskedCallBank:
    """Texts of masked calls in the order they first came, and every vector this task has asked for."""

    masked: list[str] = field(default_factory=list)
    vectors: dict[str, CallVectors] = field(default_factory=dict)
    """Text -> its unit vector, of masked and proposed calls alike: no text is embedded twice."""

    def add_calls(self, texts: Iterable[str]) -> None:
        """Bank the calls of a masked pass; they stay for good."""
        self.masked += [text for text in dict.fromkeys(texts) if text not in self.masked]

    def find_nearest(self, proposed: Sequence[str], embedder: Embedder) -> CallMatch | None:
        """The likest pair of a proposed and a banked call; None where one side is empty.

        Raises:
            ModelError: If the embedder failed or gave no usable vectors.
        """
        if not proposed or not self.masked:
            return None
        self._embed_missing([*self.masked, *proposed], embedder)
        similarity = self._stack_vectors(proposed) @ self._stack_vectors(self.masked).T
        row, column = np.unravel_index(int(similarity.argmax()), similarity.shape)
        return CallMatch(proposed[int(row)], self.masked[int(column)], float(similarity[row, column]))

    def _embed_missing(self, texts: Sequence[str], embedder: Embedder) -> None:
        new = [text for text in dict.fromkeys(texts) if text not in self.vectors]
        if new:
            self.vectors.update(zip(new, normalize_rows(embedder.embed(new), len(new)), strict=True))

    def _stack_vectors(self, texts: Sequence[str]) -> CallVectors:
        rows = [self.vectors[text] for text in texts]
        if len({len(vector) for vector in self.vectors.values()}) > 1:
            raise malformed_reply("the embedder changed the length of its vectors between two requests")
        return np.stack(rows)


def normalize_rows(rows: Sequence[Sequence[float]], count: int) -> CallVectors:
    """The rows as unit vectors, checked: a bad one must not let a call through.

    Returns:
        Shape `(count, dimensions)`.

    Raises:
        ModelError: MALFORMED_REPLY, if there are not as many, they differ in length, are not finite, or are
            all zeros. A cosine would be undefined, and every comparison with it false.
    """
    try:
        matrix = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise malformed_reply(
            "the embedder returned something that is not a list of equally long vectors"
        ) from None
    if matrix.ndim != 2 or matrix.shape[0] != count:
        raise malformed_reply(f"the embedder returned an array of shape {matrix.shape} for {count} texts")
    norms = np.sqrt((matrix * matrix).sum(axis=1, keepdims=True))
    if not np.isfinite(norms).all() or not (norms > 0).all():
        raise malformed_reply("the embedder returned a vector without a direction")
    unit: CallVectors = matrix / norms
    return unit
