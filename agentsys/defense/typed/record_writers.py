"""`RecordWriters`: which records of a result somebody else than the user wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Any

import yaml

_SHIPPED = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True)
class RecordWriters:
    """Who writes the records of each class, and who the user is in one environment."""

    fields: Mapping[str, tuple[str, ...]]
    """Class of an object -> its fields that name who may have written it; `shared_with.rw`: keys with that right."""
    own: frozenset[str]

    def is_foreign(self, record: object) -> bool:
        """Whether anybody but the user may have written a record; never of a class that no table knows."""
        names = (
            name for path in self.fields.get(type(record).__name__, ()) for name in _list_names(record, path)
        )
        return any(name not in self.own for name in names)


def find_record_writers(environment: object) -> RecordWriters:
    """The shipped table, with the user's identities in an environment."""
    table = _load_table()
    held = (
        reduce(lambda node, step: getattr(node, step, None), p.split("."), environment) for p in table["own"]
    )
    own = {str(name) for name in held if name is not None}
    return RecordWriters(
        {kind: tuple(names) for kind, names in table["classes"].items()},
        frozenset({*own, *table["own_words"]}),
    )


@cache
def _load_table() -> dict[str, Any]:
    table: dict[str, Any] = yaml.safe_load(_SHIPPED.read_text(encoding="utf-8"))
    return table


def _list_names(record: object, path: str) -> list[str]:
    name, _, right = path.partition(".")
    held = getattr(record, name, None)
    if isinstance(held, Mapping):
        held = [key for key, given in held.items() if not right or str(given) == right]
    if held is None:
        return []
    return [str(one) for one in held] if isinstance(held, list | tuple | set) else [str(held)]
