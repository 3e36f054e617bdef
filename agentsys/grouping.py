"""`grouped`: things by what they have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


def group_by(things: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """Key -> the things that have it, keys and things in the order met (not sorted, not only neighbours)."""
    groups: defaultdict[_K, list[_T]] = defaultdict(list)
    for thing in things:
        groups[key(thing)].append(thing)
    return dict(groups)
