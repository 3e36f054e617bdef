"""Sources of the tree as syntax trees, each parsed once for all tests that read them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path


@cache
def parse_source(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def list_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file; to walk a tree takes as long as to parse it."""
    return tuple(ast.walk(parse_source(path)))
