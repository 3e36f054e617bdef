"""The replies of tests/corpus/wires: their files, and how one is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CORPUS = Path(__file__).parents[1] / "corpus" / "wires"
FILES = sorted(CORPUS.glob("*/*.json"))

WireCase = dict[str, Any]


def load(path: Path) -> WireCase:
    """A file as it stands."""
    loaded: WireCase = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def name_of(path: Path) -> str:
    """Family and name of a file."""
    return f"{path.parent.name}/{path.stem}"
