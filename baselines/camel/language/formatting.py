"""Format specifications and `str.format`, with bounded widths and without ways into objects."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from string import Formatter

from baselines.camel.language.bounds import resource_error
from baselines.camel.language.failure import ProgramError
from baselines.camel.language.rendering import to_str, type_name, to_repr
from baselines.flow.label import FlowLabel
from baselines.flow.values import Scalar, Value

_DATE_FORMAT = re.compile(r"(?:[^%]|%[A-Za-z%])*")
_MOST_DATE = 200
_FORMATTER = Formatter()


def check_date_format(text: str) -> None:
    """Look at a format of dates: `%1000000Y` would fill the memory.

    Raises:
        ProgramError: If it holds anything but letters behind `%`, or is very long.
    """
    if len(text) > _MOST_DATE or not _DATE_FORMAT.fullmatch(text):
        raise ProgramError("ValueError", "such a format of dates is not supported")


def check_format_spec(spec: str, widest: int) -> None:
    """Look at a format specification.

    Raises:
        ProgramError: If a width or precision in it is too large.
    """
    if any(len(digits) > 9 or int(digits) > widest for digits in re.findall(r"[0-9]+", spec)):
        raise resource_error("width")
    if len(spec) > _MOST_DATE or not spec.isascii():
        raise resource_error("width")


def format_value(value: Value, spec: str, label: FlowLabel) -> str:
    """What `format` makes of it.

    Raises:
        ProgramError: If the specification does not fit.
    """
    if not spec:
        return to_str(value)
    raw = value.raw if isinstance(value, Scalar) else None
    if isinstance(raw, datetime.date | datetime.time):
        check_date_format(spec)
    elif not isinstance(raw, str | int | float):
        raise ProgramError("TypeError", f"'{type_name(value)}' takes no format", label)
    try:
        return format(raw, spec)
    except (ValueError, OverflowError):
        raise ProgramError("ValueError", f"'{type_name(value)}' does not take this format", label) from None


def format_text(
    text: str, given: Sequence[Value], named: Mapping[str, Value], label: FlowLabel, limits: tuple[int, int]
) -> str:
    """`str.format`, whose fields are numbers and names alone: no attribute, no key, no field in a field.

    Args:
        text: The format text.
        given: Positional values.
        named: Values by name.
        label: For errors.
        limits: The widest field, and the longest text.

    Raises:
        ProgramError: If a field is something else, is missing, or the text becomes too long.
    """
    pieces, length, counted = [], 0, 0
    try:
        parts = list(_FORMATTER.parse(text))
    except ValueError as error:
        raise ProgramError("ValueError", str(error), label) from None
    for before, name, spec, conversion in parts:
        pieces.append(before)
        if name is not None:
            name, counted = (name, counted) if name else (str(counted), counted + 1)
            value = _format_field(name, given, named, label)
            if "{" in (spec or ""):
                raise ProgramError("ValueError", "fields in fields are not supported", label)
            check_format_spec(spec or "", limits[0])
            if conversion:
                value = Scalar(value.full, to_repr(value) if conversion in "ra" else to_str(value))
            pieces.append(format_value(value, spec or "", label))
        length += sum(len(piece) for piece in pieces[-2:])
        if length > limits[1]:
            raise resource_error("memory")
    return "".join(pieces)


def _format_field(name: str, given: Sequence[Value], named: Mapping[str, Value], label: FlowLabel) -> Value:
    if name.isdecimal() and len(name) < 4:
        if int(name) < len(given):
            return given[int(name)]
        raise ProgramError("IndexError", "a field has no value", label)
    if name in named:
        return named[name]
    kind = "KeyError" if name.isidentifier() else "ValueError"
    raise ProgramError(kind, f"field '{name[:40]}' is not supported or has no value", label)
