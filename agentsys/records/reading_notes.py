"""`reading_notes`: what a reader of some folders must be told before looking at the numbers, a line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from agentsys.records.listing import Skipped
from agentsys.records.settle import RepeatedFile, Settled
from agentsys.records.unreadable import UNKNOWN_FIELDS

if TYPE_CHECKING:
    import pandas as pd


def skipped_lines(skipped: Sequence[Skipped], limit: int = 5) -> list[str]:
    """One line per skipped file, at most `limit`, then one line with the count of the rest."""
    lines = [f"Skipped {path}: {reason}" for path, reason in skipped[:limit]]
    rest = len(skipped) - limit
    return [*lines, f"Skipped {rest} more file{'s' if rest > 1 else ''}."] if rest > 0 else lines


def reading_notes(skipped: Sequence[Skipped], settled: Settled, cases: pd.DataFrame) -> list[str]:
    """All lines about some folders."""
    return [
        *skipped_lines(skipped),
        *settled_lines(settled.notes),
        *repeated_lines(settled.repeated),
        *_versions(sorted(set(cases["version"]))),
        *_unknown(cases["notes"]),
    ]


def settled_lines(notes: Sequence[str], limit: int = 12) -> list[str]:
    """The decisions about whose runs these are: `limit` lines, then a count of the rest."""
    rest = len(notes) - limit
    return [*notes[:limit], f"{rest} more folders likewise."] if rest > 0 else list(notes)


def repeated_lines(repeated: Sequence[RepeatedFile]) -> Iterator[str]:
    """One line on files of cases that are counted already, with the paths of the first; none without any."""
    if repeated:
        some = "1 file" if len(repeated) == 1 else f"{len(repeated)} files"
        named = "; ".join(f"{file.source} (counted: {file.counted})" for file in repeated[:_NAMED])
        more = f"; and {len(repeated) - _NAMED} more" if len(repeated) > _NAMED else ""
        yield f"Left out: {some} of cases that are stored more than once: {named}{more}."


_NAMED = 2


def _versions(versions: Sequence[str]) -> Iterator[str]:
    if len(versions) > 1:
        yield f"Cases of {len(versions)} benchmark versions are kept apart: {', '.join(versions)}."


def _unknown(notes: Iterable[Sequence[str]]) -> Iterator[str]:
    found = [note for of_case in notes for note in of_case if note.startswith(UNKNOWN_FIELDS)]
    if found:
        files = "1 file has" if len(found) == 1 else f"{len(found)} files have"
        names = sorted({name for note in found for name in note[len(UNKNOWN_FIELDS) :].split(", ")})
        yield f"{files} fields that this version does not know and ignores: {', '.join(names[:5])}."
