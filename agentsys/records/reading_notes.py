"""`reading_notes`: what a reader of some folders must be told before looking at the numbers, a line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from agentsys.records.listing import SkippedFile
from agentsys.records.settle import RepeatedFile, ResolvedRuns
from agentsys.records.unreadable import UNKNOWN_FIELDS

if TYPE_CHECKING:
    import pandas as pd


def describe_skipped(skipped: Sequence[SkippedFile], limit: int = 5) -> list[str]:
    """One line per skipped file, at most `limit`, then one line with the count of the rest."""
    lines = [f"Skipped {path}: {reason}" for path, reason in skipped[:limit]]
    rest = len(skipped) - limit
    return [*lines, f"Skipped {rest} more file{'s' if rest > 1 else ''}."] if rest > 0 else lines


def describe_files(skipped: Sequence[SkippedFile], settled: ResolvedRuns, cases: pd.DataFrame) -> list[str]:
    """All lines about some folders."""
    return [
        *describe_skipped(skipped),
        *describe_resolution(settled.notes),
        *describe_repeated(settled.repeated_files),
        *_describe_versions(sorted(set(cases["version"]))),
        *_describe_unknown_fields(cases["notes"]),
    ]


def describe_resolution(notes: Sequence[str], limit: int = 12) -> list[str]:
    """The decisions about whose runs these are: `limit` lines, then a count of the rest."""
    rest = len(notes) - limit
    return [*notes[:limit], f"{rest} more folders likewise."] if rest > 0 else list(notes)


def describe_repeated(repeated: Sequence[RepeatedFile]) -> Iterator[str]:
    """One line on files of cases that are counted already, with the paths of the first; none without any."""
    if repeated:
        some = "1 file" if len(repeated) == 1 else f"{len(repeated)} files"
        named = "; ".join(f"{file.source} (counted: {file.counted_source})" for file in repeated[:_NAMED])
        more = f"; and {len(repeated) - _NAMED} more" if len(repeated) > _NAMED else ""
        yield f"Left out: {some} of cases that are stored more than once: {named}{more}."


_NAMED = 2


def _describe_versions(versions: Sequence[str]) -> Iterator[str]:
    if len(versions) > 1:
        yield f"Cases of {len(versions)} benchmark versions are kept apart: {', '.join(versions)}."


def _describe_unknown_fields(notes: Iterable[Sequence[str]]) -> Iterator[str]:
    found = [note for of_case in notes for note in of_case if note.startswith(UNKNOWN_FIELDS)]
    if found:
        files = "1 file has" if len(found) == 1 else f"{len(found)} files have"
        names = sorted({name for note in found for name in note[len(UNKNOWN_FIELDS) :].split(", ")})
        yield f"{files} fields that this version does not know and ignores: {', '.join(names[:5])}."
