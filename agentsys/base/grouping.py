"""Groups things by a key, and formats counts and durations for people."""

from __future__ import annotations

from collections import defaultdict, namedtuple
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeVar

_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")
_C = TypeVar("_C", bound=Hashable)


def group_by(things: Iterable[_T], key: Callable[[_T], _K]) -> dict[_K, list[_T]]:
    """Key -> things with this key, both in order of first occurrence; things need not be sorted."""
    groups: defaultdict[_K, list[_T]] = defaultdict(list)
    for thing in things:
        groups[key(thing)].append(thing)
    return dict(groups)


def pivot(
    things: Iterable[_T], row: Callable[[_T], _K], column: Callable[[_T], _C]
) -> dict[_K, dict[_C, _T]]:
    """Row -> column -> the thing in that place, in order of first occurrence; of several the last."""
    return {key: {column(thing): thing for thing in of_row} for key, of_row in group_by(things, row).items()}


Rows = tuple[Any, ...]
"""Rows of a table: named tuples, keys first, then counts."""


def count_rows(
    facts: Iterable[Mapping[str, Any]],
    keys: Sequence[str],
    total: str | None = None,
    **tests: Callable[[Mapping[str, Any]], Any],
) -> Rows:
    """Count things in groups, in order of first occurrence.

    Args:
        facts: Facts about each thing, by name.
        keys: Names of the facts that define a group, two or more.
        total: Name of the column with the size of a group; None: no such column.
        tests: Column -> predicate that is true for the things to count.
    """
    counted = {**({total: lambda _: True} if total else {}), **tests}
    names: Any = [*keys, *counted]
    row: Any = namedtuple("Row", names)  # type: ignore[misc]
    groups: dict[Any, list[Mapping[str, Any]]] = group_by(facts, itemgetter(*keys))
    return tuple(
        row(*key, *(sum(bool(test(fact)) for fact in of) for test in counted.values()))
        for key, of in groups.items()
    )


def format_count(count: int, thing: str, several: str | None = None) -> str:
    """Format a count with its noun, e.g. `1 cell` or `1,024 cells`; `several` is an irregular plural."""
    return f"{count:,} {thing if count == 1 else several or f'{thing}s'}"


_NAMED = 4
"""Most names that a sentence lists; it counts the rest."""


def join_names(names: Iterable[str], most: int = _NAMED) -> str:
    """Join names, each once, for a sentence: the first `most`, and the number of the rest."""
    listed = list(dict.fromkeys(names))
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return f"{', '.join(listed[:most])}{more}"


def abbreviate_count(count: float) -> str:
    """Format a count with one decimal and a unit, e.g. `5.5M`."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.1f}{unit}"
    return f"{count:.0f}"


def format_duration(seconds: float | None) -> str:
    """Format seconds as `h:mm:ss`; `-` if unknown."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
