"""A table of the paper ready to be written: its grid, the notes below it, and what would fill its gaps."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from agentsys.analysis.metrics.cell_verdict import BROKEN, write_verdict_notes
from agentsys.analysis.metrics.comparison import compare_all_with_none
from agentsys.analysis.metrics.rates import TARGETED_ASR, Percent
from agentsys.analysis.paper.paper_tables import (
    ATTACK,
    PER_CASE,
    POOLED_OVER_SUITES,
    RUN_AS,
    FilledTable,
    PaperCell,
    PaperRow,
    count_chosen_rounds,
)
from agentsys.analysis.statistics.outcome_grid import CONFIDENCE, REPLICATES, ErrorRule
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.case_notes import SIMULATED_NOTE, write_errored_notes, write_replay_notes
from agentsys.analysis.tables.result_notes import write_honesty_notes
from agentsys.analysis.tables.table_document import (
    PAPER,
    Document,
    Grid,
    GridCell,
    Output,
    make_cells,
    make_long_form,
    write_interval,
    write_value,
)
from agentsys.base.grouping import format_count, group_by
from agentsys.extensions import list_shipped_config_dirs
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import CaseRow
from agentsys.records.stored_plan import describe_unfinished

SIMULATED, FEWER_SUITES, MIXED, NO_RUNS = "†", "*", "‡", "—"
"""Marks of a simulated model's number; an overall number of fewer suites than the paper's; a version of several;
and of a place for which no case was run, or the paper has no number."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One number of a table, for other programs. The fields are the columns."""

    table: int
    model: str
    """The paper's name of the model; a simulated one is marked."""
    defense: str
    attack: str
    suite: str
    """A suite, `overall`, or `all` (pooled) in Table 1."""
    metric: str
    paper: Percent | None
    """As printed; None where the paper has no such number."""
    value: Percent | None
    """Ours; None where nothing was run, nan where undefined."""
    ci_low: Percent | None
    ci_high: Percent | None
    n: int
    """Cases our value rests on; 0 where nothing was run."""
    errors: int
    verdict: str
    """`valid`, `suspect` or `broken`; where it is broken, ours is nan. Empty where nothing was run."""
    reasons: str
    run_model: str | None
    """The model as the runs name it."""
    version: str | None
    """Benchmark version(s) of the runs."""
    simulated: bool


def list_table_records(filled: FilledTable) -> Iterator[TableRecord]:
    """List every place of a table that can hold a number."""
    for row in filled.rows:
        line = row.line
        of_runs = (line.model, line.version, line.simulated) if line else (None, None, False)
        for cell in row.cells:
            if cell.spot is not None:
                ours = cell.ours or (None, None, None, 0, 0, "", "")
                key = (filled.table.number, row.model, row.defense, *cell.spot)
                yield TableRecord(*key, cell.paper, *ours, *of_runs)


def make_paper_output(filled: FilledTable, document: Document) -> Output:
    """Make a table ready to be written in any form."""
    records = make_long_form(TableRecord, list_table_records(filled))
    return Output(f"Table {filled.table.number}", document, records)


def make_paper_document(
    filled: FilledTable,
    reading: LoadedCases,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    logdir: str = "results/runs/paper",
) -> Document:
    """Make the table, its notes, and the commands that would fill what is empty in a log folder."""
    sections = [(f"Table {filled.table.number}. {filled.table.title}", [_make_grid(filled)])]
    notes = [
        *write_verdict_notes(list_table_records(filled)),
        *write_paper_notes(filled, reading, errors),
    ]
    return Document(sections, notes, list_filling_commands(filled, logdir))


def _make_grid(filled: FilledTable) -> Grid:
    table, rows, breaks = filled.table, [], set()
    for index, row in enumerate(filled.rows):
        above = filled.rows[index - 1]  # of the first row, of which nothing is asked, the last one
        # A rule stands where the leading group (the model, or with several rows each the defense) changes.
        changed = row.model != above.model or (row.defense != above.defense and not table.models_first)
        if index and changed and (table.models_first or len(table.bands) > 1):
            breaks.add(index)
        line = row.line
        # Two snapshots of a model would look alike under its short name.
        several = len({one.model for one in filled.lines if one.short == row.model}) > 1
        version = f"{line.version}{MIXED if line.is_mixed else ''}" if line else NO_RUNS
        numbers = [
            text for cell in row.cells for text in (_write_ours(cell, row), _write_paper(cell, row, filled))
        ]
        model = line.model if line and several else row.model
        name = GridCell(row.defense, row.verdict)
        rows.append(make_cells(model, name, *row.band.labels, *numbers, _count_cases(row), version))
    numbered = [title for column in table.columns for title in (column, PAPER)]
    header = ("Model", "Defense", *table.label_headers, *numbered, "Cases", "Version")
    names = 2 + len(table.label_headers)
    return Grid(
        "in percent", header, rows, names, range(names, names + len(numbered)), breaks=frozenset(breaks)
    )


def _write_paper(cell: PaperCell, row: PaperRow, filled: FilledTable) -> str:
    if cell.spot is None:
        return ""
    beside = {} if row.printed else filled.values_beside.get(row.defense, {})
    value = cell.paper if cell.paper is not None else beside.get(cell.spot)
    return NO_RUNS if value is None else f"{value:.2f}"


def _write_ours(cell: PaperCell, row: PaperRow) -> GridCell:
    if cell.spot is None:
        return GridCell("")
    if cell.ours is None or row.line is None:
        return GridCell(NO_RUNS)
    if cell.ours.verdict == BROKEN:
        return GridCell(BROKEN)
    marks = SIMULATED if row.line.simulated else ""
    if cell.spot.suite == OVERALL and row.line.list_missing_suites(cell.spot.attack):
        marks += FEWER_SUITES
    count = f"n={cell.ours.n}" if cell.spot.suite == POOLED_OVER_SUITES else ""
    detail = ", ".join(filter(None, (write_interval(cell.ours), count)))
    return GridCell(write_value(cell.ours) + marks, detail)


def _count_cases(row: PaperRow) -> GridCell:
    measured = [(cell.spot, cell.ours) for cell in row.cells if cell.spot and cell.ours]
    counts, errors = [], 0
    for numbers in group_by(measured, lambda pair: pair[0].attack).values():
        # The overall number counts all suites; where there is none, all cells do together.
        chosen = [number for spot, number in numbers if spot.suite == OVERALL][:1]
        chosen = chosen or [number for _, number in numbers]
        counts.append(sum(number.n for number in chosen))
        errors += sum(number.errors for number in chosen)
    return GridCell("+".join(map(str, counts)) or NO_RUNS, format_count(errors, "error") if errors else "")


_MOST_KINDS = 4
"""Kinds of cases that the note on those left out names."""
_PAPER_MIXES = (
    "The paper's own rows mix versions of the benchmark: No Defense of gpt-4o-mini and gpt-4o rests on 240 "
    "attacked Workspace cases (version 1: 59.17% and 24.17% are 142 and 58 of 240), AgentSys and the other "
    "models' rows on 560 (from v1.2). The added 320 rarely succeed, so that the two are not the same test."
)
_CHOSEN_ROUNDS = (
    "In {} cases the round was chosen, not observed (attack injection_round): the injection stands only "
    "where a clean run first reads it in that round. The paper's numbers are of observed rounds."
)
_TRANSFER = "Its text was chosen on some user tasks and meets others here."
_START = "A search starts from the important_instructions text and is not told the adaptive one."
_WHY_BELOW = (
    ("adaptive", ATTACK, "It speaks to whoever fills in a dictionary; an agent without one reads a detour."),
    ("pair", ATTACK, _TRANSFER),
    ("pair", "adaptive", f"{_TRANSFER} {_START}"),
    (PER_CASE, ATTACK, "The cases are not the same, or the model's replies to one text were not."),
    (PER_CASE, "adaptive", _START),
)
"""(the attack that should be at least as strong, the other, a reason why it may not be)."""


def write_paper_notes(filled: FilledTable, reading: LoadedCases, errors: ErrorRule) -> list[str]:
    """Write the notes of one table, in order of importance."""
    cases = filled.cells.cases
    simulated = any(line.simulated for line in filled.lines)
    chosen = count_chosen_rounds(filled, reading.cases) if filled.table.number == 1 else 0
    models = dict.fromkeys((line.short, line.model) for line in filled.lines)
    return [
        f"Ours in percent, beside the value the paper prints; {CONFIDENCE:.0f}% intervals: user tasks and "
        f"injection tasks resampled, {REPLICATES} times. {_explain_numbers(filled)}",
        *(
            [f"paper: what it prints for {beside}, where it has no such model."]
            if (beside := filled.model_beside)
            else []
        ),
        *describe_unfinished(reading.unfinished),
        *([f"{SIMULATED} {SIMULATED_NOTE}"] if simulated else []),
        *write_replay_notes(cases),
        *_note_searches(filled),
        *([_CHOSEN_ROUNDS.format(chosen)] if chosen else []),
        *([_PAPER_MIXES] if filled.table.mixes_versions else []),
        *_note_versions(filled),
        *(f"{short}: run as {model}." for short, model in models if short != model),
        *write_errored_notes(cases, errors),
        *write_honesty_notes(filled.cells, compare_all_with_none(filled.cells, errors), errors),
        *_note_left_out(filled, reading),
        *_note_gaps(filled),
    ]


def _explain_numbers(filled: FilledTable) -> str:
    if filled.table.number != 1:
        return "Overall: unweighted mean of the suites."
    attacked = sum(case.attack == ATTACK for case in filled.cells.cases)
    placed = sum(cell.ours.n for row in filled.rows for cell in row.cells if cell.ours)
    return (
        "Length: tool results in the recorded run; round: the first of them that holds the injection. Pooled "
        f"over suites. {placed} of {attacked} attacked cases are shown: the others have another length, or "
        "the injection is in none of their tool results."
    )


def _note_searches(filled: FilledTable) -> Iterator[str]:
    """Say what the PAIR rows of Table 4 are, and where they are no upper bound, as which they are taken."""
    ran = {case.attack for case in filled.cells.cases}
    if filled.table.number != 4 or not ran & set(RUN_AS.values()):
        return
    searched = ", ".join(f"{name} is {label}" for label, name in RUN_AS.items() if name in ran)
    yield (
        f"Searched texts: {searched}. The attacker is "
        "told the user's request, the tools, the place of its text and what the defense does. pair: one "
        "text per injection task, searched on some user tasks and used on the others; the former are in no "
        "number. "
        f"{PER_CASE}: a search for every case, a success at any query within the budget."
    )
    for line, rows in group_by((row for row in filled.rows if row.line), lambda row: row.line).items():
        rates = {
            cell.spot.attack: cell.ours.value
            for row in rows
            for cell in row.cells
            if cell.ours and cell.spot and (cell.spot.suite, cell.spot.metric) == (OVERALL, TARGETED_ASR)
        }
        for higher, lower, why in _WHY_BELOW:
            if line and higher in rates and lower in rates and rates[higher] < rates[lower]:
                yield (
                    f"{line.short} / {line.defense}: {higher} ({rates[higher]:.2f}) is below {lower} "
                    f"({rates[lower]:.2f}). {why}"
                )


def _note_versions(filled: FilledTable) -> Iterator[str]:
    """Name rows that rest on several versions or too few suites, and rows of one model on different versions."""
    for line in filled.lines:
        if line.is_mixed:
            yield (
                f"{MIXED} {line.model} / {line.defense}: cases of different benchmark versions "
                f"({', '.join(line.versions)}) stand in one row."
            )
    for model, lines in group_by(filled.lines, lambda line: line.model).items():
        if len({line.versions for line in lines}) > 1:
            named = ", ".join(f"{line.defense} {line.version}" for line in lines)
            yield f"{model}: rows rest on different benchmark versions ({named}); they are not the same test."
    has_overall = any(spot and spot.suite == OVERALL for band in filled.table.bands for spot in band.spots)
    for line in filled.lines if has_overall else ():
        for attack in filled.table.attacks:
            if suites := line.list_missing_suites(attack):
                yield (
                    f"{FEWER_SUITES} {line.model} / {line.defense} / {attack}: overall is without "
                    f"{', '.join(suites)}, which the paper's number covers."
                )


def _note_left_out(filled: FilledTable, reading: LoadedCases) -> Iterator[str]:
    alone = sum(case.is_injection_task_alone for case in reading.cases)
    if other := len(reading.cases) - len(filled.cells.cases) - alone:
        yield f"In the runs but not in this table: {other} cases ({_list_kinds(filled, reading.cases)})."
    if alone:
        yield f"Left out: {alone} runs of injection tasks as if a user had asked for them."
    if reading.repeated_count:
        yield f"Left out: {reading.repeated_count} files of cases that are stored more than once."
    if reading.skipped_files:
        yield f"Left out: {len(reading.skipped_files)} files that could not be read."


def _list_kinds(filled: FilledTable, cases: Iterable[CaseRow]) -> str:
    inside = {(line.model, line.defense, case.attack) for line in filled.lines for case in line.cases}
    kinds: Counter[str] = Counter()
    for case in cases:
        cell = (case.table_model, case.defense, case.attack)
        if cell not in inside and case.is_scored:
            kinds[f"{' / '.join(cell)} on {case.benchmark}"] += 1
    listed = [f"{name}: {count}" for name, count in kinds.most_common(_MOST_KINDS)]
    if len(kinds) > _MOST_KINDS:
        listed.append(f"and {len(kinds) - _MOST_KINDS} more kinds")
    return "; ".join(listed)


def _note_gaps(filled: FilledTable) -> Iterator[str]:
    """Say that cells are empty, and which of the missing defenses and attacks no shipped config names."""
    places = (cell for row in filled.rows if row.printed for cell in row.cells)
    if not any(cell.ours is None and cell.paper is not None for cell in places):
        return
    missing = _list_missing(filled)
    names = dict.fromkeys(("defense", name) for _, name in missing)
    names |= dict.fromkeys(("attack", name) for attacks in missing.values() for name in attacks)
    lacking = ", ".join(f"{group} {name}" for group, name in names if not _has_config(group, name))
    yield f"{NO_RUNS} nothing was run. What would fill the paper's rows stands below." + (
        f" Not shipped yet, to be added as a config first: {lacking}." if lacking else ""
    )


def list_filling_commands(filled: FilledTable, logdir: str) -> list[str]:
    """List one `agentsys run` per group of models, defenses and attacks that are missing together.

    Returns:
        Shell commands. Names without a shipped config are left out; a note names them.
    """
    # Merged first over defenses, then over models, so that few commands are left.
    by_model: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (model, defense), wanted in _list_missing(filled).items():
        attacks = tuple(attack for attack in wanted if _has_config("attack", attack))
        if attacks and _has_config("defense", defense) and _has_config("model", model):
            by_model.setdefault((model, attacks), []).append(defense)
    merged = group_by(by_model, lambda key: (tuple(by_model[key]), key[1]))
    return [
        f"agentsys run model={','.join(model for model, _ in keys)} defense={','.join(defenses)} "
        f"attack={','.join(attacks)} logdir={shlex.quote(logdir)}"
        for (defenses, attacks), keys in merged.items()
    ]


def _list_missing(filled: FilledTable) -> dict[tuple[str, str], dict[str, None]]:
    """(model, defense) -> attacks (or `none`) that an empty cell of the paper's rows needs."""
    wanted: dict[tuple[str, str], dict[str, None]] = {}
    for row in filled.rows:
        cases = row.line.cases if row.line else ()
        ran, suites = {case.attack for case in cases}, {case.suite for case in cases}
        # A cell is missing only where nothing else explains it: the attack or the suite has no case.
        attacks = dict.fromkeys(
            cell.spot.attack
            for cell in row.cells
            if cell.spot and cell.ours is None and cell.paper is not None
            if cell.spot.attack not in ran or cell.spot.suite not in suites
        )
        if row.printed and attacks:
            wanted.setdefault((row.model, row.defense), {}).update(attacks)
    return wanted


def _has_config(group: str, name: str) -> bool:
    return any((folder / group / f"{name}.yaml").is_file() for folder in list_shipped_config_dirs())
