"""Vectors as an embedder gave them, checked and made unit length: a bad one must not let a call through."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agentsys.models.providers.wire_text import malformed

Vectors = NDArray[np.float64]
"""Shape `(texts, dimensions)`; every row has length 1."""


def unit_rows(rows: Sequence[Sequence[float]], count: int) -> Vectors:
    """The rows as unit vectors.

    Args:
        rows: What the embedder returned.
        count: How many texts it was given.

    Returns:
        Shape `(count, dimensions)`.

    Raises:
        ModelError: MALFORMED_REPLY, if there are not as many, they differ in length, are not finite, or are
            all zeros. A cosine would be undefined, and every comparison with it false.
    """
    try:
        matrix = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError):
        raise malformed(
            "the embedder returned something that is not a list of equally long vectors"
        ) from None
    if matrix.ndim != 2 or matrix.shape[0] != count:
        raise malformed(f"the embedder returned an array of shape {matrix.shape} for {count} texts")
    norms = np.sqrt((matrix * matrix).sum(axis=1, keepdims=True))
    if not np.isfinite(norms).all() or not (norms > 0).all():
        raise malformed("the embedder returned a vector without a direction")
    unit: Vectors = matrix / norms
    return unit
