"""Expressions of a program and the calls in them, evaluated node by node."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from baselines.camel.language import operators
from baselines.camel.language.functions import call_function, construct_instance
from baselines.camel.language.machine import (
    RAISABLE,
    ClassValue,
    ErrorValue,
    FunctionValue,
    Machine,
    MethodValue,
    ProgramError,
    ToolValue,
    make_unsupported_error,
)
from baselines.camel.language.members import call_method, get_attribute, get_item
from baselines.flow.labelled_values import (
    FROM_USER,
    Dictionary,
    FlowLabel,
    Scalar,
    Series,
    Value,
    join_labels,
    label_from_tool,
    make_literal,
)


def call_value(machine: Machine, callee: Value, given: Sequence[Value], named: Mapping[str, Value]) -> Value:
    """The result of a call.

    Raises:
        ProgramError: If it fails. Whatever is called, the text of the error is not trusted.
        CallDenied: If it is a tool that a policy does not allow.
    """
    try:
        return _dispatch_call(machine, callee, given, named)
    except ProgramError as error:
        label = join_labels([callee.full, *(value.full for value in (*given, *named.values()))])
        error.label = error.label | label | label_from_tool(getattr(callee, "name", "call"))
        raise


def _dispatch_call(
    machine: Machine, callee: Value, given: Sequence[Value], named: Mapping[str, Value]
) -> Value:
    match callee:
        case ToolValue():
            arguments = bind_tool_arguments(callee, given, named)
            with machine.spending.pause_clock():
                result = machine.world.call(callee.name, arguments, machine.control)
            known = join_labels(value.full for value in arguments.values())
            if callee.reads and machine.strict:
                machine.lasting = machine.lasting | known
            return machine.spending.count_value(machine.join(result, known))
        case FunctionValue(name=name):
            return call_function(machine, name, given, named)
        case MethodValue(name=name, receiver=receiver) if receiver is not None:
            return call_method(machine, receiver, name, given, named)
        case ClassValue(name=name) if name in RAISABLE:
            if named or len(given) > 1:
                raise ProgramError("TypeError", f"{name} takes one text")
            text = given[0] if given else None
            return ErrorValue(FROM_USER if text is None else text.full, name, text)
        case ClassValue(name=name, of=of):
            return construct_instance(machine, name, of, given, named)
    raise ProgramError("TypeError", f"'{operators.write_type_name(callee)}' object is not callable")


def bind_tool_arguments(
    tool: ToolValue, given: Sequence[Value], named: Mapping[str, Value]
) -> dict[str, Value]:
    """The arguments of a tool by name."""
    if len(given) > len(tool.parameters):
        raise ProgramError("TypeError", f"{tool.name} takes {len(tool.parameters)} arguments")
    arguments = dict(zip(tool.parameters, given, strict=False))
    for name, value in named.items():
        if name in arguments or name not in tool.parameters:
            raise ProgramError("TypeError", f"{tool.name} has no free argument '{name[:60]}'")
        arguments[name] = value
    return arguments


_CONSTANTS = (str, bool, int, float, type(None))
_CONVERSIONS: dict[int, Callable[[Value], str]] = {
    ord("s"): operators.to_str,
    ord("r"): operators.to_repr,
    ord("a"): lambda value: ascii(operators.to_repr(value))[1:-1],
}


def evaluate_node(node: ast.AST, machine: Machine) -> Value:
    """The value of an expression.

    Raises:
        ProgramError: If it has none; placed at the innermost node.
        CallDenied: If a policy does not allow a call in it.
    """
    return dispatch_node(node, machine, _HANDLERS)


def dispatch_node(
    node: ast.AST,
    machine: Machine,
    handlers: Mapping[type[Any], Callable[[Any, Machine], Value]],
) -> Value:
    """Apply the handler of a node's class."""
    machine.spending.count_steps()
    try:
        if type(node) not in handlers:
            raise make_unsupported_error(f"{type(node).__name__} is")
        return handlers[type(node)](node, machine)
    except ProgramError as error:
        raise error.place_at_node(node) from None


def _evaluate_constant(node: ast.Constant, machine: Machine) -> Value:
    if type(node.value) not in _CONSTANTS:
        raise make_unsupported_error(f"A constant of type {type(node.value).__name__} is")
    if type(node.value) is int:
        machine.spending.check_number_bits(node.value.bit_length())
    return make_literal(node.value)


def _evaluate_series(node: ast.List | ast.Tuple | ast.Set, machine: Machine) -> Value:
    items = list(spread_values(node.elts, machine))
    if isinstance(node, ast.Set):
        return machine.spending.count_value(operators.build_set(items, FROM_USER))
    return machine.spending.count_value(
        Series(FROM_USER, "list" if isinstance(node, ast.List) else "tuple", tuple(items))
    )


def spread_values(nodes: Sequence[ast.expr], machine: Machine) -> Iterator[Value]:
    """The values of a display or of positional arguments, starred ones item by item."""
    for node in nodes:
        if isinstance(node, ast.Starred):
            yield from operators.iterate_value(evaluate_node(node.value, machine), machine)
        else:
            yield evaluate_node(node, machine)


def _evaluate_dictionary(node: ast.Dict, machine: Machine) -> Value:
    entries: dict[Any, tuple[Value, Value]] = {}
    label = FROM_USER
    for key_node, value_node in zip(node.keys, node.values, strict=True):
        if key_node is None:
            merged = evaluate_node(value_node, machine)
            if not isinstance(merged, Dictionary):
                raise ProgramError(
                    "TypeError", f"'{operators.write_type_name(merged)}' is not a mapping", merged.full
                )
            entries.update(merged.entries)
            label = label | merged.label
            continue
        key = evaluate_node(key_node, machine)
        entries[operators.make_dictionary_key(key)] = (key, evaluate_node(value_node, machine))
    return machine.spending.count_value(Dictionary(label, entries))


def _evaluate_subscript(node: ast.Subscript, machine: Machine) -> Value:
    holder = evaluate_node(node.value, machine)
    return get_item(machine, holder, evaluate_node(node.slice, machine))


def _evaluate_binary(node: ast.BinOp, machine: Machine) -> Value:
    if type(node.op) is ast.MatMult:
        raise make_unsupported_error("Matrix multiplication is")
    left = evaluate_node(node.left, machine)
    return operators.apply_binary(machine, node.op, left, evaluate_node(node.right, machine))


def _evaluate_boolean(node: ast.BoolOp, machine: Machine) -> Value:
    """The operand that decides; it depends on those before it, and not on those never looked at."""
    ends_at = isinstance(node.op, ast.Or)
    value = evaluate_node(node.values[0], machine)
    label = value.full
    outside = len(machine.controls)
    for operand in node.values[1:]:
        if operators.is_truthy(value) is ends_at:
            break
        machine.controls.append(value.full)
        value = evaluate_node(operand, machine)
        label = label | value.full
    del machine.controls[outside:]
    return machine.join(value, label)


def _evaluate_comparison(node: ast.Compare, machine: Machine) -> Value:
    if len(node.ops) != 1:
        raise make_unsupported_error("Chained comparisons are")
    left = evaluate_node(node.left, machine)
    return operators.compare_values(machine, node.ops[0], left, evaluate_node(node.comparators[0], machine))


def _evaluate_conditional(node: ast.IfExp, machine: Machine) -> Value:
    test = evaluate_node(node.test, machine)
    machine.controls.append(test.full)
    value = evaluate_node(node.body if operators.is_truthy(test) else node.orelse, machine)
    machine.controls.pop()
    return machine.join(value, test.full)


def _evaluate_walrus(node: ast.NamedExpr, machine: Machine) -> Value:
    value = evaluate_node(node.value, machine)
    machine.bind(node.target.id, value)
    return value


def _evaluate_f_string(node: ast.JoinedStr, machine: Machine) -> Value:
    pieces = [evaluate_node(part, machine) for part in node.values]
    label = join_labels([FROM_USER, *(piece.full for piece in pieces)])
    machine.spending.check_text_length(sum(piece.size for piece in pieces))
    return machine.spending.count_value(Scalar(label, "".join(operators.to_str(piece) for piece in pieces)))


def _evaluate_formatted_value(node: ast.FormattedValue, machine: Machine) -> Value:
    value = evaluate_node(node.value, machine)
    label, spec = value.full, ""
    if node.format_spec is not None:
        wanted = evaluate_node(node.format_spec, machine)
        label, spec = label | wanted.full, operators.to_str(wanted)
        operators.check_format_spec(spec, machine.spending.bounds.width)
    if node.conversion in _CONVERSIONS:
        value = Scalar(value.full, _CONVERSIONS[node.conversion](value))
    return machine.spending.count_value(Scalar(label, operators.format_value(value, spec, label)))


def _evaluate_call(node: ast.Call, machine: Machine) -> Value:
    callee = evaluate_node(node.func, machine)
    positional = list(spread_values(node.args, machine))
    keywords: dict[str, Value] = {}
    for keyword in node.keywords:
        value = evaluate_node(keyword.value, machine)
        given = {keyword.arg: value} if keyword.arg is not None else _read_keyword_arguments(value)
        for name in given:
            if name in keywords:
                raise ProgramError("TypeError", f"argument '{name}' is given twice")
        keywords.update(given)
    return call_value(machine, callee, positional, keywords)


def _read_keyword_arguments(value: Value) -> dict[str, Value]:
    if not isinstance(value, Dictionary) or not all(isinstance(key, str) for key in value.entries):
        raise ProgramError("TypeError", "** takes a dict with texts as keys", value.full)
    return {str(key): argument for key, (_, argument) in value.entries.items()}


def _evaluate_comprehension(node: ast.ListComp | ast.SetComp | ast.DictComp, machine: Machine) -> Value:
    """Run a comprehension's loops; its variables do not outlive it."""
    items: list[Value] = []

    def add() -> None:
        if isinstance(node, ast.DictComp):
            pair = evaluate_node(node.key, machine), evaluate_node(node.value, machine)
            items.append(Series(FROM_USER, "tuple", pair))
        else:
            items.append(evaluate_node(node.elt, machine))

    targets = [part for generator in node.generators for part in ast.walk(generator.target)]
    inside = {part.id for part in targets if isinstance(part, ast.Name)}
    before = {name: machine.names[name] for name in inside if name in machine.names}
    try:
        label = _run_generators(node.generators, machine, add, items)
    finally:
        for name in inside:
            machine.names.pop(name, None)
        machine.names.update(before)
    value: Value = Series(label, "list", tuple(items))
    if isinstance(node, ast.SetComp):
        value = operators.build_set(items, label)
    elif isinstance(node, ast.DictComp):
        pairs = [pair.list_parts() for pair in items]
        value = Dictionary(label, {operators.make_dictionary_key(key): (key, item) for key, item in pairs})
    return machine.spending.count_value(value)


def _run_generators(
    generators: Sequence[ast.comprehension], machine: Machine, add: Callable[[], None], items: list[Value]
) -> FlowLabel:
    """Add items, each dependent on what it was made from; how many depends on the label returned."""
    if not generators:
        add()
        return FROM_USER
    first, rest = generators[0], generators[1:]
    if first.is_async:
        raise make_unsupported_error("Async is")
    iterable = evaluate_node(first.iter, machine)
    label = FROM_USER | iterable.label
    machine.controls.append(iterable.full)
    for each in operators.iterate_value(iterable, machine):
        machine.spending.count_steps()
        bind_target(first.target, each, machine)
        tests = [evaluate_node(test, machine) for test in first.ifs]
        for test in tests:
            label = label | test.full
        if not all(operators.is_truthy(test) for test in tests):
            continue
        machine.controls.extend(test.full for test in tests)
        start = len(items)
        label = label | _run_generators(rest, machine, add, items)
        items[start:] = [machine.join(item, each.full) for item in items[start:]]
        del machine.controls[len(machine.controls) - len(tests) :]
    machine.controls.pop()
    return label


def bind_target(target: ast.expr, value: Value, machine: Machine) -> None:
    """Assign to a name, or to a tuple or list of names."""
    if isinstance(target, ast.Name):
        machine.bind(target.id, value)
        return
    if not isinstance(target, ast.Tuple | ast.List):
        raise make_unsupported_error(f"{type(target).__name__} as a target is here").place_at_node(target)
    if any(isinstance(inner, ast.Starred) for inner in target.elts):
        raise make_unsupported_error("Stars in a target are").place_at_node(target)
    items = operators.iterate_value(value, machine)
    if len(items) != len(target.elts):
        text = f"{len(target.elts)} values are expected, and there are {len(items)}"
        raise ProgramError("ValueError", text, value.full).place_at_node(target)
    for inner, item in zip(target.elts, items, strict=True):
        bind_target(inner, item, machine)


_HANDLERS: dict[type[ast.AST], Callable[[Any, Machine], Value]] = {
    ast.Constant: _evaluate_constant,
    ast.Name: lambda node, machine: machine.find_value(node.id),
    ast.List: _evaluate_series,
    ast.Tuple: _evaluate_series,
    ast.Set: _evaluate_series,
    ast.Dict: _evaluate_dictionary,
    ast.Attribute: lambda node, machine: get_attribute(
        machine, evaluate_node(node.value, machine), node.attr
    ),
    ast.Subscript: _evaluate_subscript,
    ast.BinOp: _evaluate_binary,
    ast.UnaryOp: lambda node, machine: operators.apply_unary(
        machine, node.op, evaluate_node(node.operand, machine)
    ),
    ast.BoolOp: _evaluate_boolean,
    ast.Compare: _evaluate_comparison,
    ast.IfExp: _evaluate_conditional,
    ast.NamedExpr: _evaluate_walrus,
    ast.JoinedStr: _evaluate_f_string,
    ast.FormattedValue: _evaluate_formatted_value,
    ast.Call: _evaluate_call,
    ast.ListComp: _evaluate_comprehension,
    ast.SetComp: _evaluate_comprehension,
    ast.DictComp: _evaluate_comprehension,
}
