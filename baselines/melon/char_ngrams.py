"""`CharNgrams`: an offline embedder, for tests, dry runs and users without a key. It knows no meaning."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_SIZES = (2, 3, 4)
"""Characters per n-gram."""
_DIMENSIONS = 4096
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""2**64 divided by the golden ratio: spreads neighbouring code points over all 64 bits."""


class CharNgrams:
    """Counts of hashed character n-grams, as vectors of 4096 numbers.

    Two calls are alike as far as their spelling is: the same call has 1.0, one more argument costs a
    little, another tool nearly everything. Words of one meaning are strangers to it. Deterministic on
    every machine; a million characters take a fraction of a second.
    """

    name = "char_ngrams"

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text; it is never all zeros for a text of two characters or more."""
        return [_count_ngrams(text).tolist() for text in texts]


def _count_ngrams(text: str) -> NDArray[np.float64]:
    codes = np.frombuffer(text.lower().encode("utf-32-le", "surrogatepass"), dtype="<u4").astype(np.uint64)
    counts = np.zeros(_DIMENSIONS)
    for size in _SIZES:
        hashes = _ngram_hashes(codes, size)
        # As indices: numpy before 2.2.6 does not count unsigned 64-bit numbers.
        slots = (hashes % np.uint64(_DIMENSIONS)).astype(np.intp)
        counts += np.bincount(slots, minlength=_DIMENSIONS)
    return counts


def _ngram_hashes(codes: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """A hash of each run of `size` code points; empty where the text is shorter."""
    count = max(0, len(codes) - size + 1)
    hashes = np.full(count, size, dtype=np.uint64)
    for place in range(size):
        hashes = (hashes ^ codes[place : place + count]) * _HASH_FACTOR
        hashes ^= hashes >> np.uint64(29)
    return hashes
