"""`html_report`: stored runs -> one HTML file with tables, figures and every trajectory that fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentsys import __version__
from agentsys.analysis.html_report.case_index import in_reading_order, index_row
from agentsys.analysis.html_report.cell_links import linked
from agentsys.analysis.html_report.facts import Facts
from agentsys.analysis.html_report.interval_figure import interval_figure
from agentsys.analysis.html_report.page import (
    PageContent,
    PageNumbers,
    SheetView,
    data_block,
    page,
    page_title,
)
from agentsys.analysis.html_report.paper_figures import PaperFigure
from agentsys.analysis.html_report.text_store import TextStore
from agentsys.analysis.html_report.token_figure import token_figure
from agentsys.analysis.html_report.trajectory import (
    TrajectoryView,
    stored_facts,
    stored_json,
    trajectory_view,
)
from agentsys.analysis.tables.escaping import plain
from agentsys.analysis.tables.report import Report
from agentsys.analysis.tables.results_document import results_document
from agentsys.analysis.tables.results_layout import sheets
from agentsys.base.grouping import group_by
from agentsys.records.case_reader import LoadedCases, describe_skipped
from agentsys.records.case_row import NO_ATTACK, CaseRow


@dataclass(frozen=True)
class ReportLimits:
    """Bounds on the size of a report."""

    cases: int = 2_000
    """Trajectories, at most."""
    characters: int = 40_000_000
    """Of all texts together; no further trajectory is added beyond."""


@dataclass(frozen=True)
class HtmlReport:
    """The document and what is in it."""

    html: str
    trajectories: int
    left_out: int
    """Cases whose numbers count and whose trajectory is not in the document."""


def html_report(
    reading: LoadedCases,
    found: Report,
    folders: Sequence[str] = (),
    *,
    limits: ReportLimits | None = None,
    figures: Sequence[PaperFigure] = (),
    made_on: str = "",
) -> HtmlReport:
    """Everything about some stored runs as one self-contained HTML document.

    Args:
        reading: What was read, from `read_cases`; the files are read again for their messages.
        found: What `report` measured of the same reading.
        folders: Names of the folders, for the head of the page.
        limits: How much may go in; every number covers all cases whatever the limits are.
        figures: Figures from `paper_figures`, if the page is to show them.
        made_on: A date, if the page is to show one.
    """
    limits = limits or ReportLimits()
    cases, facts, store = in_reading_order(reading.cases), Facts(), TextStore()
    views = _trajectories(cases, facts, store, limits)
    kept = sum(view is not None for view in views)
    content = PageContent(
        title=page_title(folders),
        folders=[plain(folder) for folder in folders],
        made_by=" · ".join(part for part in (f"agentsys {__version__}", made_on) if part),
        numbers=_page_numbers(reading, found, kept, figures),
        errors=facts.errors,
        skipped=[plain(line) for line in describe_skipped(reading.skipped_files, limit=50)],
        configs=facts.configs,
        versions=facts.versions,
        left_out=_left_out(len(cases) - kept, kept, limits),
        index=data_block([index_row(case) for case in cases]),
        trajectories=data_block({"texts": store.listed(), "trajectories": views}),
    )
    return HtmlReport(page(content), kept, len(cases) - kept)


def _page_numbers(
    reading: LoadedCases, found: Report, trajectories: int, figures: Sequence[PaperFigure]
) -> PageNumbers:
    """The head of the page, its tables and its figures."""
    return PageNumbers(
        counts=_counts(reading, trajectories),
        simulated_cases=sum(case.simulated for case in reading.cases),
        all_cases=len(reading.cases),
        sheets=_sheet_views(found),
        notes=tuple(plain(note) for note in found.notes),
        tokens=token_figure(in_reading_order(reading.cases)),
        paper_figures=figures,
    )


def _sheet_views(found: Report) -> list[SheetView]:
    """Tables and figure of every model on every version of a benchmark."""
    sections = results_document(found, intervals_by_suite=True).sections
    arranged = sheets(found.rows, found.titles)
    return [
        SheetView(title, [linked(grid, sheet) for grid in grids], interval_figure(sheet))
        for (title, grids), sheet in zip(sections, arranged, strict=True)
    ]


def _trajectories(
    cases: Sequence[CaseRow], facts: Facts, store: TextStore, limits: ReportLimits
) -> list[TrajectoryView | None]:
    """One per case, None where it was left out; every file is read once."""
    views: list[TrajectoryView | None] = [None] * len(cases)
    kept = 0
    for place in keeping_order(cases):
        stored = stored_json(cases[place].source)
        facts.add(cases[place], stored_facts(stored))
        if kept < limits.cases and store.characters < limits.characters:
            views[place] = trajectory_view(cases[place], stored, store)
            kept += 1
    return views


def _counts(reading: LoadedCases, kept: int) -> list[tuple[str, str]]:
    cases = reading.cases
    counts = [
        ("case", "cases", len(cases)),
        ("trajectory", "trajectories", kept),
        ("model", "models", len({case.table_model for case in cases})),
        ("defense", "defenses", len({case.defense for case in cases})),
        ("attack", "attacks", len({case.attack for case in cases} - {NO_ATTACK})),
        ("error", "errors", sum(case.status == "error" for case in cases)),
        ("skipped file", "skipped files", len(reading.skipped_files)),
    ]
    return [(one if count == 1 else many, f"{count:,}") for one, many, count in counts]


def _left_out(left: int, kept: int, limits: ReportLimits) -> str:
    if not left:
        return ""
    reason = (
        f"at most {limits.cases:,} were asked for"
        if kept >= limits.cases
        else f"the size limit of {limits.characters / 1e6:,.0f} million characters was reached"
    )
    return (
        f"{left:,} of {left + kept:,} trajectories are left out: {reason}. Errored cases were kept first, "
        "then some of every suite, defense, attack and outcome. Tables, figures and the list cover all "
        "cases; each case names its file. Make a report of fewer folders, or raise --max-cases."
    )


def keeping_order(cases: Sequence[CaseRow]) -> list[int]:
    """List the places of all cases, the ones to keep first.

    Errored cases come first. Then one case of every (benchmark, model, defense, attack, suite, outcome),
    then a second one of each, and so on: a report that holds some of the cases holds some of each kind.
    """
    queues = group_by(range(len(cases)), lambda place: _kind(cases[place]))
    turn = {place: turn for queue in queues.values() for turn, place in enumerate(queue)}
    return sorted(range(len(cases)), key=lambda place: (cases[place].status != "error", turn[place], place))


def _kind(case: CaseRow) -> tuple[object, ...]:
    cell = (case.benchmark, case.version, case.table_model, case.defense, case.attack, case.suite)
    return (*cell, case.status, case.utility, case.injection_success)
