"""The part of a tool's error that its caller may read: the kind, and words of the tool's own code.

A message may quote the environment ("No match for <text of a mail>"). It is passed on only where it is one of
the messages written in the tool's source, with nothing filled in but the caller's own arguments.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentdojo.functions_runtime import Function

from agentsys.defense.rules import iterate_scalars
from agentsys.python_parser import parse_module

_ERROR_KIND = re.compile(r"([A-Za-z_]\w{0,60})(?:: (.*))?", re.DOTALL)
_MAX_MESSAGE_CHARS = 500


def filter_tool_error(error: str, function: Function, args: Mapping[str, Any]) -> dict[str, str]:
    """The parts of an error ("ValueError: ...") that the agent which called the tool may read.

    Returns:
        `exception`, its class, and `message` where it holds nothing but the caller's own words.
    """
    found = _ERROR_KIND.fullmatch(error)
    if found is None:
        return {}
    message = found[2] or ""
    own = {str(leaf) for leaf in iterate_scalars(args)}
    if 0 < len(message) <= _MAX_MESSAGE_CHARS and _is_own_message(message, function.run.__module__, own):
        return {"exception": found[1], "message": message}
    return {"exception": found[1]}


def _is_own_message(message: str, module: str, own: set[str]) -> bool:
    for template in _list_message_templates(module):
        filled = template.fullmatch(message)
        if filled is not None and all(group.strip("'\"") in own or group in own for group in filled.groups()):
            return True
    return False


@lru_cache(maxsize=256)
def _list_message_templates(module: str) -> tuple[re.Pattern[str], ...]:
    """Every message that the code of a module raises, as a pattern with a group for each value filled in."""
    try:
        tree = parse_module(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return ()
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    calls = [exc for exc in raised if isinstance(exc, ast.Call) and len(exc.args) == 1]
    return tuple(
        re.compile(text, re.DOTALL) for call in calls if (text := _build_pattern(call.args[0])) is not None
    )


def _build_pattern(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [_build_pattern(part) if isinstance(part, ast.Constant) else "(.*?)" for part in node.values]
        return "".join(part or "" for part in parts)
    return None
