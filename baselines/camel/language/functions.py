"""The functions and classes that programs find, and the classes that programs define."""

from __future__ import annotations

import ast
import datetime
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, EnumMeta
from itertools import islice
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, EmailStr, NaiveDatetime, ValidationError, create_model

from baselines.camel.language.machine import (
    ClassValue,
    FunctionValue,
    Machine,
    ProgramError,
    resource_error,
    unsupported_error,
)
from baselines.camel.language.members import list_attributes, list_methods
from baselines.camel.language.operators import (
    PYTHON_ERRORS,
    add_values,
    build_set,
    comparable_data,
    compute_plain,
    dictionary_key,
    is_truthy,
    to_repr,
    to_str,
    type_name,
)
from baselines.flow.label_table import to_value
from baselines.flow.labelled_values import (
    FROM_USER,
    Dictionary,
    FlowLabel,
    Instance,
    Scalar,
    Series,
    Value,
    join_labels,
    literal_value,
    to_native,
)

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


PositionalValues = Sequence[Value]
KeywordValues = Mapping[str, Value]


def call_function(machine: Machine, name: str, given: PositionalValues, named: KeywordValues) -> Value:
    """The result of a provided function.

    Raises:
        ProgramError: If it fails, or does not take such arguments.
    """
    allowed = _KEYWORDS.get(name, ())
    unknown = [key for key in named if key not in allowed]
    low, high = _ARGUMENT_COUNTS[name]
    if unknown or not low <= len(given) <= high:
        raise ProgramError("TypeError", f"{name} does not take these arguments")
    label = join_labels([FROM_USER, *(value.full for value in (*given, *named.values()))])
    return _FUNCTIONS[name](machine, given, named, label)


def _plain_function(
    function: Callable[..., Any],
) -> Callable[[Machine, PositionalValues, KeywordValues, FlowLabel], Value]:
    """A function of plain data: all of its result has the join of all arguments."""

    def run(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
        return compute_plain(machine, lambda: function(*(to_native(value) for value in given)), label)

    return run


def _iterate(machine: Machine, value: Value) -> list[Value]:
    from baselines.camel.language.expressions import iterate_value

    return iterate_value(value, machine)


def _str(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    if given:
        machine.spending.count_steps(given[0].count)
    return machine.spending.count_value(Scalar(label, to_str(given[0]) if given else ""))


def _repr(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    machine.spending.count_steps(given[0].count)
    return machine.spending.count_value(Scalar(label, to_repr(given[0])))


def _print(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    text = "".join(to_str(value) for value in (*given, *named.values()))
    machine.printed.append(machine.spending.count_value(Scalar(label, text)))
    return Scalar(FROM_USER, None)


def _length(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    value = given[0]
    if isinstance(value, Scalar) and isinstance(value.raw, str):
        return Scalar(label, len(value.raw))
    if isinstance(value, Series | Dictionary):
        return Scalar(label, len(value.items if isinstance(value, Series) else value.entries))
    raise ProgramError("TypeError", f"object of type '{type_name(value)}' has no len()", label)


def _any_all(wanted: bool) -> Callable[[Machine, PositionalValues, KeywordValues, FlowLabel], Value]:
    def run(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
        found = any(is_truthy(item) is wanted for item in _iterate(machine, given[0]))
        return Scalar(label, found is wanted)

    return run


def _sequence_function(kind: Any) -> Callable[[Machine, PositionalValues, KeywordValues, FlowLabel], Value]:
    """`list` and `tuple`: items keep their labels."""

    def run(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
        items = tuple(_iterate(machine, given[0])) if given else ()
        return machine.spending.count_value(Series(given[0].label if given else FROM_USER, kind, items))

    return run


def _set(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    return machine.spending.count_value(build_set(_iterate(machine, given[0]) if given else (), label))


def _enumerate(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    start = given[1] if len(given) == 2 else named.get("start", literal_value(0))
    first = to_native(start)
    if not isinstance(first, int):
        raise ProgramError("TypeError", "start is no whole number", label)
    holder = given[0].label | start.full
    pairs = [
        Series(holder, "tuple", (Scalar(holder, first + place), item))
        for place, item in enumerate(_iterate(machine, given[0]))
    ]
    machine.spending.count_steps(2 * len(pairs))
    return machine.spending.count_value(Series(holder, "list", tuple(pairs)))


def _zip(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    holder = join_labels([FROM_USER, *(value.label for value in given)])
    rows = list(zip(*(_iterate(machine, value) for value in given), strict=False))
    machine.spending.count_steps(len(rows) * len(given))
    return machine.spending.count_value(
        Series(holder, "list", tuple(Series(holder, "tuple", row) for row in rows))
    )


def _reversed(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    items = tuple(reversed(_iterate(machine, given[0])))
    return machine.spending.count_value(Series(given[0].label, "list", items))


def _range(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    def count() -> list[int]:
        numbers = range(*(to_native(value) for value in given))
        machine.spending.count_steps(len(numbers))
        return list(islice(numbers, machine.spending.bounds.steps))

    return compute_plain(machine, count, label)


def _sorted(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    """Where an item comes to stand depends on all items."""
    items = [machine.join(item, label) for item in _iterate(machine, given[0])]
    reverse = is_truthy(named["reverse"]) if "reverse" in named else False
    try:
        ordered = sorted(items, key=comparable_data, reverse=reverse)
    except TypeError:
        raise ProgramError("TypeError", "the items cannot be ordered", label) from None
    return machine.spending.count_value(Series(label, "list", tuple(ordered)))


def _min_max(largest: bool) -> Callable[[Machine, PositionalValues, KeywordValues, FlowLabel], Value]:
    def run(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
        items = _iterate(machine, given[0]) if len(given) == 1 else list(given)
        if not items and "default" in named:
            return machine.join(named["default"], label)
        try:
            found = (max if largest else min)(items, key=comparable_data)
        except (TypeError, ValueError) as error:
            raise ProgramError(type(error).__name__, "there is no such item", label) from None
        return machine.join(found, label)

    return run


def _sum(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    total = given[1] if len(given) == 2 else named.get("start", literal_value(0))
    for item in _iterate(machine, given[0]):
        machine.spending.count_steps()
        total = add_values(machine, total, item)
    return machine.join(total, label)


def _type(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    return Scalar(label, type_name(given[0]))


def _dir(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    names = sorted([*list_attributes(given[0]), *list_methods(given[0])]) if given else sorted(machine.names)
    return compute_plain(machine, lambda: names, label)


def _hash(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
    """A number of its own, equal for equal values: Python's differs from run to run."""
    text = repr(dictionary_key(given[0]))
    return Scalar(label, sum((place + 1) * ord(sign) for place, sign in enumerate(text)))


_FUNCTIONS: Mapping[str, Callable[[Machine, PositionalValues, KeywordValues, FlowLabel], Value]] = {
    "abs": _plain_function(abs),
    "all": _any_all(False),
    "any": _any_all(True),
    "bool": lambda machine, given, named, label: Scalar(label, is_truthy(given[0]) if given else False),
    "dir": _dir,
    "divmod": _plain_function(divmod),
    "enumerate": _enumerate,
    "float": _plain_function(float),
    "hash": _hash,
    "int": _plain_function(int),
    "len": _length,
    "list": _sequence_function("list"),
    "max": _min_max(True),
    "min": _min_max(False),
    "print": _print,
    "range": _range,
    "repr": _repr,
    "reversed": _reversed,
    "set": _set,
    "sorted": _sorted,
    "str": _str,
    "sum": _sum,
    "tuple": _sequence_function("tuple"),
    "type": _type,
    "zip": _zip,
}
_MANY = 1_000
_ARGUMENT_COUNTS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(_FUNCTIONS, (1, 1)),
    **dict.fromkeys(("bool", "dir", "float", "list", "set", "str", "tuple"), (0, 1)),
    **dict.fromkeys(("max", "min"), (1, _MANY)),
    **dict.fromkeys(("print", "zip"), (0, _MANY)),
    **dict.fromkeys(("enumerate", "sum"), (1, 2)),
    "divmod": (2, 2),
    "int": (0, 2),
    "range": (1, 3),
}
_KEYWORDS: Mapping[str, tuple[str, ...]] = {
    "enumerate": ("start",),
    "max": ("default",),
    "min": ("default",),
    "print": ("sep", "end", "flush"),
    "sorted": ("reverse",),
    "sum": ("start",),
}
PROVIDED_FUNCTIONS: Mapping[str, FunctionValue] = {
    name: FunctionValue(FROM_USER, name) for name in _FUNCTIONS
}
"""Name -> the value a program finds under it."""
