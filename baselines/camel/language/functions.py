"""The functions that programs may call, each over labelled values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any

from baselines.camel.language.failure import ProgramError
from baselines.camel.language.machine import Function, Machine
from baselines.camel.language.members import attributes
from baselines.camel.language.methods import methods
from baselines.camel.language.operators import binary_sum, comparable, key_of, made, set_of, truth
from baselines.camel.language.rendering import shown, type_name, written
from baselines.flow.label import FROM_USER, FlowLabel, joined
from baselines.flow.values import Dictionary, Scalar, Series, Value, literal, native

Given = Sequence[Value]
Named = Mapping[str, Value]


def call_function(machine: Machine, name: str, given: Given, named: Named) -> Value:
    """The result of a provided function.

    Raises:
        ProgramError: If it fails, or does not take such arguments.
    """
    allowed = _KEYWORDS.get(name, ())
    unknown = [key for key in named if key not in allowed]
    low, high = _COUNTS[name]
    if unknown or not low <= len(given) <= high:
        raise ProgramError("TypeError", f"{name} does not take these arguments")
    label = joined([FROM_USER, *(value.full for value in (*given, *named.values()))])
    return _FUNCTIONS[name](machine, given, named, label)


def _plain(function: Callable[..., Any]) -> Callable[[Machine, Given, Named, FlowLabel], Value]:
    """A function of plain data: all of its result has the join of all arguments."""

    def run(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
        return made(machine, lambda: function(*(native(value) for value in given)), label)

    return run


def _items(machine: Machine, value: Value) -> list[Value]:
    from baselines.camel.language.expressions import iterated  # expressions call functions

    return iterated(value, machine)


def _text(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    if given:
        machine.spending.step(given[0].count)
    return machine.spending.made(Scalar(label, shown(given[0]) if given else ""))


def _written(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    machine.spending.step(given[0].count)
    return machine.spending.made(Scalar(label, written(given[0])))


def _print(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    text = "".join(shown(value) for value in (*given, *named.values()))
    machine.printed.append(machine.spending.made(Scalar(label, text)))
    return Scalar(FROM_USER, None)


def _length(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    value = given[0]
    if isinstance(value, Scalar) and isinstance(value.raw, str):
        return Scalar(label, len(value.raw))
    if isinstance(value, Series | Dictionary):
        return Scalar(label, len(value.items if isinstance(value, Series) else value.entries))
    raise ProgramError("TypeError", f"object of type '{type_name(value)}' has no len()", label)


def _any_all(wanted: bool) -> Callable[[Machine, Given, Named, FlowLabel], Value]:
    def run(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
        found = any(truth(item) is wanted for item in _items(machine, given[0]))
        return Scalar(label, found is wanted)

    return run


def _series(kind: Any) -> Callable[[Machine, Given, Named, FlowLabel], Value]:
    """`list` and `tuple`: items keep their labels."""

    def run(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
        items = tuple(_items(machine, given[0])) if given else ()
        return machine.spending.made(Series(given[0].label if given else FROM_USER, kind, items))

    return run


def _set(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    return machine.spending.made(set_of(_items(machine, given[0]) if given else (), label))


def _enumerate(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    start = given[1] if len(given) == 2 else named.get("start", literal(0))
    first = native(start)
    if not isinstance(first, int):
        raise ProgramError("TypeError", "start is no whole number", label)
    holder = given[0].label | start.full
    pairs = [
        Series(holder, "tuple", (Scalar(holder, first + place), item))
        for place, item in enumerate(_items(machine, given[0]))
    ]
    machine.spending.step(2 * len(pairs))
    return machine.spending.made(Series(holder, "list", tuple(pairs)))


def _zip(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    holder = joined([FROM_USER, *(value.label for value in given)])
    rows = list(zip(*(_items(machine, value) for value in given), strict=False))
    machine.spending.step(len(rows) * len(given))
    return machine.spending.made(Series(holder, "list", tuple(Series(holder, "tuple", row) for row in rows)))


def _reversed(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    items = tuple(reversed(_items(machine, given[0])))
    return machine.spending.made(Series(given[0].label, "list", items))


def _range(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    def count() -> list[int]:
        numbers = range(*(native(value) for value in given))
        machine.spending.step(len(numbers))
        return list(islice(numbers, machine.spending.bounds.steps))

    return made(machine, count, label)


def _sorted(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    """Where an item comes to stand depends on all items."""
    items = [machine.join(item, label) for item in _items(machine, given[0])]
    reverse = truth(named["reverse"]) if "reverse" in named else False
    try:
        ordered = sorted(items, key=comparable, reverse=reverse)
    except TypeError:
        raise ProgramError("TypeError", "the items cannot be ordered", label) from None
    return machine.spending.made(Series(label, "list", tuple(ordered)))


def _extreme(largest: bool) -> Callable[[Machine, Given, Named, FlowLabel], Value]:
    def run(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
        items = _items(machine, given[0]) if len(given) == 1 else list(given)
        if not items and "default" in named:
            return machine.join(named["default"], label)
        try:
            found = (max if largest else min)(items, key=comparable)
        except (TypeError, ValueError) as error:
            raise ProgramError(type(error).__name__, "there is no such item", label) from None
        return machine.join(found, label)

    return run


def _sum(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    total = given[1] if len(given) == 2 else named.get("start", literal(0))
    for item in _items(machine, given[0]):
        machine.spending.step()
        total = binary_sum(machine, total, item)
    return machine.join(total, label)


def _type(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    return Scalar(label, type_name(given[0]))


def _dir(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    names = sorted([*attributes(given[0]), *methods(given[0])]) if given else sorted(machine.names)
    return made(machine, lambda: names, label)


def _hash(machine: Machine, given: Given, named: Named, label: FlowLabel) -> Value:
    """A number of its own, equal for equal values: Python's differs from run to run."""
    text = repr(key_of(given[0]))
    return Scalar(label, sum((place + 1) * ord(sign) for place, sign in enumerate(text)))


_FUNCTIONS: Mapping[str, Callable[[Machine, Given, Named, FlowLabel], Value]] = {
    "abs": _plain(abs),
    "all": _any_all(False),
    "any": _any_all(True),
    "bool": lambda machine, given, named, label: Scalar(label, truth(given[0]) if given else False),
    "dir": _dir,
    "divmod": _plain(divmod),
    "enumerate": _enumerate,
    "float": _plain(float),
    "hash": _hash,
    "int": _plain(int),
    "len": _length,
    "list": _series("list"),
    "max": _extreme(True),
    "min": _extreme(False),
    "print": _print,
    "range": _range,
    "repr": _written,
    "reversed": _reversed,
    "set": _set,
    "sorted": _sorted,
    "str": _text,
    "sum": _sum,
    "tuple": _series("tuple"),
    "type": _type,
    "zip": _zip,
}
_MANY = 1_000
_COUNTS: Mapping[str, tuple[int, int]] = {
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
FUNCTIONS: Mapping[str, Function] = {name: Function(FROM_USER, name) for name in _FUNCTIONS}
"""Name -> the value a program finds under it."""
