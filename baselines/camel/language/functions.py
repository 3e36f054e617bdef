"""The functions and classes that programs find, and the classes that programs define."""

from __future__ import annotations

import ast
import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, EnumMeta
from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, EmailStr, ValidationError, create_model

from baselines.camel.language import operators
from baselines.camel.language.machine import (
    RAISABLE,
    ClassValue,
    FunctionValue,
    Machine,
    ProgramError,
    make_resource_error,
    make_unsupported_error,
)
from baselines.camel.language.members import list_attributes, list_methods
from baselines.flow.labelled_values import (
    FROM_USER,
    Dictionary,
    FlowLabel,
    Instance,
    Scalar,
    Series,
    SeriesKind,
    Value,
    join_labels,
    make_literal,
    to_native,
    to_value,
)
from baselines.flow.quarantined_model import drop_zones

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
    "NaiveDatetime": Annotated[datetime.datetime, AfterValidator(drop_zones)],
}
_GENERIC: Mapping[str, tuple[Any, int]] = {"list": (list, 1), "set": (set, 1), "dict": (dict, 2)}
_CONSTRUCTED_TYPES = (datetime.datetime, datetime.date, datetime.time, datetime.timedelta)
_MARKERS = ("BaseModel", "FieldInfo", "EmailStr", "NaiveDatetime", "Enum", "timezone", *RAISABLE)
"""Classes of which no object can be made: they stand for themselves only."""
_MOST_FIELDS = 100
CLASSES: Mapping[str, ClassValue] = {
    **{kind.__name__: ClassValue(FROM_USER, kind.__name__, kind) for kind in _CONSTRUCTED_TYPES},
    **{name: ClassValue(FROM_USER, name, type(name, (), {})) for name in _MARKERS},
}
"""The classes that there can be."""
_SUITES_WITH_DATES = ("travel", "workspace")
_DATE_NAMES = frozenset({*(kind.__name__ for kind in _CONSTRUCTED_TYPES), "timezone", "NaiveDatetime"})


def select_classes(suite: str) -> Mapping[str, ClassValue]:
    """The classes that programs of a suite find; in most suites `date` and `time` are free for variables."""
    without = () if suite in _SUITES_WITH_DATES else _DATE_NAMES
    return {name: of for name, of in CLASSES.items() if name not in without}


def define_class(node: ast.ClassDef, machine: Machine) -> Value:
    """Define a class of the program: names and types of fields, nothing else.

    Raises:
        ProgramError: If it is anything more, or is defined already.
    """
    if machine.names.get(node.name) is not None or node.name in machine.provided:
        text = f"the class {node.name} exists already. Use it, or choose another name."
        raise ProgramError("TypeError", text).place_at_node(node)
    bases = [base.id if isinstance(base, ast.Name) else "" for base in node.bases]
    marks = [mark.id if isinstance(mark, ast.Name) else "" for mark in node.decorator_list]
    if node.keywords or (bases, marks) not in ((["BaseModel"], []), ([], ["dataclass"])):
        raise make_unsupported_error("A class that is neither a BaseModel nor a dataclass is").place_at_node(
            node
        )
    fields = {}
    for line in node.body:
        if _is_docstring(line) or isinstance(line, ast.Pass):
            continue
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name) or line.value:
            raise make_unsupported_error("Anything but lines of `name: type` in a class is").place_at_node(
                line
            )
        name = line.target.id
        # Names that mean something to pydantic would change what the class is.
        if name.startswith(("_", "model_")) or hasattr(BaseModel, name):
            raise ProgramError("NameError", f"a field cannot be called '{name}'").place_at_node(line)
        fields[name] = (read_annotation(line.annotation, machine), ...)
    machine.classes += 1
    if machine.classes > machine.spending.bounds.classes or len(fields) > _MOST_FIELDS:
        raise make_resource_error("memory")
    defined = create_model(node.name, __config__=ConfigDict(extra="ignore"), **fields)  # type: ignore[call-overload]
    value = ClassValue(FROM_USER, node.name, defined)
    machine.bind(node.name, value)
    return value


def read_annotation(node: ast.expr, machine: Machine) -> Any:
    """Read the type that an annotation names.

    Only names of the tables, classes of the program or its surroundings, `list[...]`, `set[...]`,
    `dict[..., ...]`, `Literal[...]` of texts, and `|` are read; nothing is evaluated.
    """
    match node:
        case ast.Name(id=name):
            return _find_named_type(name, machine, node)
        case ast.Constant(value=None):
            return None
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return read_annotation(left, machine) | read_annotation(right, machine)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inside):
            return _read_literal_type(inside, node)
        case ast.Subscript(value=ast.Name(id=name), slice=inside) if name in _GENERIC:
            of, count = _GENERIC[name]
            inner = inside.elts if isinstance(inside, ast.Tuple) else [inside]
            if len(inner) == count:
                return of[tuple(read_annotation(item, machine) for item in inner)]
    raise make_unsupported_error("Such an annotation is").place_at_node(node)


def _find_named_type(name: str, machine: Machine, node: ast.expr) -> Any:
    if name in _SCALARS and (name not in _DATE_NAMES or name in machine.provided):
        return _SCALARS[name]
    if name in _GENERIC:
        return _GENERIC[name][0]
    try:
        value = machine.find_value(name)
    except ProgramError as error:
        raise error.place_at_node(node) from None
    if isinstance(value, ClassValue) and (issubclass(value.of, BaseModel) or isinstance(value.of, EnumMeta)):
        return value.of
    raise make_unsupported_error(f"'{name}' as an annotation is").place_at_node(node)


def _read_literal_type(inside: ast.expr, node: ast.expr) -> Any:
    nodes = inside.elts if isinstance(inside, ast.Tuple) else [inside]
    values = [item.value for item in nodes if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    if not values or len(values) != len(nodes):
        raise make_unsupported_error("Such a Literal is").place_at_node(node)
    return Literal[tuple(values)]


def _is_docstring(line: ast.stmt) -> bool:
    value = line.value if isinstance(line, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def construct_instance(
    machine: Machine, name: str, of: type, given: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    """Make an object by calling a class. Each field keeps the label of what was given for it."""
    label = join_labels([FROM_USER, *(value.full for value in (*given, *named.values()))])
    if of in _CONSTRUCTED_TYPES:
        positional = [to_native(value) for value in given]
        keywords = {key: to_native(value) for key, value in named.items()}
        return operators.compute_plain(machine, lambda: of(*positional, **keywords), label)
    if isinstance(of, EnumMeta) and len(given) == 1:
        return operators.compute_plain(machine, lambda: of(to_native(given[0])), label)
    if not issubclass(of, BaseModel) or given:
        raise ProgramError("TypeError", f"{name} cannot be called like this")
    try:
        native = of.model_validate({key: to_native(value) for key, value in named.items()})
    except ValidationError as error:
        text = f"{error.error_count()} fields of {name} do not fit"
        raise ProgramError("ValidationError", text, label) from None
    except operators.PYTHON_ERRORS as error:
        raise ProgramError(type(error).__name__, "the object cannot be made", label) from None
    fields = {
        field: to_value(getattr(native, field), named[field].full if field in named else label)
        for field in of.model_fields
    }
    return machine.spending.count_value(Instance(FROM_USER, of, fields))


def build_class_values(types: Sequence[type]) -> dict[str, ClassValue]:
    """Give programs the classes of a suite's results."""
    return {of.__name__: ClassValue(FROM_USER, of.__name__, of) for of in types if of is not Enum}


@dataclass(frozen=True)
class _Arguments:
    machine: Machine
    given: Sequence[Value]
    named: Mapping[str, Value]
    label: FlowLabel
    """The join of all of them."""

    @property
    def holder(self) -> FlowLabel:
        return self.given[0].label if self.given else FROM_USER

    def list_items(self) -> list[Value]:
        return operators.iterate_value(self.given[0], self.machine) if self.given else []

    def count(self, value: Value) -> Value:
        return self.machine.spending.count_value(value)

    def compute(self, function: Callable[..., Any]) -> Value:
        """Apply a function of plain data: all of its result has the join of all arguments."""
        return operators.compute_plain(
            self.machine, lambda: function(*map(to_native, self.given)), self.label
        )


@dataclass(frozen=True)
class _Provided:
    run: Callable[[_Arguments], Value]
    least: int = 1
    most: int = 1
    """How many positional arguments it takes."""
    keywords: tuple[str, ...] = ()


def call_function(machine: Machine, name: str, given: Sequence[Value], named: Mapping[str, Value]) -> Value:
    """Run a provided function."""
    function = _FUNCTIONS[name]
    fits = function.least <= len(given) <= function.most and set(named) <= set(function.keywords)
    if not fits:
        raise ProgramError("TypeError", f"{name} does not take these arguments")
    label = join_labels([FROM_USER, *(value.full for value in (*given, *named.values()))])
    return function.run(_Arguments(machine, given, named, label))


def _write(to_text: Callable[[Value], str]) -> Callable[[_Arguments], Value]:
    def run(args: _Arguments) -> Value:
        args.machine.spending.count_steps(sum(value.count for value in args.given))
        return args.count(Scalar(args.label, "".join(map(to_text, args.given))))

    return run


def _print(args: _Arguments) -> Value:
    text = "".join(operators.to_str(value) for value in (*args.given, *args.named.values()))
    args.machine.printed.append(args.count(Scalar(args.label, text)))
    return Scalar(FROM_USER, None)


def _call_len(args: _Arguments) -> Value:
    match args.given[0]:
        case Scalar(raw=str() as raw):
            return Scalar(args.label, len(raw))
        case Series(items=parts) | Dictionary(entries=parts):
            return Scalar(args.label, len(parts))
    raise ProgramError(
        "TypeError", f"object of type '{operators.write_type_name(args.given[0])}' has no len()", args.label
    )


def _make_series_function(kind: SeriesKind) -> Callable[[_Arguments], Value]:
    # Items keep their labels.
    return lambda args: args.count(Series(args.holder, kind, tuple(args.list_items())))


def _enumerate(args: _Arguments) -> Value:
    start = args.given[1] if len(args.given) == 2 else args.named.get("start", make_literal(0))
    first = to_native(start)
    if not isinstance(first, int):
        raise ProgramError("TypeError", "start is no whole number", args.label)
    holder = args.holder | start.full
    pairs = [
        Series(holder, "tuple", (Scalar(holder, number), item))
        for number, item in enumerate(args.list_items(), first)
    ]
    args.machine.spending.count_steps(2 * len(pairs))
    return args.count(Series(holder, "list", tuple(pairs)))


def _zip(args: _Arguments) -> Value:
    holder = join_labels([FROM_USER, *(value.label for value in args.given)])
    rows = list(zip(*(operators.iterate_value(value, args.machine) for value in args.given), strict=False))
    args.machine.spending.count_steps(len(rows) * len(args.given))
    return args.count(Series(holder, "list", tuple(Series(holder, "tuple", row) for row in rows)))


def _call_range(args: _Arguments) -> Value:
    def count(*bounds: Any) -> list[int]:
        numbers = range(*bounds)
        args.machine.spending.count_steps(len(numbers))
        return list(islice(numbers, args.machine.spending.bounds.steps))

    return args.compute(count)


def _call_sorted(args: _Arguments) -> Value:
    # Where an item comes to stand depends on all items.
    items = [args.machine.join(item, args.label) for item in args.list_items()]
    key = args.named.get("key", make_literal(None))
    if isinstance(key, FunctionValue):
        places = [call_function(args.machine, key.name, [item], {}) for item in items]
    elif isinstance(key, Scalar) and key.raw is None:
        places = items
    else:
        raise ProgramError(
            "TypeError", f"'{operators.write_type_name(key)}' object is not a provided function", args.label
        )
    reverse = operators.is_truthy(args.named["reverse"]) if "reverse" in args.named else False
    try:
        by_place = sorted(
            zip(places, items, strict=True),
            key=lambda pair: operators.make_comparable_data(pair[0]),
            reverse=reverse,
        )
    except TypeError:
        raise ProgramError("TypeError", "the items cannot be ordered", args.label) from None
    return args.count(Series(args.label, "list", tuple(item for _, item in by_place)))


def _select(choose: Callable[..., Value]) -> Callable[[_Arguments], Value]:
    """`min` and `max`."""

    def run(args: _Arguments) -> Value:
        items = args.list_items() if len(args.given) == 1 else list(args.given)
        if not items and "default" in args.named:
            return args.machine.join(args.named["default"], args.label)
        try:
            chosen = choose(items, key=operators.make_comparable_data)
        except (TypeError, ValueError) as error:
            raise ProgramError(type(error).__name__, "there is no such item", args.label) from None
        return args.machine.join(chosen, args.label)

    return run


def _sum(args: _Arguments) -> Value:
    total = args.given[1] if len(args.given) == 2 else args.named.get("start", make_literal(0))
    for item in args.list_items():
        args.machine.spending.count_steps()
        if isinstance(item, Scalar) and isinstance(item.raw, str):
            raise ProgramError("TypeError", "texts are joined with ''.join, not sum", item.full)
        total = operators.apply_binary(args.machine, ast.Add(), total, item)
    return args.machine.join(total, args.label)


def _call_dir(args: _Arguments) -> Value:
    names = (
        [*list_attributes(args.given[0]), *list_methods(args.given[0])] if args.given else args.machine.names
    )
    return operators.compute_plain(args.machine, lambda: sorted(names), args.label)


def _hash(args: _Arguments) -> Value:
    # A number of its own, equal for equal values: Python's differs from run to run.
    text = repr(operators.make_dictionary_key(args.given[0]))
    return Scalar(args.label, sum(number * ord(sign) for number, sign in enumerate(text, 1)))


_MANY = 1_000
_FUNCTIONS: Mapping[str, _Provided] = {
    "abs": _Provided(lambda args: args.compute(abs)),
    "all": _Provided(lambda args: Scalar(args.label, all(map(operators.is_truthy, args.list_items())))),
    "any": _Provided(lambda args: Scalar(args.label, any(map(operators.is_truthy, args.list_items())))),
    "bool": _Provided(lambda args: Scalar(args.label, any(map(operators.is_truthy, args.given))), 0),
    "dir": _Provided(_call_dir, 0),
    "divmod": _Provided(lambda args: args.compute(divmod), 2, 2),
    "enumerate": _Provided(_enumerate, 1, 2, ("start",)),
    "float": _Provided(lambda args: args.compute(float), 0),
    "hash": _Provided(_hash),
    "int": _Provided(lambda args: args.compute(int), 0, 2),
    "len": _Provided(_call_len),
    "list": _Provided(_make_series_function("list"), 0),
    "max": _Provided(_select(max), 1, _MANY, ("default",)),
    "min": _Provided(_select(min), 1, _MANY, ("default",)),
    "print": _Provided(_print, 0, _MANY, ("sep", "end", "flush")),
    "range": _Provided(_call_range, 1, 3),
    "repr": _Provided(_write(operators.to_repr)),
    "reversed": _Provided(
        lambda args: args.count(Series(args.holder, "list", tuple(args.list_items()[::-1])))
    ),
    "set": _Provided(lambda args: args.count(operators.build_set(args.list_items(), args.label)), 0),
    "sorted": _Provided(_call_sorted, keywords=("key", "reverse")),
    "str": _Provided(_write(operators.to_str), 0),
    "sum": _Provided(_sum, 1, 2, ("start",)),
    "tuple": _Provided(_make_series_function("tuple"), 0),
    "type": _Provided(lambda args: Scalar(args.label, operators.write_type_name(args.given[0]))),
    "zip": _Provided(_zip, 0, _MANY),
}
PROVIDED_FUNCTIONS: Mapping[str, FunctionValue] = {
    name: FunctionValue(FROM_USER, name) for name in _FUNCTIONS
}
"""Name -> the value a program finds under it."""
