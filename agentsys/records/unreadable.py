"""`UnreadableRecord`: a file that looks like a stored case and cannot be used as one."""

from __future__ import annotations

from pydantic import ValidationError


class UnreadableRecord(Exception):
    """The file is skipped; the message is one short reason."""


def first_fault(error: ValidationError) -> str:
    """The first thing pydantic found wrong, as one line without the offending value.

    Args:
        error: Raised while a stored block was checked.

    Returns:
        E.g. `case.suite: Field required`; values stay out, since a stored file may hold anything.
    """
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}"
