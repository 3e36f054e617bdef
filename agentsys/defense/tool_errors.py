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

from agentsys.defense.rules import leaves
from agentsys.python_parser import parse

_KIND = re.compile(r"([A-Za-z_]\w{0,60})(?:: (.*))?", re.DOTALL)
_LONGEST = 500


def shown_error(error: str, function: Function, args: Mapping[str, Any]) -> dict[str, str]:
    """The parts of an error ("ValueError: ...") that the agent which called the tool may read.

    Returns:
        `exception`, its class, and `message` where it holds nothing but the caller's own words.
    """
    found = _KIND.fullmatch(error)
    if found is None:
        return {}
    message = found[2] or ""
    own = {str(leaf) for leaf in leaves(args)}
    if 0 < len(message) <= _LONGEST and _is_own(message, function.run.__module__, own):
        return {"exception": found[1], "message": message}
    return {"exception": found[1]}


def _is_own(message: str, module: str, own: set[str]) -> bool:
    for template in _templates(module):
        filled = template.fullmatch(message)
        if filled is not None and all(group.strip("'\"") in own or group in own for group in filled.groups()):
            return True
    return False


@lru_cache(maxsize=256)
def _templates(module: str) -> tuple[re.Pattern[str], ...]:
    """Every message that the code of a module raises, as a pattern with a group for each value filled in."""
    try:
        tree = parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return ()
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    calls = [exc for exc in raised if isinstance(exc, ast.Call) and len(exc.args) == 1]
    return tuple(
        re.compile(text, re.DOTALL) for call in calls if (text := _pattern(call.args[0])) is not None
    )


def _pattern(node: ast.expr) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.escape(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [_pattern(part) if isinstance(part, ast.Constant) else "(.*?)" for part in node.values]
        return "".join(part or "" for part in parts)
    return None
