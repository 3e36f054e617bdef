"""What kind of forecast a number is: a column, a note for people; nothing of it without a victim."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from agentsys.amounts import counted
from agentsys.analysis.metrics.rates import TARGETED_ASR, MeasuredCell, MetricRow, Number
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.output import LongForm, Output
from agentsys.records.case_row import CaseRow
from agentsys.records.stored_plan import Outlook

COLUMN = "forecast_kind"
HEADING = "Forecast"
"""The same column where people read it."""
WITHOUT_RUNS = "goals without runs"
"""What stands in place of a defense where a victim has no runs of the goals, whatever the defense."""
UNTESTED_MARK = "†"
"""Behind the kind where roles took part that no published run had."""
UNTESTED_LEGEND = f"{UNTESTED_MARK} untested roles."
_MEANINGS: Mapping[str, str] = {
    "fitted": "drawn from the runs' own rates",
    "structural": "decided by what the defense shows and offers",
    "bound": "an upper bound of the ASR",
}
_UNTESTED = re.compile(r"forecast: untested role '(.+)'")
"""In a case's note about a reply of the simulated model (see agentsys.models.simulated.model)."""

Kinds = Mapping[tuple[str, str], str]
"""(model as tables show it, defense) -> the kind of its numbers."""


def kinds_of(cases: Iterable[CaseRow], outlooks: Iterable[Outlook] = ()) -> dict[tuple[str, str], str]:
    """The kind of every line's numbers; empty where nothing is a forecast."""
    found = {(case.shown_model, case.defense): case.forecast_kind for case in cases if case.forecast_kind}
    return found | {(one.model, one.defense or WITHOUT_RUNS): one.kind for one in outlooks}


def marked_kinds(cases: Iterable[CaseRow], outlooks: Iterable[Outlook] = ()) -> dict[tuple[str, str], str]:
    """The same for people: marked where roles without runs took part."""
    listed = list(cases)
    noted = [case for case in listed if case.notes]
    untested = {(case.shown_model, case.defense) for case in noted if any(map(_UNTESTED.match, case.notes))}
    found = kinds_of(listed, outlooks)
    return {key: f"{kind}{UNTESTED_MARK}" if key in untested else kind for key, kind in found.items()}


def outlook_rows(outlooks: Iterable[Outlook]) -> list[MetricRow]:
    """Rows without a number, for tables: an interval in which no case was run, or cases without runs."""
    rows = []
    for one in outlooks:
        cell = MeasuredCell(one.benchmark, one.version, one.model, one.defense or WITHOUT_RUNS, one.attack)
        low, high = (math.nan if end is None else end for end in (one.low, one.high))
        rows.append(MetricRow(*cell, OVERALL, TARGETED_ASR, *Number(math.nan, low, high, 0)))
    return rows


def outlook_notes(outlooks: Iterable[Outlook]) -> Iterator[str]:
    """One sentence on each of them."""
    for one in outlooks:
        if one.low is None or one.high is None:
            yield (
                f"{one.model} has no runs of the goals of {counted(one.cases, 'case')} under {one.attack}: "
                "not run, and in no total (docs/victims.md)."
            )
        else:
            yield (
                f"{one.defense} only rewords, so nothing is run and no number given: by what it did to other "
                f"models, an ASR of {one.low:.0f} to {one.high:.0f}% under {one.attack} (docs/victims.md)."
            )


def forecast_notes(cases: Iterable[CaseRow]) -> Iterator[str]:
    """What kind of forecast each line is, and whose roles have no runs; nothing where no case is one."""
    found: dict[str, dict[str, None]] = {}
    models: dict[str, None] = {}
    untested: dict[str, dict[str, None]] = {}
    for case in cases:
        if case.forecast_kind is not None:
            found.setdefault(case.forecast_kind, {})[case.defense] = None
            models[case.shown_model] = None
            for role in filter(None, map(_UNTESTED.match, case.notes)):
                untested.setdefault(case.defense, {})[role[1]] = None
    if found:
        told = "; ".join(
            f"{kind} ({_MEANINGS.get(kind, kind)}): {', '.join(defenses)}" for kind, defenses in found.items()
        )
        yield (
            "Forecasts from published runs, no model's own numbers; what they are worth: docs/victims.md. "
            f"{', '.join(models)}: {told}."
        )
    if untested:
        told = "; ".join(f"{defense} ({', '.join(roles)})" for defense, roles in sorted(untested.items()))
        yield f"Untested roles, of which there are no runs and which play their script: {told}."


def with_kinds(output: Output, cases: Iterable[CaseRow], outlooks: Iterable[Outlook] = ()) -> Output:
    """The output whose records say what kind of forecast each number is; as it was without a victim."""
    kinds = kinds_of(cases, outlooks)
    if not kinds:
        return output
    records, data = output.records, output.data
    rows = [{**row, COLUMN: _kind(row, kinds)} for row in records.rows]
    if isinstance(data, Mapping):
        data = {name: rows if value is records.rows else value for name, value in data.items()}
    return replace(output, records=LongForm({**records.columns, COLUMN: "str"}, rows), data=data)


def _kind(row: Mapping[str, object], kinds: Kinds) -> str | None:
    """The kind of a record's number; a table of the paper calls the model of the runs `run_model`."""
    return kinds.get((str(row.get("run_model", row.get("model"))), str(row.get("defense"))))
