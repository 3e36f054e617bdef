"""Classes: definitions of a program, annotations, and objects made by calling a class."""

from __future__ import annotations

import ast
import datetime
from collections.abc import Mapping, Sequence
from enum import Enum, EnumMeta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, EmailStr, NaiveDatetime, ValidationError, create_model

from baselines.camel.language.bounds import resource_error
from baselines.camel.language.failure import ProgramError, unsupported_error
from baselines.camel.language.machine import ClassValue, Machine
from baselines.camel.language.operators import PYTHON_ERRORS, compute_plain
from baselines.flow.label import FROM_USER, join_labels
from baselines.flow.label_table import to_value
from baselines.flow.values import Instance, Value, to_native

_SCALARS: Mapping[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "EmailStr": EmailStr,
    "NaiveDatetime": NaiveDatetime,
}
_GENERIC: Mapping[str, tuple[Any, int]] = {"list": (list, 1), "set": (set, 1), "dict": (dict, 2)}
_CONSTRUCTED_TYPES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
_MARKERS: Mapping[str, type] = {
    name: type(name, (), {})
    for name in (
        *("BaseModel", "FieldInfo", "EmailStr", "NaiveDatetime", "Enum", "timezone"),
        *("ValueError", "NotEnoughInformationError"),
    )
}
_MOST_FIELDS = 100
CLASSES: Mapping[str, ClassValue] = {
    **{kind.__name__: ClassValue(FROM_USER, kind.__name__, kind) for kind in _CONSTRUCTED_TYPES},
    **{name: ClassValue(FROM_USER, name, marker) for name, marker in _MARKERS.items()},
}
"""The classes that are always there. Those that cannot be made stand for themselves only."""


def define_class(node: ast.ClassDef, machine: Machine) -> Value:
    """A class of the program: names and types of fields, nothing else.

    Raises:
        ProgramError: If it is anything more, or is defined already.
    """
    if machine.names.get(node.name) is not None or node.name in machine.provided:
        text = f"the class {node.name} exists already. Use it, or choose another name."
        raise ProgramError("TypeError", text).at_node(node)
    bases = [base.id if isinstance(base, ast.Name) else "" for base in node.bases]
    marks = [mark.id if isinstance(mark, ast.Name) else "" for mark in node.decorator_list]
    if node.keywords or (bases, marks) not in ((["BaseModel"], []), ([], ["dataclass"])):
        raise unsupported_error("A class that is neither a BaseModel nor a dataclass is").at_node(node)
    fields = {}
    for line in node.body:
        if _is_docstring(line) or isinstance(line, ast.Pass):
            continue
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name) or line.value:
            raise unsupported_error("Anything but lines of `name: type` in a class is").at_node(line)
        _check_field(line.target.id, line)
        fields[line.target.id] = (read_annotation(line.annotation, machine), ...)
    machine.classes += 1
    if machine.classes > machine.spending.bounds.classes or len(fields) > _MOST_FIELDS:
        raise resource_error("memory")
    defined = create_model(node.name, __config__=ConfigDict(extra="ignore"), **fields)  # type: ignore[call-overload]
    value = ClassValue(FROM_USER, node.name, defined)
    machine.bind(node.name, value)
    return value


def read_annotation(node: ast.expr, machine: Machine) -> Any:
    """The type that an annotation names.

    Only names of the tables, classes of the program or its surroundings, `list[...]`, `set[...]`,
    `dict[..., ...]`, `Literal[...]` of texts, and `|` are read; nothing is evaluated.

    Raises:
        ProgramError: If it is anything else.
    """
    match node:
        case ast.Name(id=name):
            return _named_type(name, machine, node)
        case ast.Constant(value=None):
            return None
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return read_annotation(left, machine) | read_annotation(right, machine)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inside):
            return _read_literal_type(inside, node)
        case ast.Subscript(value=ast.Name(id=name), slice=inside) if name in _GENERIC:
            of, count = _GENERIC[name]
            given = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            if len(given) == count:
                return of[tuple(read_annotation(one, machine) for one in given)]
    raise unsupported_error("Such an annotation is").at_node(node)


def _named_type(name: str, machine: Machine, node: ast.expr) -> Any:
    if name in _SCALARS:
        return _SCALARS[name]
    if name in _GENERIC:
        return _GENERIC[name][0]
    found = machine.names.get(name) or machine.provided.get(name)
    if isinstance(found, ClassValue) and (issubclass(found.of, BaseModel) or isinstance(found.of, EnumMeta)):
        return found.of
    if found is None:
        raise ProgramError("NameError", f"name '{name}' is not defined").at_node(node)
    raise unsupported_error(f"'{name}' as an annotation is").at_node(node)


def _read_literal_type(inside: ast.expr, node: ast.expr) -> Any:
    given = inside.elts if isinstance(inside, ast.Tuple) else [inside]
    values = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if not values or len(values) != len(given):
        raise unsupported_error("Such a Literal is").at_node(node)
    return Literal[tuple(values)]


def _is_docstring(line: ast.stmt) -> bool:
    value = line.value if isinstance(line, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _check_field(name: str, node: ast.AST) -> None:
    """Names that mean something to pydantic would change what the class is."""
    if name.startswith(("_", "model_")) or hasattr(BaseModel, name):
        raise ProgramError("NameError", f"a field cannot be called '{name}'").at_node(node)


def construct_instance(
    machine: Machine, name: str, of: type, given: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    """An object made by calling a class. Each field keeps the label of what was given for it.

    Raises:
        ProgramError: If the class cannot be called, or what is given does not fit.
    """
    label = join_labels([FROM_USER, *(value.full for value in (*given, *named.values()))])
    if of in _CONSTRUCTED_TYPES:
        positional = [to_native(value) for value in given]
        keywords = {key: to_native(value) for key, value in named.items()}
        return compute_plain(machine, lambda: of(*positional, **keywords), label)
    if isinstance(of, EnumMeta) and len(given) == 1:
        return compute_plain(machine, lambda: of(to_native(given[0])), label)
    if not issubclass(of, BaseModel) or given:
        raise ProgramError("TypeError", f"{name} cannot be called like this")
    try:
        made_object = of.model_validate({key: to_native(value) for key, value in named.items()})
    except ValidationError as error:
        text = f"{error.error_count()} fields of {name} do not fit"
        raise ProgramError("ValidationError", text, label) from None
    except PYTHON_ERRORS as error:
        raise ProgramError(type(error).__name__, "the object cannot be made", label) from None
    fields = {
        field: to_value(getattr(made_object, field), named[field].full if field in named else label)
        for field in of.model_fields
    }
    return machine.spending.count_value(Instance(FROM_USER, of, fields))


def build_class_values(types: Sequence[type]) -> dict[str, ClassValue]:
    """The classes of a suite's results, as programs find them."""
    return {of.__name__: ClassValue(FROM_USER, of.__name__, of) for of in types if of is not Enum}
