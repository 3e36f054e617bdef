"""Operators: what they do to plain data, bounded before they do it, and the labels of their results."""

from __future__ import annotations

import ast
import datetime
import operator
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

from baselines.camel.language.bounds import ResourceUse
from baselines.camel.language.failure import ProgramError, unsupported_error
from baselines.camel.language.machine import ClassValue, FunctionValue, Machine, ToolValue
from baselines.camel.language.rendering import type_name
from baselines.flow.label import FlowLabel
from baselines.flow.label_table import to_value
from baselines.flow.values import Dictionary, Instance, Scalar, Series, Value, to_native

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
_SIGNS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%"}


def apply_binary(machine: Machine, sign: ast.operator, left: Value, right: Value) -> Value:
    """The result of a binary operator."""
    label = left.full | right.full
    concatenated = _concatenate(machine, sign, left, right)
    if concatenated is not None:
        return concatenated
    one, other = _operand_data(left), _operand_data(right)
    _check_result_size(machine.spending, sign, one, other)
    return compute_plain(machine, lambda: _BINARY[type(sign)](one, other), label, _type_error_text(sign, left, right))


def apply_unary(machine: Machine, sign: ast.unaryop, value: Value) -> Value:
    """The result of a unary operator."""
    if isinstance(sign, ast.Not):
        return Scalar(value.full, not is_truthy(value))
    held = _operand_data(value)
    wording = f"bad operand type: '{type_name(value)}'"
    return compute_plain(machine, lambda: _UNARY[type(sign)](held), value.full, wording)


def compare_values(machine: Machine, sign: ast.cmpop, left: Value, right: Value) -> Value:
    """The result of a comparison of raw values."""
    one, other = comparable_data(left), comparable_data(right)
    wording = f"'{type_name(left)}' and '{type_name(right)}' cannot be compared so"
    return compute_plain(machine, lambda: bool(_COMPARISONS[type(sign)](one, other)), left.full | right.full, wording)


def compute_plain(machine: Machine, action: Callable[[], Any], label: FlowLabel, wording: str = "") -> Value:
    """Do something with plain data, and give all of its result the one label.

    Raises:
        ProgramError: In place of Python's own error; without its text if there is another `wording`.
    """
    try:
        result = action()
    except PYTHON_ERRORS as error:
        text = wording or str(error)
        raise ProgramError(type(error).__name__, text, label) from None
    if isinstance(result, complex | bytes):
        raise ProgramError("TypeError", f"'{type(result).__name__}' is not supported", label)
    return machine.spending.count_value(to_value(result, label))


def is_truthy(value: Value) -> bool:
    """Whether it counts as true."""
    match value:
        case Scalar(raw=raw):
            return bool(raw)
        case Series(items=items):
            return bool(items)
        case Dictionary(entries=entries):
            return bool(entries)
    return True


def comparable_data(value: Value) -> Any:
    """Plain data that compares as the value does: objects by class and fields, functions by name."""
    match value:
        case Scalar(raw=raw):
            return raw
        case Instance(of=of, fields=fields):
            return (of.__name__, tuple((name, comparable_data(held)) for name, held in fields.items()))
        case Dictionary(entries=entries):
            return {raw: comparable_data(held) for raw, (_, held) in entries.items()}
        case Series(kind=kind, items=items):
            inside = [comparable_data(item) for item in items]
            return inside if kind == "list" else tuple(inside) if kind == "tuple" else set(inside)
        case ClassValue(name=name) | FunctionValue(name=name) | ToolValue(name=name):
            return name
    return id(value)


def dictionary_key(value: Value) -> Any:
    """The plain data under which it stands in a dictionary or set.

    Raises:
        ProgramError: If it cannot be a key.
    """
    raw = comparable_data(value)
    try:
        hash(raw)
    except TypeError:
        raise ProgramError("TypeError", f"unhashable type: '{type_name(value)}'", value.full) from None
    return raw


def build_set(items: Iterable[Value], label: FlowLabel) -> Series:
    """A set: which of equal items stays depends on all of them, so it has everything's label."""
    distinct: dict[Any, Value] = {}
    for item in items:
        distinct.setdefault(dictionary_key(item), item)
        label = label | item.full
    return Series(label, "set", tuple(distinct.values()))


def _is_identical(one: Any, other: Any) -> bool:
    return one is None or other is None or isinstance(one, bool) or isinstance(other, bool)


def _operand_data(value: Value) -> Any:
    if isinstance(value, Scalar | Series | Dictionary):
        return to_native(value)
    raise ProgramError("TypeError", f"operators do not take '{type_name(value)}'", value.full)


def _concatenate(machine: Machine, sign: ast.operator, left: Value, right: Value) -> Value | None:
    """Lists and tuples put behind each other or repeated: their items keep their labels."""
    if isinstance(sign, ast.Add) and isinstance(left, Series) and isinstance(right, Series):
        if left.kind != right.kind or left.kind == "set":
            return None
        return machine.spending.count_value(Series(left.label | right.label, left.kind, left.items + right.items))
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
    if isinstance(sign, ast.Mod) and isinstance(one, str | bytes):
        raise unsupported_error("Formatting with '%' is")
    if isinstance(one, str) or isinstance(other, str):
        if isinstance(sign, ast.Add) and isinstance(one, str) and isinstance(other, str):
            spending.check_text_length(len(one) + len(other))
        if isinstance(sign, ast.Mult):
            text, times = (one, other) if isinstance(one, str) else (other, one)
            if isinstance(times, int):
                spending.check_text_length(len(text) * max(0, times))
    elif type(one) in (int, bool) and type(other) in (int, bool):
        spending.check_number_bits(_result_bits(sign, int(one), int(other)))


def _result_bits(sign: ast.operator, one: int, other: int) -> int:
    if isinstance(sign, ast.Pow):
        return one.bit_length() * max(0, other)
    if isinstance(sign, ast.LShift):
        return one.bit_length() + max(0, other)
    return one.bit_length() + other.bit_length() if isinstance(sign, ast.Mult) else 0


def _type_error_text(sign: ast.operator, left: Value, right: Value) -> str:
    if _plain_data(left) and _plain_data(right):
        return ""
    word = _SIGNS.get(type(sign), type(sign).__name__)
    return f"unsupported operand types for {word}: '{type_name(left)}' and '{type_name(right)}'"


def _plain_data(value: Value) -> bool:
    numbers = int | float | datetime.timedelta
    return isinstance(value, Scalar) and isinstance(value.raw, numbers) and not isinstance(value.raw, Enum)


def add_values(machine: Machine, left: Value, right: Value) -> Value:
    """Two values added, texts excepted."""
    if isinstance(right, Scalar) and isinstance(right.raw, str):
        raise ProgramError("TypeError", "texts are joined with ''.join, not sum", right.full)
    return apply_binary(machine, ast.Add(), left, right)
