"""Calls of tools, functions, methods and classes. The text of an error inside one is never trusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from baselines.camel.language.classes import construct_instance
from baselines.camel.language.failure import ProgramError
from baselines.camel.language.functions import call_function
from baselines.camel.language.machine import ClassValue, ErrorValue, FunctionValue, Machine, MethodValue, ToolValue
from baselines.camel.language.methods import call_method
from baselines.camel.language.rendering import type_name
from baselines.flow.label import FROM_USER, label_from_tool, join_labels
from baselines.flow.values import Value

RAISABLE = ("ValueError", "NotEnoughInformationError")
"""Exceptions that programs may make."""


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
        raise error.with_label(label | label_from_tool(getattr(callee, "name", "call"))) from None


def _dispatch_call(machine: Machine, callee: Value, given: Sequence[Value], named: Mapping[str, Value]) -> Value:
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
    raise ProgramError("TypeError", f"'{type_name(callee)}' object is not callable")


def bind_tool_arguments(tool: ToolValue, given: Sequence[Value], named: Mapping[str, Value]) -> dict[str, Value]:
    """The arguments of a tool by name.

    Raises:
        ProgramError: If there are too many, or one is given twice or has no place.
    """
    if len(given) > len(tool.parameters):
        raise ProgramError("TypeError", f"{tool.name} takes {len(tool.parameters)} arguments")
    arguments = dict(zip(tool.parameters, given, strict=False))
    for name, value in named.items():
        if name in arguments or name not in tool.parameters:
            raise ProgramError("TypeError", f"{tool.name} has no free argument '{name[:60]}'")
        arguments[name] = value
    return arguments
