"""What kind of forecast a number is: a column for programs, a note for people; nothing without a victim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from agentsys.analysis.tables.output import LongForm, Output
from agentsys.records.case_row import CaseRow

COLUMN = "forecast_kind"
_MEANINGS: Mapping[str, str] = {
    "fitted": "drawn from the runs' own rates",
    "structural": "decided by what the defense shows and offers",
    "bound": "an upper bound of the ASR",
}


def forecast_notes(cases: Iterable[CaseRow]) -> Iterator[str]:
    """One sentence that names the kind of each line's forecast; nothing where no case is one."""
    found: dict[str, dict[str, None]] = {}
    models: dict[str, None] = {}
    for case in cases:
        if case.forecast_kind is not None:
            found.setdefault(case.forecast_kind, {})[case.defense] = None
            models[case.shown_model] = None
    if found:
        told = "; ".join(
            f"{kind} ({_MEANINGS.get(kind, kind)}): {', '.join(defenses)}" for kind, defenses in found.items()
        )
        yield f"Forecasts, {', '.join(models)}: {told} (docs/victims.md)."


def with_kinds(output: Output, cases: Iterable[CaseRow]) -> Output:
    """The output whose records say what kind of forecast each number is; as it was without a victim.

    Args:
        output: Its records have columns `model` and `defense`, as a rule.
        cases: The cases behind it.
    """
    kinds = {(case.shown_model, case.defense): case.forecast_kind for case in cases if case.forecast_kind}
    if not kinds:
        return output
    records, data = output.records, output.data
    rows = [{**row, COLUMN: _kind(row, kinds)} for row in records.rows]
    if isinstance(data, Mapping):
        data = {name: rows if value is records.rows else value for name, value in data.items()}
    return replace(output, records=LongForm({**records.columns, COLUMN: "str"}, rows), data=data)


def _kind(row: Mapping[str, object], kinds: Mapping[tuple[str, str], str | None]) -> str | None:
    """The kind of a record's number; a table of the paper calls the model of the runs `run_model`."""
    return kinds.get((str(row.get("run_model", row.get("model"))), str(row.get("defense"))))
