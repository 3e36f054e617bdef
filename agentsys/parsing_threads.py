"""`parse_in_turns`: threads that parse Python text do so one after the other, where Python needs it.

Until 3.11.7 and 3.12.1 Python counts the depth of a syntax tree in one place for all threads: of two that
build trees at once one may be told `SystemError: AST constructor recursion depth mismatch` (gh-106905).
AgentDojo's tool execution parses with every call (`ast.literal_eval`), and so do several defenses, on as many
threads as a run has workers: now and then a case would end in an error that is nobody's.
"""

from __future__ import annotations

import ast
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

AFFECTED = sys.version_info < (3, 12, 2)
"""Versions in which the count may be shared (3.11.8 has it mended too; a lock costs it nothing)."""
_LOCK = threading.RLock()


def in_turns(parse: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, run by one thread at a time, and once more where another parser got in between."""

    @functools.wraps(parse)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with _LOCK:
            try:
                return parse(*args, **kwargs)
            except SystemError:
                return parse(*args, **kwargs)

    return locked


def parse_in_turns() -> None:
    """Let `ast.parse`, and with it `ast.literal_eval`, take turns from now on in this process.

    Python's own function is the only place that AgentDojo's and everybody's parsing goes through. Called
    before threads are started; again does nothing.
    """
    if AFFECTED and not hasattr(ast.parse, "__wrapped__"):
        ast.parse = in_turns(ast.parse)
