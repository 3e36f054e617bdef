"""`reading_notes`: what a reader of some folders must be told before looking at the numbers, a line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agentsys.analysis.listing import Skipped

UNKNOWN_FIELDS = "unknown fields ignored: "
"""Begins a case's note about fields of its file that this version does not know."""

_LONGEST_NAME = 40


def unknown_fields_note(names: Iterable[object]) -> tuple[str, ...]:
    """The note of one file about such fields; none where there are none.

    Args:
        names: Keys of the stored JSON that nothing reads.
    """
    listed = sorted(repr(str(name)[:_LONGEST_NAME])[1:-1] for name in names)
    return (UNKNOWN_FIELDS + ", ".join(listed),) if listed else ()


def skipped_lines(skipped: Sequence[Skipped], limit: int = 5) -> list[str]:
    """One line per skipped file, at most `limit`, then one line with the count of the rest."""
    lines = [f"Skipped {path}: {reason}" for path, reason in skipped[:limit]]
    rest = len(skipped) - limit
    return [*lines, f"Skipped {rest} more file{'s' if rest > 1 else ''}."] if rest > 0 else lines


def reading_notes(
    skipped: Sequence[Skipped], repeated: int, versions: Iterable[str], notes: Iterable[Sequence[str]]
) -> list[str]:
    """All lines about some folders.

    Args:
        skipped: Files that could not be used.
        repeated: Files of cases that are counted already.
        versions: The benchmark's versions among the cases.
        notes: Of each case.
    """
    return [
        *skipped_lines(skipped),
        *_repeated(repeated),
        *_versions(sorted(set(versions))),
        *_unknown(notes),
    ]


def _repeated(count: int) -> Iterator[str]:
    if count:
        files = "1 file of a case that is" if count == 1 else f"{count} files of cases that are"
        yield f"Left out {files} stored more than once."


def _versions(versions: Sequence[str]) -> Iterator[str]:
    if len(versions) > 1:
        yield f"Cases of {len(versions)} benchmark versions are kept apart: {', '.join(versions)}."


def _unknown(notes: Iterable[Sequence[str]]) -> Iterator[str]:
    found = [note for of_case in notes for note in of_case if note.startswith(UNKNOWN_FIELDS)]
    if found:
        files = "1 file has" if len(found) == 1 else f"{len(found)} files have"
        names = sorted({name for note in found for name in note[len(UNKNOWN_FIELDS) :].split(", ")})
        yield f"{files} fields that this version does not know and ignores: {', '.join(names[:5])}."
