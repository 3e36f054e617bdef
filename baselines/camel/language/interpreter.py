"""`run_program`: parses a program in bounded time and runs its statements one by one."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.base.python_parser import parse_module
from baselines.camel.language.expressions import bind_target, dispatch_node, evaluate_node
from baselines.camel.language.functions import define_class
from baselines.camel.language.machine import (
    RAISABLE,
    ClassValue,
    ErrorValue,
    Machine,
    ProgramBounds,
    ProgramError,
    make_resource_error,
    make_unsupported_error,
)
from baselines.camel.language.members import get_attribute, get_item, replace_attribute, replace_item
from baselines.camel.language.operators import apply_binary, is_truthy, iterate_value, to_str
from baselines.flow.labelled_values import Value, make_literal

_BLOCK = re.compile(r"```[^\S\n]*[\w+-]*[^\S\n]*\n(.*?)\n?```", re.DOTALL)


def find_program(reply: str) -> str:
    """The program in a reply."""
    blocks = [block for block in _BLOCK.findall(reply) if block.strip()]
    if len(blocks) != 1:
        raise ProgramError("InvalidOutputError", "Give exactly one fenced code block that is not empty.")
    return str(blocks[0])


def parse_program(source: str, bounds: ProgramBounds) -> ast.Module:
    """The syntax tree of a program."""
    if len(source) > bounds.source:
        raise make_resource_error("text")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parse_module(source)
    except SyntaxError as error:
        line = error.lineno or 0
        node = ast.Pass(lineno=line, col_offset=0, end_lineno=line, end_col_offset=0)
        raise ProgramError("SyntaxError", error.msg or "invalid syntax").place_at_node(node) from None
    except (ValueError, RecursionError, MemoryError):
        raise ProgramError("SyntaxError", "The program cannot be read.") from None
    # Level by level, because a recursive walk would itself fall over a deep tree.
    level: list[ast.AST] = [tree]
    depth = nodes = 0
    while level:
        depth, nodes = depth + 1, nodes + len(level)
        if depth > bounds.depth or nodes > bounds.nodes:
            raise make_resource_error("structure")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return tree


def run_program(source: str, machine: Machine) -> Value:
    """Run a program to its end.

    Returns:
        The value of its last statement; an assignment's is what was assigned.

    Raises:
        ProgramError: If it cannot be read, or a statement fails; placed at a node.
        CallDenied: If a policy does not allow a call.
    """
    machine.spending.begin_program()
    tree = parse_program(source, machine.spending.bounds)
    try:
        return _run_block(tree.body, machine)
    except RecursionError:
        raise ProgramError("ResourceError", "the program is nested too deeply") from None


def _run_block(body: Sequence[ast.stmt], machine: Machine) -> Value:
    value: Value = make_literal(None)
    for statement in body:
        value = dispatch_node(statement, machine, _HANDLERS)
    return value


def _assign(node: ast.Assign | ast.AnnAssign, machine: Machine) -> Value:
    if node.value is None:
        return make_literal(None)
    value = evaluate_node(node.value, machine)
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        assign_target(target, value, machine)
    return value


def _run_augmented_assignment(node: ast.AugAssign, machine: Machine) -> Value:
    if isinstance(node.op, ast.MatMult):
        raise make_unsupported_error("Matrix multiplication is")
    target = _read_place(node.target, machine)
    value = apply_binary(
        machine, node.op, target.evaluate_current(machine), evaluate_node(node.value, machine)
    )
    target.assign(value, machine)
    return value


def assign_target(target: ast.expr, value: Value, machine: Machine) -> None:
    """Assign to a name, names, or a place inside what a name holds.

    Values never change: an assignment into one gives its name a changed copy, so other names do not see it.
    """
    if isinstance(target, ast.Attribute | ast.Subscript):
        joined = machine.join(value, machine.control) if machine.strict else value
        _read_place(target, machine).assign(joined, machine)
    else:
        bind_target(target, value, machine)


@dataclass(frozen=True)
class _AssignedPlace:
    """A place inside what a name holds. Indexes are evaluated once."""

    name: str
    steps: tuple[str | Value, ...]
    """Attribute names and indexes, from the outside in."""

    def evaluate_current(self, machine: Machine) -> Value:
        return self._resolve_steps(machine)[-1]

    def assign(self, value: Value, machine: Machine) -> None:
        chain = self._resolve_steps(machine, len(self.steps) - 1) if self.steps else []
        for holder, step in zip(reversed(chain), reversed(self.steps), strict=True):
            put: Callable[..., Value] = replace_attribute if isinstance(step, str) else replace_item
            value = put(machine, holder, step, value)
        machine.bind(self.name, value)

    def _resolve_steps(self, machine: Machine, length: int | None = None) -> list[Value]:
        chain = [machine.find_value(self.name)]
        for step in self.steps[:length]:
            get: Callable[..., Value] = get_attribute if isinstance(step, str) else get_item
            chain.append(get(machine, chain[-1], step))
        return chain


def _read_place(target: ast.expr, machine: Machine) -> _AssignedPlace:
    steps: list[str | Value] = []
    while isinstance(target, ast.Attribute | ast.Subscript):
        if isinstance(target, ast.Attribute):
            steps.append(target.attr)
        else:
            steps.append(evaluate_node(target.slice, machine))
        target = target.value
    if not isinstance(target, ast.Name):
        raise make_unsupported_error("Assigning into something without a name is")
    return _AssignedPlace(target.id, tuple(reversed(steps)))


def _run_if(node: ast.If, machine: Machine) -> Value:
    test = evaluate_node(node.test, machine)
    machine.controls.append(test.full)
    value = _run_block(node.body if is_truthy(test) else node.orelse, machine)
    machine.controls.pop()
    return value


def _run_for(node: ast.For, machine: Machine) -> Value:
    if node.orelse:
        raise make_unsupported_error("An else of a loop is")
    iterable = evaluate_node(node.iter, machine)
    machine.controls.append(iterable.full)
    value: Value = make_literal(None)
    for each in iterate_value(iterable, machine):
        machine.spending.count_steps()
        bind_target(node.target, each, machine)
        value = _run_block(node.body, machine)
    machine.controls.pop()
    return value


def _raise(node: ast.Raise, machine: Machine) -> Value:
    """Raise what the program made. The error is as trusted as everything it was made of."""
    if node.exc is None or node.cause is not None:
        raise make_unsupported_error("Such a raise is")
    value = evaluate_node(node.exc, machine)
    if isinstance(value, ClassValue) and value.name in RAISABLE:
        raise ProgramError(value.name, "", value.full)
    if not isinstance(value, ErrorValue):
        raise ProgramError("TypeError", "exceptions must be made from ValueError", value.full)
    raise ProgramError(value.name, to_str(value), value.full)


def _import_from(node: ast.ImportFrom, machine: Machine) -> Value:
    missing = [alias.name for alias in node.names if alias.asname or alias.name not in machine.provided]
    if missing:
        raise make_unsupported_error("Importing is")
    return make_literal(None)


_HANDLERS: dict[type[ast.stmt], Callable[[Any, Machine], Value]] = {
    ast.Expr: lambda node, machine: evaluate_node(node.value, machine),
    ast.Assign: _assign,
    ast.AnnAssign: _assign,
    ast.AugAssign: _run_augmented_assignment,
    ast.If: _run_if,
    ast.For: _run_for,
    ast.Pass: lambda node, machine: make_literal(None),
    ast.Raise: _raise,
    ast.ImportFrom: _import_from,
    ast.ClassDef: define_class,
}
