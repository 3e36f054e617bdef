"""Notes below a table of the paper: how to read it, and what is not as it seems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from agentsys.analysis.metrics.rates import TARGETED_ASR
from agentsys.analysis.paper.commands import without_config
from agentsys.analysis.paper.filled import FilledTable, PaperRow, caused_in
from agentsys.analysis.paper.layout import ATTACK, PER_CASE, RUN_AS, SUITES
from agentsys.analysis.paper.lines import RunLine
from agentsys.analysis.statistics.bootstrap import CONFIDENCE
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.exposure_notes import honesty_notes
from agentsys.analysis.tables.provenance_notes import SIMULATED_NOTE, replay_notes
from agentsys.analysis.tables.report import errored_notes
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import CaseRow
from agentsys.records.stored_plan import describe_unfinished

SIMULATED = "†"
"""Behind every number of a simulated model."""
FEWER_SUITES = "*"
"""Behind an overall number that covers fewer suites than the paper's."""
MIXED = "‡"
"""Behind the version of a row that rests on more than one."""
NO_RUNS = "—"
"""Where no case was run, or the paper has no number."""

_PAPER_MIXES = (
    "The paper's own rows mix versions of the benchmark: No Defense of gpt-4o-mini and gpt-4o rests on 240 "
    "attacked Workspace cases (version 1: 59.17% and 24.17% are 142 and 58 of 240), AgentSys and the other "
    "models' rows on 560 (from v1.2). The added 320 rarely succeed, so that the two are not the same test."
)


def notes(filled: FilledTable, reading: LoadedCases, errors: ErrorRule, replicates: int) -> list[str]:
    """The notes of one table, in order of importance."""
    shown = [case for line in filled.lines for case in line.cases]
    return [
        f"Ours in percent, beside the value the paper prints; {CONFIDENCE:.0f}% intervals: user tasks and "
        f"injection tasks resampled, {replicates} times. {_reading_of(filled)}",
        *describe_unfinished(reading.unfinished),
        *([f"{SIMULATED} {SIMULATED_NOTE}"] if any(line.simulated for line in filled.lines) else []),
        *replay_notes(shown),
        *_searched(filled),
        *_caused(filled, reading),
        *([_PAPER_MIXES] if filled.table.mixes_versions else []),
        *_mixed(filled),
        *_versions_differ(filled.lines),
        *_fewer_suites(filled),
        *_snapshots(filled.lines),
        *errored_notes(shown, errors),
        *honesty_notes(shown, errors),
        *_not_in_table(filled, reading),
        *_empty(filled),
    ]


def covers_fewer_suites(line: RunLine, attack: str) -> bool:
    """Tell whether an attack (or `none`) of a line lacks one of AgentDojo's four suites."""
    return bool(missing_suites(line, attack))


def missing_suites(line: RunLine, attack: str) -> list[str]:
    """The suites without a case of this attack; empty where the attack was not run at all."""
    ran = {case.suite for case in line.cases if case.attack == attack}
    return [suite for suite in SUITES if suite not in ran] if ran else []


def _reading_of(filled: FilledTable) -> str:
    if filled.table.number != 1:
        return "Overall: unweighted mean of the suites."
    attacked = sum(case.attack == ATTACK for line in filled.lines for case in line.cases)
    placed = sum(cell.ours.n for row in filled.rows for cell in row.cells if cell.ours)
    return (
        "Length: tool results in the recorded run; round: the first of them that holds the injection. Pooled "
        f"over suites. {placed} of {attacked} attacked cases are shown: the others have another length, or "
        "the injection is in none of their tool results."
    )


def _caused(filled: FilledTable, reading: LoadedCases) -> Iterator[str]:
    count = caused_in((case for line in filled.lines for case in line.cases), reading.cases)
    if filled.table.number == 1 and count:
        yield (
            f"In {count} cases the round was chosen, not observed (attack injection_round): the injection "
            "stands only where a clean run first reads it in that round. The paper's numbers are of observed "
            "rounds."
        )


def _searched(filled: FilledTable) -> Iterator[str]:
    """Table 4: what the PAIR rows are, and where they are not the upper bound that readers take them for."""
    ran = {case.attack for line in filled.lines for case in line.cases}
    if filled.table.number != 4 or not ran & set(RUN_AS.values()):
        return
    named = {shown: label for label, shown in RUN_AS.items() if shown in ran}
    yield (
        f"Searched texts: {', '.join(f'{one} is {label}' for one, label in named.items())}. The attacker is "
        "told the user's request, the tools, the place of its text and what the defense does. pair: one "
        "text per injection task, searched on some user tasks and used on the others; the former are in no "
        "number. "
        f"{PER_CASE}: a search for every case, a success at any query within the budget."
    )
    for row in filled.rows:
        yield from _out_of_order(row, filled)


def _out_of_order(row: PaperRow, filled: FilledTable) -> Iterator[str]:
    """Say where an attack that knows more has a lower overall ASR than one that knows less."""
    if row.line is None or row.band != filled.table.bands[-1]:
        return
    same = [one for one in filled.rows if one.line is row.line]
    found = {
        cell.spot.attack: cell.ours.value
        for one in same
        for cell in one.cells
        if cell.ours and cell.spot and (cell.spot.suite, cell.spot.metric) == (OVERALL, TARGETED_ASR)
    }
    for higher, lower, why in _WHY_BELOW:
        if higher in found and lower in found and found[higher] < found[lower]:
            yield (
                f"{row.model} / {row.defense}: {higher} ({found[higher]:.2f}) is below {lower} "
                f"({found[lower]:.2f}). {why}"
            )


_TRANSFER = "Its text was chosen on some user tasks and meets others here."
_START = "A search starts from the important_instructions text and is not told the adaptive one."
_WHY_BELOW = (
    ("adaptive", ATTACK, "It speaks to whoever fills in a dictionary; an agent without one reads a detour."),
    ("pair", ATTACK, _TRANSFER),
    ("pair", "adaptive", f"{_TRANSFER} {_START}"),
    (
        PER_CASE,
        ATTACK,
        "The cases are not the same, or the model's replies to one text were not.",
    ),
    (PER_CASE, "adaptive", _START),
)
"""(the attack that should be at least as strong, the other, a reason why it may not be)."""


def _mixed(filled: FilledTable) -> Iterator[str]:
    for line in filled.lines:
        if line.is_mixed:
            yield (
                f"{MIXED} {line.model} / {line.defense}: cases of different benchmark versions "
                f"({', '.join(line.versions)}) stand in one row."
            )


def _versions_differ(lines: Sequence[RunLine]) -> Iterator[str]:
    """Rows of one model that are not comparable, because they were run on different versions."""
    for model in dict.fromkeys(line.model for line in lines):
        found = [line for line in lines if line.model == model]
        if len({line.versions for line in found}) > 1:
            named = ", ".join(f"{line.defense} {line.version}" for line in found)
            yield f"{model}: rows rest on different benchmark versions ({named}); they are not the same test."


def _fewer_suites(filled: FilledTable) -> Iterator[str]:
    if not any(spot and spot.suite == OVERALL for band in filled.table.bands for spot in band.spots):
        return
    for line in filled.lines:
        lacking = {attack: missing_suites(line, attack) for attack in filled.table.attacks}
        for attack, suites in lacking.items():
            if suites:
                yield (
                    f"{FEWER_SUITES} {line.model} / {line.defense} / {attack}: overall is without "
                    f"{', '.join(suites)}, which the paper's number covers."
                )


def _snapshots(lines: Iterable[RunLine]) -> Iterator[str]:
    for short, model in dict.fromkeys((line.short, line.model) for line in lines):
        if short != model:
            yield f"{short}: run as {model}."


def _not_in_table(filled: FilledTable, reading: LoadedCases) -> Iterator[str]:
    shown = sum(len(line.cases) for line in filled.lines)
    alone = sum(case.is_injection_task_alone for case in reading.cases)
    other = len(reading.cases) - shown - alone
    if other:
        yield f"In the runs but not in this table: {other} cases ({_kinds(filled, reading.cases)})."
    if alone:
        yield f"Left out: {alone} runs of injection tasks as if a user had asked for them."
    if reading.repeated_count:
        yield f"Left out: {reading.repeated_count} files of cases that are stored more than once."
    if reading.skipped_files:
        yield f"Left out: {len(reading.skipped_files)} files that could not be read."


def _kinds(filled: FilledTable, cases: Iterable[CaseRow]) -> str:
    """The cells behind the cases that a table leaves out, the largest first, at most four of them."""
    shown = {(line.model, line.defense, case.attack) for line in filled.lines for case in line.cases}
    found: Counter[str] = Counter()
    for case in cases:
        cell = (case.table_model, case.defense, case.attack)
        if cell not in shown and case.is_scored:
            found[f"{' / '.join(cell)} on {case.benchmark}"] += 1
    listed = [f"{name}: {count}" for name, count in found.most_common(4)]
    return "; ".join([*listed, *([f"and {len(found) - 4} more kinds"] if len(found) > 4 else [])])


def _empty(filled: FilledTable) -> Iterator[str]:
    if any(
        row.printed and cell.ours is None and cell.paper is not None
        for row in filled.rows
        for cell in row.cells
    ):
        lacking = without_config(filled)
        yield f"{NO_RUNS} nothing was run. What would fill the paper's rows stands below." + (
            f" Not shipped yet, to be added as a config first: {', '.join(lacking)}." if lacking else ""
        )
