"""`agentsys compare`: defenses against a baseline on the same cases."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentsys.analysis.metrics.compare import COMPARED_METRICS, Comparison
from agentsys.analysis.metrics.compare import compare as compared
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.tables.compare_document import compare_document, count_notes
from agentsys.analysis.tables.compare_export import comparison_json, differences_csv
from agentsys.analysis.tables.document import Document
from agentsys.analysis.tables.flips import FlipGroup, flip_grid, flip_groups, flip_lines
from agentsys.analysis.tables.write_latex import latex_document
from agentsys.analysis.tables.write_markdown import markdown_document
from agentsys.analysis.tables.write_terminal import needed_width, terminal_document
from agentsys.cli.stored_runs import NamesOption, read_stored, say_unfinished, shown_width
from agentsys.cli.terminal import one_line


class CompareFormat(StrEnum):
    """How a comparison is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    LATEX = "latex"


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR...", help="Folders that hold the runs of both defenses."),
    ],
    baseline: Annotated[str, typer.Option(help="The defense that the others are compared with.")] = "none",
    metric: Annotated[
        list[str] | None,
        typer.Option(help=f"One of {', '.join(COMPARED_METRICS)}; may be repeated. Default: all."),
    ] = None,
    form: Annotated[
        CompareFormat, typer.Option("--format", help="csv: one row per difference; json: flipped cases too.")
    ] = CompareFormat.TABLE,
    flips: Annotated[
        int, typer.Option(min=0, help="Flipped cases to list per metric and direction (json has all).")
    ] = 5,
    errors: Annotated[
        ErrorRule,
        typer.Option(help="Errored cases: report = left out and counted; agentdojo = failed and attacked."),
    ] = ErrorRule.REPORT,
    names: NamesOption = None,
) -> None:
    """Compare defenses on the same cases: differences, 95% intervals, p-values and flipped cases."""
    reading = read_stored(folders, names, whole_names=form in (CompareFormat.CSV, CompareFormat.JSON))
    say_unfinished(reading)
    found = compared(reading.cases, baseline, metric or COMPARED_METRICS, errors)
    groups = flip_groups(found.flips, flips)
    if form is CompareFormat.TABLE:
        _print(compare_document(found), flip_lines(groups))
    else:
        sys.stdout.write(_text(found, form, groups))


def _text(found: Comparison, form: CompareFormat, groups: Sequence[FlipGroup]) -> str:
    match form:
        case CompareFormat.CSV:
            for note in count_notes(found):
                print(one_line(note), file=sys.stderr)
            return differences_csv(found)
        case CompareFormat.JSON:
            return comparison_json(found)
        case CompareFormat.MARKDOWN:
            return markdown_document(_with_flips(compare_document(found), groups))
        case _:
            return latex_document(_with_flips(compare_document(found), groups))


def _with_flips(document: Document, groups: Sequence[FlipGroup]) -> Document:
    if not groups:
        return document
    return replace(document, sections=[*document.sections, ("Flipped cases", [flip_grid(groups)])])


def _print(document: Document, lines: Sequence[str]) -> None:
    """Never narrower than the tables, and paths whole: a cut number would be worse than a broken line."""
    Console(width=max(needed_width(document), shown_width())).print(terminal_document(document))
    for line in lines:
        print(one_line(line))
