"""The SDKs that providers import only where a model is built, read from the providers' code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PROVIDERS = Path(__file__).parents[2] / "agentsys" / "models" / "providers"


def provider_sdks() -> frozenset[str]:
    """Names as in `sys.modules`, e.g. `openai` and `google.genai`."""
    return frozenset(name for path in PROVIDERS.glob("*.py") for name in _imported_late(path))


def _imported_late(path: Path) -> Iterator[str]:
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.ImportFrom):
                    yield from (f"{node.module}.{alias.name}" for alias in node.names)
