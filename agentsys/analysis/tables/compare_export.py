"""A comparison as CSV or JSON, for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson

from agentsys.analysis.metrics.compare import Comparison, Flip
from agentsys.analysis.metrics.difference_row import DIFFERENCE_COLUMNS, Contest, DifferenceRow
from agentsys.analysis.tables.escaping import csv_cell, plain


def differences_csv(found: Comparison) -> str:
    """One header line, then one line per difference; undefined numbers are `nan`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, DIFFERENCE_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_shown(row, csv_cell) for row in found.rows)
    return text.getvalue()


def comparison_json(found: Comparison) -> str:
    """An object with `differences`, `flips` (all of them) and `pairings`; undefined numbers are `null`."""
    stored = {
        "baseline": plain(found.baseline),
        "differences": [_shown(row, plain) for row in found.rows],
        "flips": [_flip(flip) for flip in found.flips],
        "pairings": [
            {
                **_contest(contest),
                "compared": len(pairing.pairs),
                "errored": pairing.errored,
                "only_baseline": pairing.only_baseline,
                "only_defense": pairing.only_defense,
            }
            for contest, pairing in found.pairings.items()
        ],
        "unopposed": [
            {**_plain(field._asdict()), "cases": count} for field, count in found.unopposed.items()
        ],
    }
    return orjson.dumps(stored, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _flip(flip: Flip) -> dict[str, Any]:
    first, second = flip.pair
    tasks = {
        "suite": second.suite,
        "user_task_id": second.user_task_id,
        "injection_task_id": second.injection_task_id,
        "epoch": second.epoch,
        "baseline_source": first.source,
        "defense_source": second.source,
    }
    return {**_contest(flip.contest), "metric": flip.metric, "gained": flip.gained, **_plain(tasks)}


def _contest(contest: Contest) -> dict[str, Any]:
    return _plain(contest.field._asdict() | {"baseline": contest.baseline, "defense": contest.defense})


def _shown(row: DifferenceRow, safe: Callable[[str], str]) -> dict[str, Any]:
    return {name: safe(value) if isinstance(value, str) else value for name, value in asdict(row).items()}


def _plain(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: plain(value) if isinstance(value, str) else value for name, value in stored.items()}
