"""`UnreadableRecord`: a stored file that cannot be used; and the note of fields that are not known here."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

UNKNOWN_FIELDS = "unknown fields ignored: "
"""Begins a case's note about fields of its file that this version does not know."""

_LONGEST_NAME = 40


class UnreadableRecord(Exception):
    """A file that looks like a stored case and is skipped; the message is one short reason."""


class UnfinishedRecord(UnreadableRecord):
    """A file whose run was not finished: it has no scores."""


def describe_first_fault(error: ValidationError) -> str:
    """The first thing pydantic found wrong, as one line without the offending value.

    Returns:
        E.g. `case.suite: Field required`; values stay out, since a stored file may hold anything.
    """
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}"


def note_unknown_fields(names: Iterable[object]) -> tuple[str, ...]:
    """The note of one file about fields that nothing reads; none where there are none."""
    listed = sorted(repr(str(name)[:_LONGEST_NAME])[1:-1] for name in names)
    return (UNKNOWN_FIELDS + ", ".join(listed),) if listed else ()
