"""Reading a program: the one code block of a reply, and its bounded syntax tree."""

from __future__ import annotations

import ast
import re
import warnings

from agentsys.base.python_parser import parse_module
from baselines.camel.language.bounds import ProgramBounds, resource_error
from baselines.camel.language.failure import ProgramError

_BLOCK = re.compile(r"```[^\S\n]*[\w+-]*[^\S\n]*\n(.*?)\n?```", re.DOTALL)


def find_program(reply: str) -> str:
    """The program in a reply.

    Raises:
        ProgramError: If there is not exactly one fenced block with something in it.
    """
    blocks = [block for block in _BLOCK.findall(reply) if block.strip()]
    if len(blocks) != 1:
        raise ProgramError("InvalidOutputError", "Give exactly one fenced code block that is not empty.")
    return str(blocks[0])


def parse_program(source: str, bounds: ProgramBounds) -> ast.Module:
    """The syntax tree of a program.

    Raises:
        ProgramError: If it is no Python, or larger or deeper than the bounds.
    """
    if len(source) > bounds.source:
        raise resource_error("text")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = parse_module(source)
    except SyntaxError as error:
        raise _place_at_line(ProgramError("SyntaxError", error.msg or "invalid syntax"), error.lineno) from None
    except (ValueError, RecursionError, MemoryError):
        raise ProgramError("SyntaxError", "The program cannot be read.") from None
    _check_shape(tree, bounds)
    return tree


def _place_at_line(failure: ProgramError, line: int | None) -> ProgramError:
    return failure.at_node(ast.Pass(lineno=line or 0, col_offset=0, end_lineno=line or 0, end_col_offset=0))


def _check_shape(tree: ast.Module, bounds: ProgramBounds) -> None:
    """Level by level, because a recursive walk would itself fall over a deep tree."""
    level: list[ast.AST] = [tree]
    depth = seen = 0
    while level:
        depth, seen = depth + 1, seen + len(level)
        if depth > bounds.depth or seen > bounds.nodes:
            raise resource_error("structure")
        level = [child for node in level for child in ast.iter_child_nodes(node)]
