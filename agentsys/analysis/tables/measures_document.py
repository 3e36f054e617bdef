"""Cost and untrusted text per cell, ready to be written."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from agentsys.analysis.metrics.guard_errors import GUARD_TITLES
from agentsys.analysis.metrics.measures import OF_ROLES, MeasureRow
from agentsys.analysis.metrics.repaired_scores import changed_benchmark_notes
from agentsys.analysis.statistics.estimate import POOLED
from agentsys.analysis.tables.document import MISSING, Document, Grid, cells, number_text
from agentsys.analysis.tables.output import Output, records_of

TITLES = {
    "untrusted_tokens": "Untrusted tokens",
    "untrusted_tokens_workers": "in workers",
    "exposure_rounds": "Exposure rounds",
    "exposure_rounds_workers": "in workers",
    "model_calls": "Model calls",
    "seconds": "Seconds",
    "tokens_per_solved_task": "Tokens per solved task",
    "cost_per_solved_task": "USD per solved task",
    "asr_per_million_tokens": "ASR per million tokens",
    "asr_per_dollar": "ASR per USD",
}
"""Measure -> heading, in the order shown."""

_NOTES = (
    "Means per case, all cases of the cell together. Untrusted tokens: text from tools (characters / 3.6) "
    "admitted to a context that can call command tools; exposure rounds: model calls with the injection in "
    "such a context.",
    "Definitions: docs/data.md. n/a: undefined, or not recorded in these runs.",
)


def measures_output(rows: Sequence[MeasureRow], notes: Iterable[str] = ()) -> Output:
    """One line per cell: untrusted text and cost, then tokens per role; ready to be written in any form."""
    found: defaultdict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    pooled = [row for row in rows if row.suite == POOLED]
    for row in pooled:
        found[row.model, row.defense, row.attack, _version(row)][row.measure] = row.value
    said = (*changed_benchmark_notes(row.benchmark for row in rows), *notes, *_NOTES)
    known = {name.partition(":")[0] for of in found.values() for name in of}
    grids = [_roles(found, measure) for measure in OF_ROLES if measure in known or measure == _ALWAYS]
    guards, gates = _guards(pooled), _gates(pooled)
    judged = [("Guards: verdicts against what was planted", [guards])] if guards.rows else []
    ruled = [("Calls that filters ruled on", [gates])] if gates.rows else []
    told = (*said, _OF_GUARDS) if guards.rows else said
    sections = [("Cost and untrusted text", [_measures(found), *grids]), *judged, *ruled]
    return Output("agentsys measures", Document(sections, told), records_of(MeasureRow, rows))


_OF_GUARDS = (
    "Guards: FNR is the share of planted results (or of cases with one) that a guard let pass, FPR the share "
    "of others that it flagged, with 95% intervals; results without a readable verdict are in neither. Clean "
    "text cut: of the characters of results in which nothing was planted. In brackets: how many."
)


def _guards(rows: Iterable[MeasureRow]) -> Grid:
    """One line per cell and guard."""
    found: defaultdict[tuple[str, ...], dict[str, MeasureRow]] = defaultdict(dict)
    for row in rows:
        measure, _, guard = row.measure.partition(":")
        if measure in GUARD_TITLES:
            found[row.model, row.defense, row.attack, _version(row), guard][measure] = row
    shown = [cells(*cell, *(_share(of.get(name)) for name in GUARD_TITLES)) for cell, of in found.items()]
    header = (*_NAMES, "Guard", *GUARD_TITLES.values())
    return Grid("Guards", header, shown, names=len(_NAMES) + 1)


_GATE_CALLS = "gate_calls"


def _gates(rows: Iterable[MeasureRow]) -> Grid:
    """One line per cell, filter and outcome, with the calls by tool."""
    found: defaultdict[tuple[str, ...], dict[str, int]] = defaultdict(dict)
    for row in rows:
        measure, _, ruling = row.measure.partition(":")
        if measure == _GATE_CALLS:
            ruler, outcome, tool = ruling.split("/", 2)
            found[row.model, row.defense, row.attack, _version(row), ruler, outcome][tool] = int(row.value)
    shown = [cells(*cell, f"{sum(tools.values()):,}", _most(tools)) for cell, tools in found.items()]
    header = (*_NAMES, "Filter", "Outcome", "Calls", "By tool")
    return Grid("Calls that filters ruled on", header, shown, names=len(_NAMES) + 2)


_MOST_TOOLS = 5


def _most(tools: Mapping[str, int]) -> str:
    """The tools with the most calls, and how many more there are."""
    listed = sorted(tools, key=lambda tool: (-tools[tool], tool))
    more = len(listed) - _MOST_TOOLS
    told = ", ".join(f"{tool} {tools[tool]}" for tool in listed[:_MOST_TOOLS])
    return f"{told} and {more} more" if more > 0 else told


def _share(row: MeasureRow | None) -> str:
    if row is None or math.isnan(row.value):
        return MISSING
    interval = "" if math.isnan(row.ci_low) else f" {row.ci_low:.0f}-{row.ci_high:.0f}"
    return f"{row.value:.1f}{interval} ({row.n:,})"


_OF_ROLES = {
    "tokens_per_case": "Tokens per case and role",
    "cached_tokens_per_case": "Tokens per case and role, read from the provider's cache",
    "usd_per_case": "USD per case and role",
}
"""Measure -> heading of its grid."""
_ALWAYS = "tokens_per_case"
"""The grid that is there even where no run says what it used."""


def _version(row: MeasureRow) -> str:
    """The version, behind the benchmark's label unless that is plain AgentDojo."""
    return row.version if row.benchmark == "agentdojo" else f"{row.benchmark} {row.version}"


_NAMES = ("Model", "Defense", "Attack", "Version")


def _measures(found: dict[tuple[str, ...], dict[str, float]]) -> Grid:
    rows = [cells(*cell, *(_number(of.get(name)) for name in TITLES)) for cell, of in found.items()]
    return Grid("Untrusted text and cost", (*_NAMES, *TITLES.values()), rows, names=len(_NAMES))


def _roles(found: dict[tuple[str, ...], dict[str, float]], measure: str) -> Grid:
    prefix = f"{measure}:"
    roles = dict.fromkeys(name for of in found.values() for name in of if name.startswith(prefix))
    rows = [cells(*cell, *(_number(of.get(role)) for role in roles)) for cell, of in found.items()]
    header = (*_NAMES, *(role.removeprefix(prefix) for role in roles))
    return Grid(_OF_ROLES[measure], header, rows, names=len(_NAMES))


def _number(value: float | None) -> str:
    return MISSING if value is None else number_text(value, ",.0f" if abs(value) >= 100 else ".3g")
