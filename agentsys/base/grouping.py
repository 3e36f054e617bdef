"""Group things by a key, and write counts and durations as people read them."""

from __future__ import annotations

from collections import defaultdict, namedtuple
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


def group_by(things: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """Key -> the things that have it, keys and things in the order met (not sorted, not only neighbours)."""
    groups: defaultdict[_K, list[_T]] = defaultdict(list)
    for thing in things:
        groups[key(thing)].append(thing)
    return dict(groups)


Rows = tuple[Any, ...]
"""Lines of a table: named tuples, keys first, then counts."""


def count_rows(
    facts: Iterable[Mapping[str, Any]],
    keys: Sequence[str],
    total: str | None = None,
    **tests: Callable[[Mapping[str, Any]], Any],
) -> Rows:
    """Count things in groups, in the order met.

    Args:
        facts: What is known of each thing, by name.
        keys: Names of what a group has in common, two or more.
        total: Name of the column with the size of a group; None: there is none.
        tests: Column -> whether a thing counts in it.
    """
    counted = {**({total: lambda _: True} if total else {}), **tests}
    names: Any = [*keys, *counted]
    row: Any = namedtuple("Row", names)  # type: ignore[misc]
    groups: dict[Any, list[Mapping[str, Any]]] = group_by(facts, itemgetter(*keys))
    return tuple(
        row(*key, *(sum(bool(test(one)) for one in of) for test in counted.values()))
        for key, of in groups.items()
    )


def format_count(count: int, thing: str, several: str | None = None) -> str:
    """A number with its thing, e.g. `1 cell` or `1,024 cells`; `several` where that takes more than an s."""
    return f"{count:,} {thing if count == 1 else several or f'{thing}s'}"


_NAMED = 4
"""Names that a sentence lists; of others it gives the number."""


def join_names(names: Iterable[str], most: int = _NAMED) -> str:
    """Names, each once, for a sentence; of many the first and how many more."""
    listed = list(dict.fromkeys(names))
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"{', '.join(listed[:most])}{more}"


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
