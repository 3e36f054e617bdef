"""`findings`: what was found, in a line or a few: each defense against none, by the paired test."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from agentsys.analysis.metrics.compare import compare
from agentsys.analysis.metrics.difference_row import ALL_CASES, DifferenceRow
from agentsys.analysis.metrics.rates import BENIGN_UTILITY, TARGETED_ASR
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.published_facts import NO_DEFENSE

MOST = 3
"""Lines of one block (a model on a benchmark under an attack); with several blocks, one of each."""
_MOST_BLOCKS = 4
_SIGNIFICANT = 0.05


class _Block(NamedTuple):
    benchmark: str
    version: str
    model: str
    attack: str

    @property
    def title(self) -> str:
        """What tells it from other blocks."""
        attack = "" if self.attack == NO_ATTACK else f", {self.attack}"
        return f"{self.model} on {self.benchmark} {self.version}{attack}"


class _Change(NamedTuple):
    """A defense's two differences from none; None where its cases tell nothing."""

    defense: str
    asr: DifferenceRow | None
    utility: DifferenceRow | None

    @property
    def order(self) -> tuple[bool, float, float, str]:
        """The lowest ASR first, then the highest benign utility; what differs from none in nothing last."""
        asr = math.inf if self.asr is None else round(self.asr.compared_value, 1)
        utility = 0.0 if self.utility is None else round(-self.utility.compared_value, 1)
        told = any(row is not None and _differs(row) for row in (self.asr, self.utility))
        return not told, asr, utility, self.defense

    @property
    def key(self) -> tuple[object, ...]:
        """What defenses have in common that are told of in one line."""
        rows = (self.asr, self.utility)
        return tuple(
            row and (_shown(row.compared_value), row.n, _unchanged(row), _differs(row)) for row in rows
        )


def findings(
    cases: Sequence[CaseRow],
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    width: int | None = None,
) -> tuple[str, ...]:
    """Say how each defense differs from none in ASR and benign utility, those with the lowest ASR first.

    Args:
        cases: Cases in any order.
        errors: What errored cases count as.
        width: Columns for a line: where defenses share one that is longer, some of them are only counted.

    Returns:
        A few lines; none where no defense stands beside none. p-values are Holm's, as `agentsys compare`
        has them; "not told apart" is a difference whose p is not below 0.05.
    """
    counted = [case for case in cases if case.is_scored]
    defenses = {case.defense for case in counted}
    if NO_DEFENSE not in defenses or len(defenses) < 2:
        return ()
    # All metrics of `agentsys compare`, so that p-values are corrected as there.
    found = compare(counted, NO_DEFENSE, errors=errors)
    shown = [row for row in found.rows if (row.suite, row.cases) == (OVERALL, ALL_CASES)]
    blocks = _blocks([row for row in shown if row.metric in (BENIGN_UTILITY, TARGETED_ASR)])
    told = {block: list(_lines(changes, width)) for block, changes in blocks.items()}
    if len(told) == 1:
        return tuple(_shortened(*told.values()))
    first = [f"{block.title}: {lines[0]}" for block, lines in told.items()]
    more = len(first) - _MOST_BLOCKS
    return (*first[:_MOST_BLOCKS], *([f"{more} more below."] if more > 0 else []))


def _shortened(lines: list[str]) -> list[str]:
    """The first lines and the last one, which tells of what made no difference."""
    return lines if len(lines) <= MOST else [*lines[: MOST - 1], lines[-1]]


def _blocks(rows: Sequence[DifferenceRow]) -> dict[_Block, list[_Change]]:
    """Attacked blocks with the benign utility beside; a model without attacks has a block without one."""
    found: defaultdict[_Block, dict[str, DifferenceRow]] = defaultdict(dict)
    for row in rows:
        found[_Block(row.benchmark, row.version, row.model, row.attack)][row.defense] = row
    blocks = {}
    for block, by_defense in found.items():
        benign = found.get(block._replace(attack=NO_ATTACK), {})
        if block.attack != NO_ATTACK:
            blocks[block] = _changes(by_defense, benign)
        elif not any(other[:3] == block[:3] for other in found if other != block):
            blocks[block] = _changes({}, benign)
    return blocks


def _changes(attacked: Mapping[str, DifferenceRow], benign: Mapping[str, DifferenceRow]) -> list[_Change]:
    names = attacked or benign
    changes = [_Change(name, attacked.get(name), benign.get(name)) for name in names]
    return sorted(changes, key=lambda change: change.order)


def _lines(changes: Sequence[_Change], width: int | None) -> Iterator[str]:
    for same in group_by(changes, lambda change: change.key).values():
        parts = [
            _told("ASR", [change.asr for change in same]),
            _told("benign utility", [change.utility for change in same]),
        ]
        told = f": {', '.join(part for part in parts if part)}"
        names = [change.defense for change in same]
        yield f"{_named(names, None if width is None else width - cell_len(told))}{told}"


def _named(names: Sequence[str], room: int | None) -> str:
    """As many names as there is room for, at least the first, and how many more there are."""
    for kept in range(len(names), 0, -1):
        more = f" and {len(names) - kept} more" if kept < len(names) else ""
        text = f"{', '.join(names[:kept])}{more}"
        if room is None or cell_len(text) <= room:
            break
    return text


def _told(name: str, same: Sequence[DifferenceRow | None]) -> str:
    """One difference of defenses that share it; with the largest of their p-values."""
    rows = [row for row in same if row is not None]
    if not rows:
        return ""
    first = rows[0]
    partly = max(row.only_baseline for row in rows) or max(row.only_compared for row in rows)
    shared = f" on the {first.n} cases they share" if partly else ""
    if _unchanged(first):
        # The value stands in the table, unless the two have not the same cases.
        return f"{name} unchanged ({_shown(first.compared_value)}){shared}" if shared else f"{name} unchanged"
    change = f"{name} {_shown(first.baseline_value)} -> {_shown(first.compared_value)}{shared}"
    p = max(row.p_holm for row in rows)
    if math.isnan(p):
        return f"{change} (too few tasks to test)"
    shown = "p <0.001" if p < 0.001 else f"p {p:.3f}"
    return f"{change} ({shown})" if _differs(first) else f"{name} not told apart{shared} ({shown})"


def _unchanged(row: DifferenceRow) -> bool:
    """Whether every case that both have came out alike."""
    return row.gained == row.lost == 0


def _differs(row: DifferenceRow) -> bool:
    return row.p_holm < _SIGNIFICANT


def _shown(value: float) -> str:
    return "n/a" if math.isnan(value) else f"{value:.1f}"
