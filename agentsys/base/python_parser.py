"""Python's own parser, used by one thread at a time.

CPython before 3.11.8 and 3.12.2 counts the depth of a syntax tree in one counter for all threads (gh-106905): if two
threads parse at the same time, one may get `SystemError: AST constructor recursion depth mismatch`. A run's threads
parse models' output, so our code parses with these functions, and AgentDojo's executor, which parses arguments, is not
used.
"""

from __future__ import annotations

import ast
import threading
from typing import Any

# Reentrant: a garbage collection while a tree is built may run a finalizer that parses.
parser_lock = threading.RLock()
"""Held by the thread that parses."""


def parse_module(source: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """Parse a module as `ast.parse` does.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: As `ast.parse` does.
    """
    with parser_lock:
        return ast.parse(source, filename)


def parse_expression(source: str) -> ast.expr:
    """Parse one expression as `ast.parse` does; it raises the same as `parse_module`."""
    with parser_lock:
        return ast.parse(source, mode="eval").body


MAX_LITERAL_CHARS = 100_000
"""Most characters of a literal that is parsed: all threads wait meanwhile, and 6 MB take 40 s."""


def literal_eval(text: str, most_chars: int = MAX_LITERAL_CHARS) -> Any:
    """Read a literal as `ast.literal_eval` does.

    Raises:
        SyntaxError, ValueError, TypeError, RecursionError, MemoryError: As `ast.literal_eval` does; ValueError
            also if it is too long.
    """
    if len(text) > most_chars:
        raise ValueError(f"a literal of {len(text):,} characters")
    with parser_lock:
        return ast.literal_eval(text)
