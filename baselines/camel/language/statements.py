"""Statements, and the program as a whole."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from baselines.camel.language.calls import RAISABLE
from baselines.camel.language.classes import define
from baselines.camel.language.expressions import bind_target, evaluate, handled, iterated
from baselines.camel.language.failure import ProgramError, refused
from baselines.camel.language.machine import ClassValue, ErrorValue, Machine
from baselines.camel.language.members import attribute, item, with_attribute, with_item
from baselines.camel.language.operators import binary, truth
from baselines.camel.language.parse import parsed
from baselines.camel.language.rendering import shown
from baselines.flow.values import Value, literal

REFUSED: dict[type[ast.AST], str] = {
    ast.While: "While loops are",
    ast.Break: "Break is",
    ast.Continue: "Continue is",
    ast.Match: "Match is",
    ast.FunctionDef: "Defining functions is",
    ast.Return: "Return is",
    ast.Try: "Catching exceptions is",
    ast.Assert: "Assert is",
    ast.Delete: "Del is",
    ast.With: "With is",
    ast.Global: "Global is",
    ast.Nonlocal: "Nonlocal is",
    ast.Import: "Import is",
}


def run_program(source: str, machine: Machine) -> Value:
    """Run a program to its end.

    Returns:
        The value of its last statement; an assignment's is what was assigned.

    Raises:
        ProgramError: If it cannot be read, or a statement fails; placed at a node.
        CallDenied: If a policy does not allow a call.
    """
    machine.spending.begin()
    tree = parsed(source, machine.spending.bounds)
    try:
        return _block(tree.body, machine)
    except RecursionError:
        raise ProgramError("ResourceError", "the program is nested too deeply") from None


def _block(body: Sequence[ast.stmt], machine: Machine) -> Value:
    value: Value = literal(None)
    for statement in body:
        value = handled(statement, machine, _HANDLERS, REFUSED)
    return value


def _expression(node: ast.Expr, machine: Machine) -> Value:
    return evaluate(node.value, machine)


def _assign(node: ast.Assign, machine: Machine) -> Value:
    value = evaluate(node.value, machine)
    for target in node.targets:
        assign(target, value, machine)
    return value


def _annotated(node: ast.AnnAssign, machine: Machine) -> Value:
    if node.value is None:
        return literal(None)
    value = evaluate(node.value, machine)
    assign(node.target, value, machine)
    return value


def _augmented(node: ast.AugAssign, machine: Machine) -> Value:
    if isinstance(node.op, ast.MatMult):
        raise refused("Matrix multiplication is")
    if isinstance(node.target, ast.Name):
        value = binary(machine, node.op, evaluate(node.target, machine), evaluate(node.value, machine))
        machine.bind(node.target.id, value)
        return value
    place = _place(node.target, machine)
    value = binary(machine, node.op, place.held(machine), evaluate(node.value, machine))
    place.put(value, machine)
    return value


def assign(target: ast.expr, value: Value, machine: Machine) -> None:
    """Assign to a name, names, or a place inside what a name holds.

    Values never change: an assignment into one gives its name a changed copy, so other names do not see it.
    """
    if isinstance(target, ast.Attribute | ast.Subscript):
        held = machine.join(value, machine.control) if machine.strict else value
        _place(target, machine).put(held, machine)
    else:
        bind_target(target, value, machine)


@dataclass(frozen=True)
class _Place:
    """A place inside what a name holds. Indexes are evaluated once."""

    name: str
    steps: tuple[str | Value, ...]
    """Attribute names and indexes, from the outside in."""

    def held(self, machine: Machine) -> Value:
        """What stands there."""
        return self._chain(machine)[-1]

    def put(self, value: Value, machine: Machine) -> None:
        """Put something else there."""
        chain = self._chain(machine, len(self.steps) - 1)
        for holder, step in zip(reversed(chain), reversed(self.steps), strict=True):
            if isinstance(step, str):
                value = with_attribute(machine, holder, step, value)
            else:
                value = with_item(machine, holder, step, value)
        machine.bind(self.name, value)

    def _chain(self, machine: Machine, length: int | None = None) -> list[Value]:
        chain = [machine.lookup(self.name)]
        for step in self.steps[:length]:
            holder = chain[-1]
            found = attribute(machine, holder, step) if isinstance(step, str) else item(machine, holder, step)
            chain.append(found)
        return chain


def _place(target: ast.expr, machine: Machine) -> _Place:
    steps: list[str | Value] = []
    while isinstance(target, ast.Attribute | ast.Subscript):
        if isinstance(target, ast.Attribute):
            steps.append(target.attr)
        else:
            steps.append(evaluate(target.slice, machine))
        target = target.value
    if not isinstance(target, ast.Name):
        raise refused("Assigning into something without a name is")
    return _Place(target.id, tuple(reversed(steps)))


def _if(node: ast.If, machine: Machine) -> Value:
    test = evaluate(node.test, machine)
    machine.controls.append(test.full)
    value = _block(node.body if truth(test) else node.orelse, machine)
    machine.controls.pop()
    return value


def _for(node: ast.For, machine: Machine) -> Value:
    if node.orelse:
        raise refused("An else of a loop is")
    iterable = evaluate(node.iter, machine)
    machine.controls.append(iterable.full)
    value: Value = literal(None)
    for each in iterated(iterable, machine):
        machine.spending.step()
        bind_target(node.target, each, machine)
        value = _block(node.body, machine)
    machine.controls.pop()
    return value


def _pass(node: ast.Pass, machine: Machine) -> Value:
    return literal(None)


def _raise(node: ast.Raise, machine: Machine) -> Value:
    """Raise what the program made. The error is as trusted as everything it was made of."""
    if node.exc is None or node.cause is not None:
        raise refused("Such a raise is")
    value = evaluate(node.exc, machine)
    if isinstance(value, ClassValue) and value.name in RAISABLE:
        raise ProgramError(value.name, "", value.full)
    if not isinstance(value, ErrorValue):
        raise ProgramError("TypeError", "exceptions must be made from ValueError", value.full)
    raise ProgramError(value.name, shown(value), value.full)


def _import_from(node: ast.ImportFrom, machine: Machine) -> Value:
    missing = [alias.name for alias in node.names if alias.asname or alias.name not in machine.provided]
    if missing:
        raise refused("Importing is")
    return literal(None)


def _class(node: ast.ClassDef, machine: Machine) -> Value:
    return define(node, machine)


_HANDLERS: dict[type[ast.stmt], Callable[[Any, Machine], Value]] = {
    ast.Expr: _expression,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.If: _if,
    ast.For: _for,
    ast.Pass: _pass,
    ast.Raise: _raise,
    ast.ImportFrom: _import_from,
    ast.ClassDef: _class,
}
