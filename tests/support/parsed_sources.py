"""Sources of the tree, without the tests: their files, and each as a syntax tree, parsed once for all tests."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from agentsys.extensions import OUR_PACKAGES

ROOT = Path(__file__).parents[2]


@cache
def list_product_files(suffix: str = ".py", folders: tuple[str, ...] = OUR_PACKAGES) -> tuple[Path, ...]:
    """Files of these folders of the checkout, sorted; guests' tests are left out."""
    found = (path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}") if path.is_file())
    return tuple(
        sorted(path for path in found if not {"tests", "__pycache__"} & {*path.relative_to(ROOT).parts})
    )


@cache
def list_test_files() -> tuple[Path, ...]:
    """Python files of all tests, the guests' among them."""
    return tuple(
        sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "agentsys_plugins").glob("*/tests/**/*.py")])
    )


@cache
def parse_source(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def list_nodes(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a file; to walk a tree takes as long as to parse it."""
    return tuple(ast.walk(parse_source(path)))
