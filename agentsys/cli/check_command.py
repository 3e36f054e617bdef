"""`agentsys check`: whether stored runs can be believed, on one page with one verdict."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentsys.analysis.metrics.cell_verdict import BROKEN, GRADES, VALID
from agentsys.analysis.metrics.rates import ScoredCells
from agentsys.base.grouping import format_count
from agentsys.cli.cli_output import print_line
from agentsys.cli.stored_runs import NamesOption
from agentsys.cli.terminal import escape_to_line, raise_on_stop_signals
from agentsys.errors import ConfigError
from agentsys.extensions import CheckFinding, RunsToCheck, load_extensions
from agentsys.records.case import STANDS_TWICE
from agentsys.records.case_reader import LoadedCases, describe_faults, read_cases
from agentsys.records.folder_index import remove_index
from agentsys.records.names_file import RunNames
from agentsys.records.runs_source import fetch_runs, open_runs

_MARKS = {"valid": "+", "suspect": "?", "broken": "-", "note": " "}
_SHOWN_DETAILS = 5
_VERDICTS = {
    "valid": "Holds: nothing was found against these runs.",
    "suspect": "Holds, with doubts: see the lines with a question mark.",
    "broken": "Does not hold: see the lines with a minus.",
}


def check_command(
    given: Annotated[
        Path, typer.Argument(metavar="RUNS|BUNDLE", help="Folder of runs, a bundle, or a bundle's address.")
    ],
    form: Annotated[
        Literal["text", "json"], typer.Option("--format", help="text for people; json: every detail.")
    ] = "text",
    trust_code: Annotated[
        bool,
        typer.Option("--trust-code", help="Execute source files that a bundle brings. Read them first."),
    ] = False,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Cases under way at once.")] = 2,
    version: Annotated[
        str | None,
        typer.Option(
            metavar="V",
            help="Version for records that name none; default: the one that explains most scores.",
        ),
    ] = None,
    names: NamesOption = None,
) -> None:
    """Check records, completeness, cells, scores and, of a bundle, whether it runs again. No key, no network.

    Exits with 0 if the runs hold, 1 if something is broken, 2 if they cannot be read.
    """
    with raise_on_stop_signals():
        file = fetch_runs(given)
        _check(given, form, RunsToCheck(file, open_runs(file), trust_code, workers, version, names))


def _check(given: Path, form: str, runs: RunsToCheck) -> None:
    remove_index(runs.folder)  # Files may have been changed in their places without a sign.
    reading = read_cases([runs.folder], RunNames(runs.names))
    refusal: ConfigError | None = None
    found = [*_check_records(reading), _check_completeness(reading)]
    found += [*_check_settings(reading), *_check_cells(reading)]
    for room in load_extensions():
        if room.check is not None:
            module, _, function = room.check.partition(":")
            try:
                found += getattr(import_module(module), function)(runs)
            except ConfigError as error:  # a bundle with code of its own: first what was found without it
                refusal = error
    verdict = max((one.grade for one in found if one.grade in GRADES), key=GRADES.index)
    if form == "json":
        document = {"verdict": verdict, "findings": [dataclasses.asdict(one) for one in found]}
        sys.stdout.write(f"{json.dumps(document, indent=2)}\n")
    else:
        _print_page(given, reading, found, verdict)
    if refusal is not None:
        raise refusal
    if verdict == BROKEN:
        raise typer.Exit(1)


def _check_records(reading: LoadedCases) -> Iterator[CheckFinding]:
    count = format_count(len(reading.cases), "case")
    bad = tuple(f"{file.path}: {file.reason}" for file in reading.skipped_files)
    errors = sum(case.status != "ok" for case in reading.cases)
    failed = f"; {format_count(errors, 'case')} ended in an error and count in no rate" if errors else ""
    is_strangers = all(case.foreign for case in reading.cases)
    unread = f", {format_count(len(bad), 'file')} unreadable" if bad and not is_strangers else ""
    grade = "broken" if unread else "suspect" if errors else VALID
    yield CheckFinding("Records", grade, f"{count} read{unread}{failed}", bad if unread else ())
    if faults := tuple(describe_faults(reading.cases)):
        grade = BROKEN if any(STANDS_TWICE in line for line in faults) else "suspect"
        yield CheckFinding("Faults", grade, f"{format_count(len(faults), 'record')} with faults", faults)
    if bad and is_strangers:  # nobody planned these cases; a file that no number uses decides nothing
        yield CheckFinding("Unread", "note", f"{format_count(len(bad), 'file')} in no number", bad)
    if reading.repeated_files:
        lines = tuple(f"{one.source} (counted: {one.counted_source})" for one in reading.repeated_files)
        text = f"{format_count(len(lines), 'second copy', 'second copies')} of cases left out"
        yield CheckFinding("Copies", "note", text, lines)
    told = (*faults, *reading.mixed_settings)  # by findings of their own
    if names := tuple(note for note in reading.resolution_notes if not any(one in note for one in told)):
        yield CheckFinding("Names", "note", "what folders decided", names)


def _check_completeness(reading: LoadedCases) -> CheckFinding:
    lines = tuple(one.summary for one in reading.unfinished)
    if lines:
        return CheckFinding("Complete", "broken", "planned cases have no record", lines)
    if all(case.foreign for case in reading.cases):
        return CheckFinding("Complete", "note", "no plan of these runs is known")
    if reading.skipped_files:
        return CheckFinding(
            "Complete", "note", "no planned case lacks a file; some cannot be read, see Records"
        )
    return CheckFinding("Complete", VALID, "no planned case is known to lack a record")


def _check_settings(reading: LoadedCases) -> Iterator[CheckFinding]:
    """Report runs that share a name but not their settings: readers would take them for one experiment."""
    if mixed := reading.mixed_settings:
        text = f"two settings under {format_count(len(mixed), 'name')}, counted as rows of their own"
        yield CheckFinding("Settings", "suspect", text, mixed)
    if noted := reading.noted_settings:
        yield CheckFinding(
            "Settings", "note", "one row holds cases that differ in what decides no number", noted
        )


def _check_cells(reading: LoadedCases) -> Iterator[CheckFinding]:
    verdicts = ScoredCells(reading.cases).verdicts
    doubted = [(cell, found) for cell, found in verdicts.items() if found.verdict != VALID]
    worst = max((found.verdict for found in verdicts.values()), key=GRADES.index, default=VALID)
    doubted.sort(key=lambda one: -GRADES.index(one[1].verdict))
    details = tuple(
        f"{cell.model} / {cell.defense} / {cell.attack}: {found.verdict}: {found.reasons}"
        for cell, found in doubted
    )
    text = f"{len(verdicts) - len(doubted)} of {format_count(len(verdicts), 'cell')} valid"
    yield CheckFinding("Cells", worst, text, details)


def _print_page(given: Path, reading: LoadedCases, found: list[CheckFinding], verdict: str) -> None:
    simulated = any(case.simulated for case in reading.cases)
    print_line(escape_to_line(f"{given}{' (simulated: a script, no LLM)' if simulated else ''}"))
    for one in found:
        print_line(escape_to_line(f"{_MARKS[one.grade]} {one.subject:<10} {one.text}"), hang=" " * 13)
        for detail in one.details[:_SHOWN_DETAILS]:
            print_line(escape_to_line(f"             {detail}"), hang=" " * 15)
        if len(one.details) > _SHOWN_DETAILS:
            print_line(f"             and {len(one.details) - _SHOWN_DETAILS:,} more (--format json has all)")
    print_line(_VERDICTS[verdict])
