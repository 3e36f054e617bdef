"""The note of a file that has fields which this version does not know."""

from __future__ import annotations

from collections.abc import Iterable

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
