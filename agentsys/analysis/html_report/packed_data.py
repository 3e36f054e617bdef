"""The report's data as its page reads them: JSON, compressed, in base64; columns in place of rows; blocks of cases."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence

from agentsys.analysis.html_report.case_views import TextStore, View

CASES_PER_BLOCK = 200
"""Trajectories that the page unpacks at once: those around a case that is opened."""
CASES_PER_PART = 20_000
"""Lines of the list of cases that the page unpacks at once."""


def pack(value: object) -> str:
    """Compress a value's JSON; letters, digits, `+`, `/` and `=` cannot end the element that holds them.

    Raises:
        ValueError: For `nan` and infinities, which the browser's parser would refuse.
    """
    # ASCII, as a lone surrogate has no bytes of its own.
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def arrange_columns(rows: Sequence[Mapping[str, object]]) -> dict[str, View]:
    """Arrange rows of the same keys as columns: the different values of each, and the place of every row's value."""
    columns: dict[str, View] = {}
    for key in rows[0] if rows else ():
        places: dict[object, int] = {}
        numbers = [places.setdefault(row[key], len(places)) for row in rows]
        columns[key] = {"values": list(places), "rows": numbers}
    return columns


LIST_PART, BLOCK = "index-", "cases-"
"""Beginnings of the names that the page asks for."""


def pack_data(rows: Sequence[Mapping[str, object]], blocks: Sequence[str]) -> dict[str, str]:
    """Name -> packed data: the list of cases in parts, and the blocks of their trajectories."""
    starts = range(0, len(rows), CASES_PER_PART)
    parts = {
        f"{LIST_PART}{at}": pack(arrange_columns(rows[start : start + CASES_PER_PART]))
        for at, start in enumerate(starts)
    }
    return parts | {f"{BLOCK}{at}": block for at, block in enumerate(blocks)}


def write_scripts(data: Mapping[str, str]) -> dict[str, str]:
    """Write packed data as scripts beside a page: a page from a disk may read nothing else."""
    return {f"{name}.js": f'agentsysPart("{name}", "{text}");\n' for name, text in data.items()}


class BlockWriter:
    """Packs trajectories block by block; each block holds its texts, so that one is read without the others."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._views: list[View | None] = []
        self.texts = TextStore()
        """The texts of the open block; a text's number occurs in no other block."""

    def add(self, view: View | None) -> None:
        """Add the next case; None: its trajectory is left out."""
        self._views.append(view)
        if len(self._views) == CASES_PER_BLOCK:
            self.close()

    def close(self) -> list[str]:
        """Pack what was added since the last block, and return all blocks."""
        if self._views:
            block = {"first": self.texts.first, "texts": self.texts.list_texts(), "trajectories": self._views}
            self._blocks.append(pack(block))
            self._views, self.texts = [], TextStore(self.texts.first + len(self.texts))
        return self._blocks
