"""Expressions: one function for each kind of node, found by the node's class."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from baselines.camel.language.calls import call
from baselines.camel.language.failure import ProgramError, refused
from baselines.camel.language.formatting import formatted, spec_allowed
from baselines.camel.language.machine import Machine
from baselines.camel.language.members import attribute, item
from baselines.camel.language.operators import binary, compared, key_of, set_of, truth, unary
from baselines.camel.language.rendering import shown, type_name, written
from baselines.flow.label import FROM_USER, FlowLabel
from baselines.flow.values import Dictionary, Scalar, Series, Value, literal

_CONSTANTS = (str, bool, int, float, type(None))
_CONVERSIONS: dict[int, Callable[[Value], str]] = {
    ord("s"): shown,
    ord("r"): written,
    ord("a"): lambda value: ascii(written(value))[1:-1],
}
REFUSED: dict[type[ast.AST], str] = {
    ast.GeneratorExp: "Generator expressions are",
    ast.Lambda: "Lambda functions are",
    ast.Await: "Await is",
    ast.Yield: "Yield is",
    ast.YieldFrom: "Yield is",
    ast.Slice: "Slices are",
    ast.Starred: "Stars are here",
}


def evaluate(node: ast.AST, machine: Machine) -> Value:
    """The value of an expression.

    Raises:
        ProgramError: If it has none; placed at the innermost node.
        CallDenied: If a policy does not allow a call in it.
    """
    return handled(node, machine, _HANDLERS, REFUSED)


def handled(
    node: ast.AST,
    machine: Machine,
    handlers: Mapping[type[Any], Callable[[Any, Machine], Value]],
    absent: Mapping[type[ast.AST], str],
) -> Value:
    """What the handler of a node's class makes of it; `absent` has words for classes that have none."""
    machine.spending.step()
    try:
        if type(node) not in handlers:
            raise refused(absent.get(type(node), f"{type(node).__name__} is"))
        return handlers[type(node)](node, machine)
    except ProgramError as error:
        raise error.at(node) from None


def _constant(node: ast.Constant, machine: Machine) -> Value:
    if type(node.value) not in _CONSTANTS:
        raise refused(f"A constant of type {type(node.value).__name__} is")
    if type(node.value) is int:
        machine.spending.number(node.value.bit_length())
    return literal(node.value)


def _name(node: ast.Name, machine: Machine) -> Value:
    return machine.lookup(node.id)


def _series(node: ast.List | ast.Tuple | ast.Set, machine: Machine) -> Value:
    items = list(spread(node.elts, machine))
    if isinstance(node, ast.Set):
        return machine.spending.made(set_of(items, FROM_USER))
    return machine.spending.made(
        Series(FROM_USER, "list" if isinstance(node, ast.List) else "tuple", tuple(items))
    )


def spread(nodes: Sequence[ast.expr], machine: Machine) -> Iterator[Value]:
    """The values of a display or of positional arguments, starred ones item by item."""
    for node in nodes:
        if isinstance(node, ast.Starred):
            yield from iterated(evaluate(node.value, machine), machine)
        else:
            yield evaluate(node, machine)


def _dictionary(node: ast.Dict, machine: Machine) -> Value:
    entries: dict[Any, tuple[Value, Value]] = {}
    label = FROM_USER
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        if key_node is None:
            merged = evaluate(value_node, machine)
            if not isinstance(merged, Dictionary):
                raise ProgramError("TypeError", f"'{type_name(merged)}' is not a mapping", merged.full)
            entries.update(merged.entries)
            label = label | merged.label
            continue
        key = evaluate(key_node, machine)
        entries[key_of(key)] = (key, evaluate(value_node, machine))
    return machine.spending.made(Dictionary(label, entries))


def _attribute(node: ast.Attribute, machine: Machine) -> Value:
    return attribute(machine, evaluate(node.value, machine), node.attr)


def _subscript(node: ast.Subscript, machine: Machine) -> Value:
    holder = evaluate(node.value, machine)
    return item(machine, holder, evaluate(node.slice, machine))


def _binary(node: ast.BinOp, machine: Machine) -> Value:
    if type(node.op) is ast.MatMult:
        raise refused("Matrix multiplication is")
    left = evaluate(node.left, machine)
    return binary(machine, node.op, left, evaluate(node.right, machine))


def _unary(node: ast.UnaryOp, machine: Machine) -> Value:
    return unary(machine, node.op, evaluate(node.operand, machine))


def _boolean(node: ast.BoolOp, machine: Machine) -> Value:
    """The operand that decides; it depends on those before it, and not on those never looked at."""
    ends_at = isinstance(node.op, ast.Or)
    value = evaluate(node.values[0], machine)
    label = value.full
    outside = len(machine.controls)
    for operand in node.values[1:]:
        if truth(value) is ends_at:
            break
        machine.controls.append(value.full)
        value = evaluate(operand, machine)
        label = label | value.full
    del machine.controls[outside:]
    return machine.join(value, label)


def _comparison(node: ast.Compare, machine: Machine) -> Value:
    if len(node.ops) != 1:
        raise refused("Chained comparisons are")
    left = evaluate(node.left, machine)
    return compared(machine, node.ops[0], left, evaluate(node.comparators[0], machine))


def _choice(node: ast.IfExp, machine: Machine) -> Value:
    test = evaluate(node.test, machine)
    machine.controls.append(test.full)
    value = evaluate(node.body if truth(test) else node.orelse, machine)
    machine.controls.pop()
    return machine.join(value, test.full)


def _walrus(node: ast.NamedExpr, machine: Machine) -> Value:
    value = evaluate(node.value, machine)
    machine.bind(node.target.id, value)
    return value


def _joined_text(node: ast.JoinedStr, machine: Machine) -> Value:
    pieces = [evaluate(part, machine) for part in node.values]
    label = FROM_USER
    for piece in pieces:
        label = label | piece.full
    machine.spending.text(sum(piece.size for piece in pieces))
    return machine.spending.made(Scalar(label, "".join(shown(piece) for piece in pieces)))


def _formatted_value(node: ast.FormattedValue, machine: Machine) -> Value:
    value = evaluate(node.value, machine)
    label, spec = value.full, ""
    if node.format_spec is not None:
        wanted = evaluate(node.format_spec, machine)
        label, spec = label | wanted.full, shown(wanted)
        spec_allowed(spec, machine.spending.bounds.width)
    if node.conversion in _CONVERSIONS:
        value = Scalar(value.full, _CONVERSIONS[node.conversion](value))
    return machine.spending.made(Scalar(label, formatted(value, spec, label)))


def _call(node: ast.Call, machine: Machine) -> Value:
    callee = evaluate(node.func, machine)
    positional = list(spread(node.args, machine))
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        value = evaluate(keyword.value, machine)
        given = {keyword.arg: value} if keyword.arg is not None else _named(value)
        for name in given:
            if name in keywords:
                raise ProgramError("TypeError", f"argument '{name}' is given twice")
        keywords.update(given)
    return call(machine, callee, positional, keywords)


def _named(value: Value) -> dict[str, Value]:
    if not isinstance(value, Dictionary) or not all(isinstance(key, str) for key in value.entries):
        raise ProgramError("TypeError", "** takes a dict with texts as keys", value.full)
    return {str(key): held for key, (_, held) in value.entries.items()}


def _comprehension(node: ast.ListComp | ast.SetComp, machine: Machine) -> Value:
    found: list[Value] = []
    label = _each(node.generators, machine, lambda: found.append(evaluate(node.elt, machine)), found)
    if isinstance(node, ast.SetComp):
        return machine.spending.made(set_of(found, label))
    return machine.spending.made(Series(label, "list", tuple(found)))


def _dict_comprehension(node: ast.DictComp, machine: Machine) -> Value:
    pairs: list[Value] = []

    def add() -> None:
        key = evaluate(node.key, machine)
        pairs.append(Series(FROM_USER, "tuple", (key, evaluate(node.value, machine))))

    label = _each(node.generators, machine, add, pairs)
    entries = {}
    for pair in pairs:
        key, value = pair.parts()
        entries[key_of(key)] = (key, value)
    return machine.spending.made(Dictionary(label, entries))


def _each(
    generators: Sequence[ast.comprehension], machine: Machine, add: Callable[[], None], found: list[Value]
) -> FlowLabel:
    """Run a comprehension's loops; its variables do not outlive it.

    What is found depends on the item it was made from, and how much is found on iterables and filters, which
    is the label that is returned.
    """
    inside = _targets(generators)
    before = {name: machine.names[name] for name in inside if name in machine.names}
    try:
        return _loop(generators, machine, add, found)
    finally:
        for name in inside:
            machine.names.pop(name, None)
        machine.names.update(before)


def _loop(
    generators: Sequence[ast.comprehension], machine: Machine, add: Callable[[], None], found: list[Value]
) -> FlowLabel:
    if not generators:
        add()
        return FROM_USER
    first, rest = generators[0], generators[1:]
    if first.is_async:
        raise refused("Async is")
    iterable = evaluate(first.iter, machine)
    label = FROM_USER | iterable.label
    machine.controls.append(iterable.full)
    for each in iterated(iterable, machine):
        machine.spending.step()
        bind_target(first.target, each, machine)
        tests = [evaluate(test, machine) for test in first.ifs]
        for test in tests:
            label = label | test.full
        if not all(truth(test) for test in tests):
            continue
        machine.controls.extend(test.full for test in tests)
        start = len(found)
        label = label | _loop(rest, machine, add, found)
        found[start:] = [machine.join(one, each.full) for one in found[start:]]
        del machine.controls[len(machine.controls) - len(tests) :]
    machine.controls.pop()
    return label


def _targets(generators: Sequence[ast.comprehension]) -> set[str]:
    nodes = [node for one in generators for node in ast.walk(one.target)]
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def iterated(value: Value, machine: Machine) -> list[Value]:
    """The items of a value, as a loop takes them.

    Raises:
        ProgramError: If it cannot be iterated over.
    """
    if isinstance(value, Series):
        items = list(value.items)
    elif isinstance(value, Dictionary):
        items = [key for key, _ in value.entries.values()]
    elif isinstance(value, Scalar) and isinstance(value.raw, str):
        machine.spending.step(len(value.raw))
        return [Scalar(value.label, character) for character in value.raw]
    else:
        raise ProgramError("TypeError", f"'{type_name(value)}' object is not iterable", value.full)
    return [machine.from_container(one, value) for one in items]


def bind_target(target: ast.expr, value: Value, machine: Machine) -> None:
    """Assign to a name, or to a tuple or list of names.

    Raises:
        ProgramError: If the numbers differ, or the target is anything else.
    """
    if isinstance(target, ast.Name):
        machine.bind(target.id, value)
        return
    if not isinstance(target, ast.Tuple | ast.List):
        raise refused(f"{type(target).__name__} as a target is here").at(target)
    if any(isinstance(one, ast.Starred) for one in target.elts):
        raise refused("Stars in a target are").at(target)
    items = iterated(value, machine)
    if len(items) != len(target.elts):
        text = f"{len(target.elts)} values are expected, and there are {len(items)}"
        raise ProgramError("ValueError", text, value.full).at(target)
    for one, item_ in zip(target.elts, items, strict=True):
        bind_target(one, item_, machine)


_HANDLERS: dict[type[ast.AST], Callable[[Any, Machine], Value]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.List: _series,
    ast.Tuple: _series,
    ast.Set: _series,
    ast.Dict: _dictionary,
    ast.Attribute: _attribute,
    ast.Subscript: _subscript,
    ast.BinOp: _binary,
    ast.UnaryOp: _unary,
    ast.BoolOp: _boolean,
    ast.Compare: _comparison,
    ast.IfExp: _choice,
    ast.NamedExpr: _walrus,
    ast.JoinedStr: _joined_text,
    ast.FormattedValue: _formatted_value,
    ast.Call: _call,
    ast.ListComp: _comprehension,
    ast.SetComp: _comprehension,
    ast.DictComp: _dict_comprehension,
}
