"""`VectorWords`: words of a suite's data that stand in one injection vector's default and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from agentsys.contracts import Suite

_WORD = re.compile(r"[^\W_]+(?:[.@_'-]+[^\W_]+)*")
"""Letters and digits, joined by what joins them in numbers, addresses and names: `98.70`, `External_0`."""


class VectorWords:
    """Looks at a suite's environment once per vector."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self._all = self._collect_words({})
        self._only: dict[str, frozenset[str]] = {}

    def find_words_only_in(self, vector: str) -> frozenset[str]:
        """Words that are gone from the data when the vector is left blank."""
        if vector not in self._only:
            self._only[vector] = self._all - self._collect_words({vector: ""})
        return self._only[vector]

    def _collect_words(self, injections: dict[str, str]) -> frozenset[str]:
        environment = self._suite.load_and_inject_default_environment(injections)
        return split_words(iterate_texts(environment.model_dump()))


def split_words(texts: Iterable[str]) -> frozenset[str]:
    """Words of some texts, in small letters."""
    return frozenset(word for text in texts for word in _WORD.findall(text.lower()))


def iterate_texts(value: Any) -> Iterator[str]:
    """Everything in nested data that is not a container, keys included, as text."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield str(key)
            yield from iterate_texts(item)
    elif isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from iterate_texts(item)
    else:
        yield str(value)
