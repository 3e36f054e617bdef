"""Operators, comparisons, formats and texts of labelled values; sizes are checked before results are made."""

from __future__ import annotations

import ast
import datetime
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from string import Formatter
from typing import Any

from baselines.camel.language.machine import (
    ClassValue,
    ErrorValue,
    FunctionValue,
    Machine,
    MethodValue,
    ProgramError,
    ResourceUse,
    ToolValue,
    make_resource_error,
    make_unsupported_error,
)
from baselines.flow.labelled_values import (
    Dictionary,
    FlowLabel,
    Instance,
    Scalar,
    Series,
    Value,
    to_native,
    to_value,
)

CALLABLE_NAMES = {FunctionValue: "function", ToolValue: "function", MethodValue: "method"}


def to_str(value: Value) -> str:
    """Apply `str`."""
    match value:
        case Scalar(raw=raw):
            return str(raw.value) if isinstance(raw, Enum) and isinstance(raw, str) else str(raw)
        case Instance(fields=fields):
            return " ".join(f"{name}={to_repr(field)}" for name, field in fields.items())
        case ErrorValue(text=text):
            return "" if text is None else to_str(text)
    return to_repr(value)


def to_repr(value: Value) -> str:
    """Apply `repr`."""
    match value:
        case Scalar(raw=raw):
            return repr(raw)
        case Series(kind=kind, items=items):
            inside = ", ".join(map(to_repr, items))
            if kind == "list":
                return f"[{inside}]"
            if kind == "tuple":
                return f"({inside},)" if len(items) == 1 else f"({inside})"
            return f"{{{inside}}}" if items else "set()"
        case Dictionary(entries=entries):
            return "{" + ", ".join(f"{to_repr(key)}: {to_repr(item)}" for key, item in entries.values()) + "}"
        case Instance(of=of, fields=fields):
            inside = ", ".join(f"{name}={to_repr(item)}" for name, item in fields.items())
            return f"{of.__name__}({inside})"
        case ClassValue(name=name):
            return f"<class '{name}'>"
        case ErrorValue(name=name, text=text):
            return f"{name}({'' if text is None else to_repr(text)})"
    return f"<{CALLABLE_NAMES.get(type(value), 'object')} {getattr(value, 'name', '')}>"


def write_type_name(value: Value) -> str:
    """The name of its type."""
    match value:
        case Scalar(raw=raw):
            return type(raw).__name__
        case Series(kind=kind):
            return kind
        case Dictionary():
            return "dict"
        case Instance(of=of):
            return of.__name__
        case ClassValue():
            return "type"
        case ErrorValue(name=name):
            return name
    return "function"


_DATE_FORMAT = re.compile(r"(?:[^%]|%[A-Za-z%])*")
_MOST_DATE = 200
_FORMATTER = Formatter()


def check_date_format(text: str) -> None:
    """Look at a format of dates: `%1000000Y` would fill the memory."""
    if len(text) > _MOST_DATE or not _DATE_FORMAT.fullmatch(text):
        raise ProgramError("ValueError", "such a format of dates is not supported")


def check_format_spec(spec: str, widest: int) -> None:
    """Look at a format specification."""
    numbers = re.findall(r"[0-9]+", spec)
    too_wide = any(len(digits) > 9 or int(digits) > widest for digits in numbers)
    if too_wide or len(spec) > _MOST_DATE or not spec.isascii():
        raise make_resource_error("width")


def format_value(value: Value, spec: str, label: FlowLabel) -> str:
    """Apply `format`."""
    if not spec:
        return to_str(value)
    raw = value.raw if isinstance(value, Scalar) else None
    if isinstance(raw, datetime.date | datetime.time):
        check_date_format(spec)
    elif not isinstance(raw, str | int | float):
        raise ProgramError("TypeError", f"'{write_type_name(value)}' takes no format", label)
    try:
        return format(raw, spec)
    except (ValueError, OverflowError):
        raise ProgramError(
            "ValueError", f"'{write_type_name(value)}' does not take this format", label
        ) from None


def format_text(
    text: str, given: Sequence[Value], named: Mapping[str, Value], label: FlowLabel, limits: tuple[int, int]
) -> str:
    """`str.format`, whose fields are numbers and names alone: no attribute, no key, no field in a field.

    `label` is that of errors; `limits` are the widest field and the longest text.
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
            raise make_resource_error("memory")
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


_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda one, other: one is other if _is_identical(one, other) else one == other,
    ast.IsNot: lambda one, other: one is not other if _is_identical(one, other) else one != other,
    ast.In: lambda one, other: one in other,
    ast.NotIn: lambda one, other: one not in other,
}
PYTHON_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError)
"""What plain data raises; anything else is a bug of ours."""


def apply_binary(machine: Machine, sign: ast.operator, left: Value, right: Value) -> Value:
    """The result of a binary operator."""
    label = left.full | right.full
    concatenated = _concatenate(machine, sign, left, right)
    if concatenated is not None:
        return concatenated
    one, other = _read_operand_data(left), _read_operand_data(right)
    _check_result_size(machine.spending, sign, one, other)
    return compute_plain(machine, lambda: _BINARY[type(sign)](one, other), label)


def apply_unary(machine: Machine, sign: ast.unaryop, value: Value) -> Value:
    """The result of a unary operator."""
    if isinstance(sign, ast.Not):
        return Scalar(value.full, not is_truthy(value))
    operand = _read_operand_data(value)
    return compute_plain(machine, lambda: _UNARY[type(sign)](operand), value.full)


def compare_values(machine: Machine, sign: ast.cmpop, left: Value, right: Value) -> Value:
    """The result of a comparison of raw values."""
    one, other = make_comparable_data(left), make_comparable_data(right)
    return compute_plain(machine, lambda: bool(_COMPARISONS[type(sign)](one, other)), left.full | right.full)


def compute_plain(machine: Machine, action: Callable[[], Any], label: FlowLabel) -> Value:
    """Do something with plain data, and give all of its result the one label.

    Raises:
        ProgramError: In place of Python's own error, under the label.
    """
    try:
        result = action()
    except PYTHON_ERRORS as error:
        raise ProgramError(type(error).__name__, str(error), label) from None
    if isinstance(result, complex | bytes):
        raise ProgramError("TypeError", f"'{type(result).__name__}' is not supported", label)
    if isinstance(result, int):  # `int(text, 16)` makes numbers that Python refuses to write out
        machine.spending.check_number_bits(result.bit_length())
    return machine.spending.count_value(to_value(result, label))


def is_truthy(value: Value) -> bool:
    """True if it counts as true."""
    match value:
        case Scalar(raw=raw):
            return bool(raw)
        case Series(items=items):
            return bool(items)
        case Dictionary(entries=entries):
            return bool(entries)
    return True


def make_comparable_data(value: Value) -> Any:
    """Plain data that compares as the value does: objects by class and fields, functions by name."""
    match value:
        case Scalar(raw=raw):
            return raw
        case Instance(of=of, fields=fields):
            return (of.__name__, tuple((name, make_comparable_data(held)) for name, held in fields.items()))
        case Dictionary(entries=entries):
            return {raw: make_comparable_data(held) for raw, (_, held) in entries.items()}
        case Series(kind=kind, items=items):
            inside = [make_comparable_data(item) for item in items]
            return inside if kind == "list" else tuple(inside) if kind == "tuple" else set(inside)
        case ClassValue(name=name) | FunctionValue(name=name) | ToolValue(name=name):
            return name
    return id(value)


def make_dictionary_key(value: Value) -> Any:
    """The plain data under which it stands in a dictionary or set."""
    raw = make_comparable_data(value)
    try:
        hash(raw)
    except TypeError:
        raise ProgramError("TypeError", f"unhashable type: '{write_type_name(value)}'", value.full) from None
    return raw


def iterate_value(value: Value, machine: Machine) -> list[Value]:
    """List the items of a value, as a loop takes them."""
    if isinstance(value, Series):
        items = list(value.items)
    elif isinstance(value, Dictionary):
        items = [key for key, _ in value.entries.values()]
    elif isinstance(value, Scalar) and isinstance(value.raw, str):
        machine.spending.count_steps(len(value.raw))
        return [Scalar(value.label, character) for character in value.raw]
    else:
        raise ProgramError("TypeError", f"'{write_type_name(value)}' object is not iterable", value.full)
    return [machine.from_container(item, value) for item in items]


def build_set(items: Iterable[Value], label: FlowLabel) -> Series:
    """A set: which of equal items stays depends on all of them, so it has everything's label."""
    distinct: dict[Any, Value] = {}
    for item in items:
        distinct.setdefault(make_dictionary_key(item), item)
        label = label | item.full
    return Series(label, "set", tuple(distinct.values()))


def _is_identical(one: Any, other: Any) -> bool:
    return one is None or other is None or isinstance(one, bool) or isinstance(other, bool)


def _read_operand_data(value: Value) -> Any:
    if isinstance(value, Scalar | Series | Dictionary):
        return to_native(value)
    raise ProgramError("TypeError", f"operators do not take '{write_type_name(value)}'", value.full)


def _concatenate(machine: Machine, sign: ast.operator, left: Value, right: Value) -> Value | None:
    """Lists and tuples put behind each other or repeated: their items keep their labels."""
    if isinstance(sign, ast.Add) and isinstance(left, Series) and isinstance(right, Series):
        if left.kind != right.kind or left.kind == "set":
            return None
        return machine.spending.count_value(
            Series(left.label | right.label, left.kind, left.items + right.items)
        )
    series, times = (left, right) if isinstance(left, Series) else (right, left)
    if not isinstance(sign, ast.Mult) or not isinstance(series, Series) or series.kind == "set":
        return None
    if not isinstance(times, Scalar) or type(times.raw) is not int:
        return None
    machine.spending.check_text_length(max(0, times.raw) * series.size)
    repeated = machine.join(series, times.full)
    assert isinstance(repeated, Series)
    return machine.spending.count_value(Series(repeated.label, series.kind, repeated.items * times.raw))


def _check_result_size(spending: ResourceUse, sign: ast.operator, one: Any, other: Any) -> None:
    """Look whether the result will be small enough, before it is made."""
    match sign, one, other:
        case ast.Mod(), str() | bytes(), _:
            raise make_unsupported_error("Formatting with '%' is")
        case ast.Add(), str(), str():
            spending.check_text_length(len(one) + len(other))
        case (ast.Mult(), str() as text, int() as times) | (ast.Mult(), int() as times, str() as text):
            spending.check_text_length(len(text) * max(0, times))
        case ast.Pow(), int(), int():
            spending.check_number_bits(one.bit_length() * max(0, other))
        case ast.LShift(), int(), int():
            spending.check_number_bits(one.bit_length() + max(0, other))
        case ast.Mult(), int(), int():
            spending.check_number_bits(one.bit_length() + other.bit_length())
