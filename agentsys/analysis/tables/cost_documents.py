"""Cost and untrusted text per cell, and attack success at a budget of queries, ready to be written."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from agentsys.analysis.metrics.case_measures import GUARD_TITLES, MeasureRow, measure_costs
from agentsys.analysis.metrics.cell_verdict import shorten_verdict, write_verdict_notes
from agentsys.analysis.metrics.search_budget import (
    ASR,
    ASR_BY_ATTEMPTS,
    MEASURES,
    BudgetRow,
    StoredSearches,
    write_textless_notes,
)
from agentsys.analysis.statistics.outcome_grid import CONFIDENCE
from agentsys.analysis.statistics.rate_estimates import OVERALL, POOLED
from agentsys.analysis.tables.case_notes import write_benchmark_change_notes, write_provenance_notes
from agentsys.analysis.tables.table_document import (
    MISSING,
    Document,
    Grid,
    GridCell,
    Output,
    make_cells,
    make_long_form,
    make_number_cell,
    write_number,
)
from agentsys.base.grouping import group_by, pivot
from agentsys.records.case_row import CaseRow, is_simulated_name

TITLES = {
    "untrusted_tokens": "Untrusted tokens",
    "untrusted_tokens_workers": "in workers",
    "exposure_rounds": "Exposure rounds",
    "exposure_rounds_workers": "in workers",
    "model_calls": "Model calls",
    "uncached_tokens": "Uncached tokens",
    "seconds": "Seconds",
    "tokens_per_solved_task": "Tokens per solved task",
    "cost_per_solved_task": "USD per solved task",
    "asr_per_million_tokens": "ASR per million tokens",
    "asr_per_dollar": "ASR per USD",
}
"""Measure -> heading, in the order shown."""
_OF_ROLES = {
    "tokens_per_case": "Tokens per case and role",
    "cached_tokens_per_case": "Tokens per case and role, read from the provider's cache",
    "usd_per_case": "USD per case and role",
}
"""Measure -> heading of its grid. The first grid is there even where no run says what it used."""
_NAMES = ("Model", "Defense", "Attack", "Version")
_MOST_TOOLS = 5
"""Tools that a line on a filter names."""
_NOTES = (
    "Means per case, all cases of the cell together. Untrusted tokens: text from tools (characters / 3.6) "
    "admitted to a context that can call command tools; exposure rounds: model calls with the injection in "
    "such a context.",
    "Definitions: docs/data.md. n/a: undefined, or not recorded in these runs.",
)
_OF_GUARDS = (
    "Guards: FNR is the share of planted results (or of cases with one) that a guard let pass, FPR the share "
    "of others that it flagged, with 95% intervals; results without a readable verdict are in neither. Clean "
    "text cut: of the characters of results in which nothing was planted. In brackets: how many."
)


def make_cost_output(cases: Sequence[CaseRow]) -> Output:
    """Measure what cases cost and what untrusted text they met, ready to be written in any form."""
    notes = [*write_provenance_notes(cases), *_write_cache_notes(cases)]
    return make_measures_output(measure_costs(cases), notes)


def _write_cache_notes(cases: Sequence[CaseRow]) -> Iterable[str]:
    """Cells whose seconds are not those of their model, as some replies were kept."""
    cells = group_by(
        (case for case in cases if case.is_scored), lambda case: (case.table_model, case.defense, case.attack)
    )
    for cell, some in cells.items():
        kept, replies = (
            sum(case.cached_replies or 0 for case in some),
            sum(sum(case.replies_by_role.values()) for case in some),
        )
        if kept:
            yield (
                f"Seconds of {' / '.join(cell)} leave out the model's time for {kept:,} of {replies:,} replies, which "
                "came from the cache; their tokens are counted and their dollars are not."
            )


def make_measures_output(rows: Sequence[MeasureRow], notes: Iterable[str] = ()) -> Output:
    """Tabulate a line per cell: untrusted text and cost, then tokens per role."""
    pooled = (row for row in rows if row.suite == POOLED)
    cells = pivot(pooled, _name_line, attrgetter("measure"))
    cached = any(
        name.startswith("cached_") and row.value > 0 for of in cells.values() for name, row in of.items()
    )
    titles = {name: title for name, title in TITLES.items() if cached or name != "uncached_tokens"}
    grids = [_make_measure_grid("Untrusted text and cost", titles, cells)]
    for measure, heading in _OF_ROLES.items():
        names = dict.fromkeys(name for of in cells.values() for name in of if name.startswith(f"{measure}:"))
        if names or len(grids) == 1:
            roles = {name: name.removeprefix(f"{measure}:") for name in names}
            grids.append(_make_measure_grid(heading, roles, cells))
    sections = [("Cost and untrusted text", grids)]
    verdicts = write_verdict_notes(row for of in cells.values() for row in list(of.values())[:1])
    all_notes = [*verdicts, *write_benchmark_change_notes(row.benchmark for row in rows), *notes, *_NOTES]
    if (guards := _make_guard_grid(cells)).rows:
        sections.append(("Guards: verdicts against what was planted", [guards]))
        all_notes.append(_OF_GUARDS)
    if (gates := _make_gate_grid(cells)).rows:
        sections.append(("Calls that filters ruled on", [gates]))
    return Output(
        "agentsys results --by cost", Document(sections, tuple(all_notes)), make_long_form(MeasureRow, rows)
    )


def _name_line(row: MeasureRow) -> tuple[str, ...]:
    # The version stands behind the benchmark's label unless that is plain AgentDojo.
    version = row.version if row.benchmark == "agentdojo" else f"{row.benchmark} {row.version}"
    return row.model, row.defense, row.attack, version


_Cells = Mapping[tuple[str, ...], Mapping[str, MeasureRow]]
"""Model, defense, attack and version -> measure -> number of all suites together."""


def _make_measure_grid(heading: str, columns: Mapping[str, str], cells: _Cells) -> Grid:
    rows = []
    for (model, defense, *others), of in cells.items():
        one = next(iter(of.values()))
        judged = GridCell(defense, shorten_verdict(one.verdict, one.reasons))
        rows.append(make_cells(model, judged, *others, *(_write_number(of.get(name)) for name in columns)))
    return Grid(heading, (*_NAMES, *columns.values()), rows, names=len(_NAMES))


def _make_guard_grid(cells: _Cells) -> Grid:
    lines: defaultdict[tuple[str, ...], dict[str, MeasureRow]] = defaultdict(dict)
    for cell, of in cells.items():
        for name, row in of.items():
            measure, _, guard = name.partition(":")
            if measure in GUARD_TITLES:
                lines[*cell, guard][measure] = row
    rows = [
        make_cells(*line, *(_write_share(of.get(name)) for name in GUARD_TITLES))
        for line, of in lines.items()
    ]
    return Grid("Guards", (*_NAMES, "Guard", *GUARD_TITLES.values()), rows, names=len(_NAMES) + 1)


def _make_gate_grid(cells: _Cells) -> Grid:
    calls: defaultdict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
    for cell, of in cells.items():
        for name, row in of.items():
            measure, _, ruling = name.partition(":")
            if measure == "gate_calls":
                ruler, outcome, tool = ruling.split("/", 2)
                calls[*cell, ruler, outcome][tool] = int(row.value)
    rows = []
    for line, tools in calls.items():
        listed = sorted(tools, key=lambda tool: (-tools[tool], tool))
        more = f" and {len(listed) - _MOST_TOOLS} more" if len(listed) > _MOST_TOOLS else ""
        named = ", ".join(f"{tool} {tools[tool]}" for tool in listed[:_MOST_TOOLS])
        rows.append(make_cells(*line, f"{sum(tools.values()):,}", f"{named}{more}"))
    header = (*_NAMES, "Filter", "Outcome", "Calls", "By tool")
    return Grid("Calls that filters ruled on", header, rows, names=len(_NAMES) + 2)


def _write_share(row: MeasureRow | None) -> str:
    if row is None or math.isnan(row.value):
        return MISSING
    interval = "" if math.isnan(row.ci_low) else f" {row.ci_low:.0f}-{row.ci_high:.0f}"
    return f"{row.value:.1f}{interval} ({row.n:,})"


def _write_number(row: MeasureRow | None) -> str:
    if row is None:
        return MISSING
    return write_number(row.value, ",.0f" if abs(row.value) >= 100 else ".3g")


_AXES = {ASR: "queries", ASR_BY_ATTEMPTS: "attempts, those that were not tried included"}


def make_budget_output(rows: Sequence[BudgetRow], searches: StoredSearches) -> Output:
    """Two grids per benchmark and version, success by budget and what the searches took, in any form."""
    groups = group_by(rows, lambda row: (row.benchmark, row.version))
    sections = [
        (
            f"Searched attacks on {benchmark} {version}",
            (*(_make_asr_grid(of_benchmark, axis) for axis in _AXES), _make_cost_grid(of_benchmark)),
        )
        for (benchmark, version), of_benchmark in groups.items()
    ]
    document = Document(sections, list(_write_budget_notes(rows, searches)))
    return Output("agentsys results --by budget", document, make_long_form(BudgetRow, rows))


def _make_asr_grid(rows: Sequence[BudgetRow], axis: str) -> Grid:
    shown = (row for row in rows if row.measure == axis and row.budget is not None)
    table = pivot(shown, attrgetter("model", "defense", "attack", "suite"), attrgetter("budget"))
    budgets = sorted({budget for by_budget in table.values() for budget in by_budget})
    # Cell by cell, overall first.
    order = {cell: index for index, cell in enumerate(dict.fromkeys(line[:3] for line in table))}
    lines = sorted(table, key=lambda line: (order[line[:3]], line[3] != OVERALL, line[3]))
    body = []
    for line in lines:
        numbers = [make_number_cell(table[line].get(budget)) for budget in budgets]
        first = next(iter(table[line].values()))
        counts = (first.n, first.errored, first.unfinished, first.no_text)
        body.append(make_cells(*line, *numbers, *map(str, counts)))
    counted = ("Searches", "Errored", "Unfinished", "No text")
    header = (*_BUDGET_NAMES, "Suite", *(f"ASR@{budget}" for budget in budgets), *counted)
    breaks = frozenset(index for index, line in enumerate(lines) if index and line[3] == OVERALL)
    caption = f"Targeted ASR at a budget of so many {_AXES[axis]}, %"
    return Grid(caption, header, body, names=4, breaks=breaks, captioned=True)


_BUDGET_NAMES = ("Model", "Defense", "Attack")


def _make_cost_grid(rows: Sequence[BudgetRow]) -> Grid:
    lines = []
    chosen = [row for row in rows if row.measure not in _AXES and row.suite == OVERALL]
    for line, some in group_by(chosen, lambda row: (row.model, row.defense, row.attack)).items():
        values = {row.measure: row.value for row in some}
        # Dollars, a mean, and counts.
        forms = [
            ",.4f" if m.endswith("_usd") else ".2f" if m == "queries_to_success" else ",.0f" for m in MEASURES
        ]
        texts = (write_number(values[name], form) for name, form in zip(MEASURES, forms, strict=True))
        lines.append(make_cells(*line, *texts))
    caption = "What the searches took, all suites together"
    return Grid(caption, (*_BUDGET_NAMES, *MEASURES.values()), lines, names=3)


_GO_ON = ": they are in no rate, but in what was spent. The next run goes on with them."


def _write_budget_notes(rows: Sequence[BudgetRow], searches: StoredSearches) -> Iterable[str]:
    yield (
        "ASR@k: targeted ASR in percent at a budget of k. Unit: one search, for one injection task on one "
        "user task, or in mode transfer on several. A query is one run of the agent; an attempt is one "
        "candidate, tried on every user task of the search, or not tried. A search counts from the query, or "
        "attempt, with which a text had succeeded on all of them. The first attempt of our own attacks is "
        "the text the search starts from. What `agentsys results` shows is another number: in mode transfer "
        "the text of one search is applied to every user task."
    )
    yield (
        f"{CONFIDENCE:.0f}% intervals: injection tasks resampled (and user tasks, where there are several). "
        "overall: unweighted mean of the suites. n/a: beyond the search's own budget, or undefined."
    )
    if any(is_simulated_name(row.model) for row in rows):
        yield "simulated: a scripted agent and attacker, not language models; no LLM's numbers."
    errored = sum(search.errored for search in searches.found)
    if errored:
        yield f"{errored} searches ended in an error{_GO_ON}"
    yield from write_textless_notes(searches.found)
    open_ = sum(search.is_open for search in searches.found)
    if open_:
        yield f"{open_} searches were interrupted{_GO_ON}"
    if searches.repeated:
        yield f"Left out {searches.repeated} folders of searches that are stored more than once."
    if searches.skipped:
        yield f"Left out {len(searches.skipped)} files that could not be read."
