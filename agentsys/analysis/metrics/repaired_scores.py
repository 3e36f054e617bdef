"""Fixed scores: what a run is worth under repaired checks, beside the benchmark's own (docs/fixes.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from agentsys.analysis.metrics.tags import shipped_data
from agentsys.records.case_row import NO_ATTACK, CaseRow

FIXED = "fixed"
"""How lines of fixed scores are marked."""


@dataclass(frozen=True)
class FixedCases:
    """Cases with fixed scores in place of the official ones."""

    cases: tuple[CaseRow, ...]
    """Errored cases are among them as they are: they have no scores of either kind."""
    fixes: tuple[tuple[str, ...], ...]
    """Every list of fixes that some case was scored under; more than one: they are not comparable."""
    lacking: int
    """Cases without fixed scores, which are not in `cases`. Injection tasks run alone have none and are not
    counted: they are in no metric."""

    @property
    def notes(self) -> Iterator[str]:
        """Lines for below the table."""
        for fixes in self.fixes:
            named = ", ".join(map(described, fixes)) or "no fix"
            yield f"{FIXED}: scored once more under {named}. The other lines hold the official scores."
        if len(self.fixes) > 1:
            yield f"{FIXED}: the cases were scored under {len(self.fixes)} different lists of fixes."
        if self.lacking:
            yield f"{FIXED}: {self.lacking} cases without fixed scores are left out of these lines."


def fixed_cases(cases: Iterable[CaseRow]) -> FixedCases:
    """The same cases with fixed scores, which our own runs and what `agentsys rescore` writes hold."""
    listed = list(cases)
    found = [(case, _fixed(case)) for case in listed]
    lists = dict.fromkeys(_fixes(case) for case, fixed in found if fixed is not None and case.status == "ok")
    kept = tuple(fixed for _, fixed in found if fixed is not None)
    lacking = sum(fixed is None and case.is_scored for case, fixed in found)
    return FixedCases(kept, tuple(lists), lacking)


def changed_benchmark_notes(benchmarks: Iterable[str]) -> list[str]:
    """One line for every benchmark whose label names a fix: its cases were run on other texts."""
    notes = []
    for label in dict.fromkeys(benchmarks):
        plain, *parts = label.split("+")
        phrases = [described(part) for part in parts if part in phrases_of_fixes()]
        if phrases:
            notes.append(f"{label}: {'; '.join(phrases)}. Not comparable with {plain}.")
    return notes


def described(fix: str) -> str:
    """A fix with what it does, e.g. `any_match (a repeated attack counts as a success)`."""
    says = phrases_of_fixes().get(fix)
    return fix if says is None else f"{fix} ({says})"


@lru_cache(maxsize=1)
def phrases_of_fixes() -> dict[str, str]:
    """Id of a fix -> what it does."""
    return dict(shipped_data("fixes")["fixes"])


def _fixed(case: CaseRow) -> CaseRow | None:
    """A case with its fixed scores; None where it has none."""
    if case.status == "error":
        return case
    utility, success = (case.measured.get(key) for key in ("utility_fixed", "security_fixed"))
    if not isinstance(utility, bool) or not isinstance(success, bool):
        return None
    return replace(case, utility=utility, injection_success=None if case.attack == NO_ATTACK else success)


def _fixes(case: CaseRow) -> tuple[str, ...]:
    named: Any = case.measured.get("fixes")
    return tuple(str(name) for name in named) if isinstance(named, list) else ()
