"""The functions that programs may call, each over labelled values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from baselines.camel.language.failure import ProgramError
from baselines.camel.language.machine import FunctionValue, Machine
from baselines.camel.language.members import list_attributes
from baselines.camel.language.methods import list_methods
from baselines.camel.language.operators import add_values, comparable_data, dictionary_key, compute_plain, build_set, is_truthy
from baselines.camel.language.rendering import to_str, type_name, to_repr
from baselines.flow.label import FROM_USER, FlowLabel, join_labels
from baselines.flow.values import Dictionary, Scalar, Series, Value, literal_value, to_native

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


def _plain_function(function: Callable[..., Any]) -> Callable[[Machine, PositionalValues, KeywordValues, FlowLabel], Value]:
    """A function of plain data: all of its result has the join of all arguments."""

    def run(machine: Machine, given: PositionalValues, named: KeywordValues, label: FlowLabel) -> Value:
        return compute_plain(machine, lambda: function(*(to_native(value) for value in given)), label)

    return run


def _iterate(machine: Machine, value: Value) -> list[Value]:
    from baselines.camel.language.expressions import iterate_value  # expressions call functions

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
    return machine.spending.count_value(Series(holder, "list", tuple(Series(holder, "tuple", row) for row in rows)))


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
PROVIDED_FUNCTIONS: Mapping[str, FunctionValue] = {name: FunctionValue(FROM_USER, name) for name in _FUNCTIONS}
"""Name -> the value a program finds under it."""
