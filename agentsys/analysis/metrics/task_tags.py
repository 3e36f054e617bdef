"""Tags of single tasks, the limits that tasks set to a score, and fixes of their checks.

All of it is data with its source in `analysis/data`; the figures follow from the cases that were run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

import orjson

from agentsys.analysis.metrics.attack_success import compute_mean_of_suites
from agentsys.analysis.metrics.rates import TOOL_SURFACE_PREFIX
from agentsys.errors import require_known_name
from agentsys.records.case_row import NO_ATTACK, UNRECORDED, CaseRow

Tasks = Mapping[str, frozenset[str]]
"""Suite -> task ids."""


@dataclass(frozen=True)
class Tag:
    """A property of some tasks."""

    name: str
    kind: Literal["user_task", "injection_task", "pair"]
    """Of a pair, `tasks` holds both ids with a blank between them."""
    says: str
    """What it means, as the end of a sentence about one task."""
    tasks: Mapping[str, Tasks]
    """Benchmark -> tasks that bear it, in whichever version has them."""
    mended_by: str | None
    """A change of the benchmark (a part of its label) under which no task bears it."""
    undecided: str | None = None
    """Name of the tag whose tasks nothing can be said of."""


@dataclass(frozen=True)
class TagSplit:
    """Cases with and without a tag; for a tag of injection tasks, benign cases are in both groups."""

    tag: Tag
    cases_with: tuple[CaseRow, ...]
    cases_without: tuple[CaseRow, ...]
    unknown: int
    """Cases of benchmarks whose tasks were not looked at; in neither group."""
    cases_undecided: tuple[CaseRow, ...] = ()
    """Cases of tasks that nothing can be said of."""

    @property
    def note(self) -> str:
        """One line for below the table."""
        owner = {"pair": "pair of tasks"}.get(self.tag.kind, self.tag.kind.replace("_", " "))
        attacks = self.tag.kind != "user_task"
        both = " Benign cases have no injection task and stand in both groups." if attacks else ""
        left = f" {self.unknown} cases of benchmarks without tags are in neither." if self.unknown else ""
        return f"{self.tag.name}: a {owner} of which holds: {self.tag.says}.{both}{left}"


def load_tag(name: str) -> Tag:
    """Look a tag up by its name.

    Raises:
        ConfigError: If there is none.
    """
    tags = load_tags()
    return tags[require_known_name("tag", name, tags)]


@lru_cache(maxsize=1)
def load_tags() -> dict[str, Tag]:
    """Name -> tag."""
    tags = {}
    for name, entry in load_task_data("task_tags")["tags"].items():
        tasks = {benchmark: _read_tasks(suites) for benchmark, suites in entry["tasks"].items()}
        more = entry.get("mended_by"), entry.get("undecided")
        tags[name] = Tag(name, entry["kind"], entry["says"], tasks, *more)
    return tags


def _read_tasks(suites: Mapping[str, Iterable[str]]) -> Tasks:
    return {suite: frozenset(listed) for suite, listed in suites.items()}


def load_task_data(name: str) -> dict[str, Any]:
    """One of the package's tables of tasks and fixes (`analysis/data`)."""
    path = files("agentsys.analysis").joinpath("data", f"{name}.json")
    stored: dict[str, Any] = orjson.loads(path.read_bytes())
    return stored


def split_by_tag(cases: Iterable[CaseRow], tag: Tag) -> TagSplit:
    """Split cases by whether their user task (or injection task, or both together) bears a tag."""
    open_tag = None if tag.undecided is None else load_tag(tag.undecided)
    bearing, others, undecided = list[CaseRow](), list[CaseRow](), list[CaseRow]()
    unknown = 0
    for case in cases:
        if case.benchmark.split("+")[0] not in tag.tasks:
            unknown += 1
        elif open_tag is not None and has_tag(case, open_tag):
            undecided.append(case)
        else:
            bears, in_both = has_tag(case, tag), tag.kind != "user_task" and case.injection_task_id is None
            bearing += [case] if bears or in_both else []
            others += [case] if in_both or not bears else []
    return TagSplit(tag, tuple(bearing), tuple(others), unknown, tuple(undecided))


def has_tag(case: CaseRow, tag: Tag) -> bool:
    """Tell whether a case's user task (or injection task, or both together) bears a tag."""
    benchmark, *changes = case.benchmark.split("+")
    if tag.mended_by in changes:
        return False
    ids = {
        "user_task": case.user_task_id,
        "injection_task": case.injection_task_id,
        "pair": f"{case.user_task_id} {case.injection_task_id}",
    }
    return ids[tag.kind] in tag.tasks.get(benchmark, {}).get(case.suite, frozenset())


_OLDEST = "v1"
"""Published files that name no version are of this one."""
_OR_LATER = " or later"


@dataclass(frozen=True)
class Limits:
    """User tasks whose score says little about an agent."""

    passed_by_doing_nothing: Tasks
    """Solved by an agent that makes no call and gives an empty answer."""
    destroyed_by_injection: Tasks
    """Unsolvable under attack: the injection overwrites what they need."""


@dataclass(frozen=True)
class Bound:
    """A limit as it comes out on some cases."""

    value: float
    """Percent: unweighted mean of the suites."""
    tasks: tuple[tuple[str, str], ...]
    """(suite, user task) among the cases that cause it, sorted by number."""


@lru_cache
def load_limits_of(benchmark: str, version: str) -> Limits | None:
    """The limits of a benchmark's version; None where they are not known.

    Args:
        benchmark: E.g. `agentdojo`. Parts after a `+`, here or in the version, name changes to the
            benchmark; with `append_injection` nothing is overwritten.
        version: Version as recorded; published files without one are taken for v1, `v1.2 or later` for v1.2.
    """
    name, *changed = benchmark.split("+")
    known = load_task_data("benchmark_limits").get(name)
    plain, *more = (_OLDEST if version == UNRECORDED else version.removesuffix(_OR_LATER)).split("+")
    changes = {*changed, *more}
    if known is None or plain not in known["passed_by_doing_nothing"]:
        return None
    tag = load_tags()["destroyed_under_attack"]
    destroyed = {} if tag.mended_by in changes else tag.tasks.get(name, {})
    return Limits(_read_tasks(known["passed_by_doing_nothing"][plain]), destroyed)


def measure_bound(cases: Iterable[CaseRow], limits: Limits, *, attacked: bool) -> Bound:
    """The most that utility under attack can be, or the score of an agent that does nothing.

    Args:
        cases: Cases of one model, defense and attack.
        limits: Limits of their benchmark.
        attacked: Whether the share of cases that are not destroyed is asked for; else that of user tasks (each
            counts once) that pass untouched. An attack on the surface of tools destroys none, and a user task
            that was solved under attack was not destroyed: this attack wrote elsewhere.
    """
    cases = tuple(cases)
    counted = [(case.suite, case.user_task_id) for case in cases]
    counted = counted if attacked else list(set(counted))
    tasks = limits.destroyed_by_injection if attacked else limits.passed_by_doing_nothing
    present = {(suite, task) for suite, task in counted if task in tasks.get(suite, ())}
    if attacked:
        present -= {
            (case.suite, case.user_task_id)
            for case in cases
            if case.utility or case.attack.startswith(TOOL_SURFACE_PREFIX)
        }
    share = compute_mean_of_suites((key[0], key in present) for key in counted).value
    causes = sorted(present, key=lambda pair: (pair[0], len(pair[1]), pair[1]))
    return Bound(100.0 - share if attacked else share, tuple(causes))


SCORE_FIXED = "fixed"
"""Marks the lines of scores under repaired checks, which stand beside the benchmark's own (docs/fixes.md)."""


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
            named = ", ".join(map(describe_fix, fixes)) or "no fix"
            yield f"{SCORE_FIXED}: scored once more under {named}. The other lines hold the official scores."
        if len(self.fixes) > 1:
            yield f"{SCORE_FIXED}: the cases were scored under {len(self.fixes)} different lists of fixes."
        if self.lacking:
            yield f"{SCORE_FIXED}: {self.lacking} cases without fixed scores are left out of these lines."


def select_fixed_scores(cases: Iterable[CaseRow]) -> FixedCases:
    """Put fixed scores, which our runs and files of `agentsys rescore` hold, in place of the official ones."""
    kept, lists, lacking = list[CaseRow](), dict[tuple[str, ...], None](), 0
    for case in cases:
        fixed = _replace_by_fixed_score(case)
        if fixed is None:
            lacking += case.is_scored
            continue
        kept.append(fixed)
        if case.status == "ok":
            named = case.measured.get("fixes")
            lists[tuple(map(str, named)) if isinstance(named, list) else ()] = None
    return FixedCases(tuple(kept), tuple(lists), lacking)


def describe_fix(fix: str) -> str:
    """A fix with what it does, e.g. `any_match (a repeated attack counts as a success)`."""
    says = load_fixes().get(fix)
    return fix if says is None else f"{fix} ({says})"


@lru_cache(maxsize=1)
def load_fixes() -> dict[str, str]:
    """Id of a fix -> what it does."""
    return dict(load_task_data("fixes")["fixes"])


def _replace_by_fixed_score(case: CaseRow) -> CaseRow | None:
    if case.status == "error":
        return case
    utility, success = (case.measured.get(key) for key in ("utility_fixed", "security_fixed"))
    if not isinstance(utility, bool) or not isinstance(success, bool):
        return None
    return replace(case, utility=utility, injection_success=None if case.attack == NO_ATTACK else success)
