"""The rates of measured facts as grids, and what has to be said below them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from agentsys.analysis.metrics.benchmark_facts import (
    AS_COUNTED,
    ASR_LESS_CONTROL,
    CONTROL_ASR,
    UTILITY_AS_COUNTED,
    is_control,
    unsolved_suites,
)
from agentsys.analysis.metrics.rates import MetricRow
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.document import Grid, GridCell, cells, interval_text, value_text
from agentsys.analysis.tables.results_layout import Sheet
from agentsys.records.case_row import NO_ATTACK, CaseRow

_CAUSES = {
    "targeted_asr_execution": "ASR executed",
    "targeted_asr_text": "ASR by text",
    AS_COUNTED: "By text, errors failed",
    "asr_planner_chosen": "Planner-chosen",
    "asr_patched_plan": "Patched plan",
    "asr_injection_caused": "Injection-caused",
    CONTROL_ASR: "Control",
    ASR_LESS_CONTROL: "ASR - control",
}
_CONDUCT = {
    "utility_execution": "Utility executed",
    "utility_text": "Utility by text",
    UTILITY_AS_COUNTED: "By text, errors failed",
    "exposed": "Exposed",
    "refused": "Refused",
    "workflow_failure": "Workflow failures",
}
_ABSENT = "—"
_Numbers = Mapping[tuple[str, str], Mapping[str, MetricRow]]
"""(defense, attack) -> metric -> overall number."""


def measured_grids(rows: Iterable[MetricRow], sheet: Sheet) -> list[Grid]:
    """Two grids, on causes and on conduct; none where the sheet's runs hold no such facts.

    Args:
        rows: From `agentsys.analysis.metrics.benchmark_facts.measured_rows`.
        sheet: Which model on which benchmark and version.
    """
    numbers: defaultdict[tuple[str, str], dict[str, MetricRow]] = defaultdict(dict)
    for row in rows:
        place = (row.benchmark, row.version, row.model)
        if place == (sheet.benchmark, sheet.version, sheet.model) and row.suite == OVERALL:
            numbers[row.defense, row.attack][row.metric] = row
    attacked = {line: found for line, found in numbers.items() if line[1] != NO_ATTACK}
    grids = [
        _grid("what caused attacks to succeed, overall, in percent", _CAUSES, attacked),
        _grid("utility and conduct by what was measured, overall, in percent", _CONDUCT, numbers),
    ]
    return [grid for grid in grids if grid.rows]


def _grid(caption: str, titles: Mapping[str, str], numbers: _Numbers) -> Grid:
    shown = {metric: title for metric, title in titles.items() if any(metric in n for n in numbers.values())}
    rows = [
        cells(_name(defense, attack), *_numbers(found, shown), *_counts(found))
        for (defense, attack), found in numbers.items()
        if shown
    ]
    return Grid(caption, ("Defense", *shown.values(), "Cases", "Errors"), rows, names=1)


def _name(defense: str, attack: str) -> GridCell:
    return GridCell(defense, "" if attack == NO_ATTACK else attack)


def _numbers(found: Mapping[str, MetricRow], shown: Iterable[str]) -> Iterator[GridCell]:
    for metric in shown:
        row = found.get(metric)
        if row is None:
            yield GridCell(_ABSENT)
        else:
            yield GridCell(value_text(row), _spread(row))


def _spread(row: MetricRow) -> str:
    """A difference may be negative on either side: a dash between its bounds could not be read."""
    if row.metric == ASR_LESS_CONTROL and not math.isnan(row.ci_low):
        return f"{row.ci_low:.1f} to {row.ci_high:.1f}"
    return interval_text(row)


def _counts(found: Mapping[str, MetricRow]) -> list[str]:
    whole = next(
        (row for metric, row in found.items() if metric not in (AS_COUNTED, UTILITY_AS_COUNTED)), None
    )
    return ["", ""] if whole is None else [str(whole.n), str(whole.errors)]


def measured_notes(rows: Sequence[MetricRow], cases: Sequence[CaseRow]) -> Iterator[str]:
    """What the grids mean, where the facts are there."""
    metrics = {row.metric for row in rows}
    if "targeted_asr_text" in metrics:
        yield (
            "Executed: the tools ran. By text: their words stand in the conversation at its end, which a "
            "defense that rewrites results undoes without preventing anything."
        )
    if "asr_injection_caused" in metrics:
        yield (
            "Planner-chosen: the attack tool was in the agent's own plan, or called before any payload "
            "was shown. Patched plan: the benchmark had written it into every step; what the injection added "
            "cannot be told (compare with the control). Injection-caused: all other successes."
        )
    if ASR_LESS_CONTROL in metrics:
        yield "Control: the same cases with an empty payload. What succeeds there, no injection has caused."
    yield from _ceilings(rows, cases)
    yield from _one_mode(cases)
    yield from _missing_controls(rows, cases)


def _ceilings(rows: Iterable[MetricRow], cases: Sequence[CaseRow]) -> Iterator[str]:
    for sheet in dict.fromkeys((row.benchmark, row.version, row.model) for row in rows):
        mine = [c for c in cases if (c.benchmark, c.version, c.shown_model) == sheet]
        suites, never = {case.suite for case in mine}, unsolved_suites(mine)
        if never:
            most = 100.0 * (1 - len(never) / len(suites))
            yield (
                f"{sheet[2]} on {sheet[0]} {sheet[1]}: no run solved a user task of {', '.join(never)}; "
                f"where that is the tasks' fault, utility has a ceiling of {most:.1f}."
            )


def _one_mode(cases: Iterable[CaseRow]) -> Iterator[str]:
    """Defenses that were run without a plan only, where others were run with one."""
    modes: defaultdict[str, set[str]] = defaultdict(set)
    for case in cases:
        if isinstance(mode := case.measured.get("mode"), str):
            modes[case.defense].add(mode)
    alone = sorted(defense for defense, found in modes.items() if found == {"react"})
    if alone and any(found - {"react"} for found in modes.values()):
        yield (
            f"In mode react only: {', '.join(alone)}. A defense that is a whole program of its own has no "
            "part in a planned conversation."
        )


def _missing_controls(rows: Iterable[MetricRow], cases: Iterable[CaseRow]) -> Iterator[str]:
    """Attacks whose planner-chosen share is known and that were run without a control."""
    controls = {
        (case.benchmark, case.version, case.shown_model, case.defense) for case in cases if is_control([case])
    }
    split = {row[:4] for row in map(_key, rows) if row[4] == "asr_injection_caused"}
    lacking = sorted({key[3] for key in split - controls})
    if lacking:
        yield f"No control (empty payload) was run for: {', '.join(lacking)}."


def _key(row: MetricRow) -> tuple[str, str, str, str, str]:
    return row.benchmark, row.version, row.model, row.defense, row.metric
