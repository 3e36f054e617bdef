"""The long form as CSV or JSON, for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

import orjson

from agentsys.analysis.metrics.rates import LONG_COLUMNS, MetricRow
from agentsys.analysis.tables.escaping import csv_cell, plain


def as_csv(rows: Iterable[MetricRow]) -> str:
    """One header line, then one line per row; undefined numbers are `nan`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, LONG_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_shown(row, csv_cell) for row in rows)
    return text.getvalue()


def as_json(rows: Iterable[MetricRow]) -> str:
    """A list of objects with the long form's columns as keys; undefined numbers are `null`."""
    listed = [_shown(row, plain) for row in rows]
    return orjson.dumps(listed, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _shown(row: MetricRow, safe: Callable[[str], str]) -> dict[str, Any]:
    return {name: safe(value) if isinstance(value, str) else value for name, value in asdict(row).items()}
