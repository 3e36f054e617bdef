"""Group things by a key, and write counts and durations as people read them."""

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


def format_count(count: int, thing: str, several: str | None = None) -> str:
    """A number with its thing, e.g. `1 cell` or `1,024 cells`; `several` where that takes more than an s."""
    return f"{count:,} {thing if count == 1 else several or f'{thing}s'}"


_NAMED = 4
"""Names that a sentence lists; of others it gives the number."""


def join_names(names: Iterable[str]) -> str:
    """Names, each once, for a sentence; of many the first and how many more."""
    listed = list(dict.fromkeys(names))
    more = f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else ""
    return f"{', '.join(listed[:_NAMED])}{more}"


def abbreviate_count(count: float) -> str:
    """A count with at most one decimal, e.g. `5.5M`."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return f"{count:.0f}"


def format_duration(seconds: float | None) -> str:
    """Seconds as `h:mm:ss`; `-` where unknown."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
