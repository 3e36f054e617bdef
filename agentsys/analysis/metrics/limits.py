"""Limits that a benchmark's own flaws set: a floor under benign utility, a cap on utility under attack.

The tasks are data (`data/benchmark_limits.json`, and a tag in `data/task_tags.json`, each with its source);
the figures follow from the cases that were run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from agentsys.analysis.metrics.exposed_rates import mean_of_suites
from agentsys.analysis.metrics.tags import Tasks, shipped_data, tag_of
from agentsys.records.case_row import UNRECORDED, CaseRow

_OLDEST = "v1"
_OR_LATER = " or later"
"""Published files that name no version are of this one."""


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
def limits_of(benchmark: str, version: str) -> Limits | None:
    """The limits of a benchmark's version; None where they are not known.

    Args:
        benchmark: E.g. `agentdojo`. Parts after a `+`, here or in the version, name changes to the
            benchmark; with `append_injection` nothing is overwritten.
        version: Version as recorded; published files without one are taken for v1, `v1.2 or later` for v1.2.
    """
    name, *changed = benchmark.split("+")
    known = shipped_data("benchmark_limits").get(name)
    plain, *more = (_OLDEST if version == UNRECORDED else version.removesuffix(_OR_LATER)).split("+")
    changes = {*changed, *more}
    if known is None or plain not in known["passed_by_doing_nothing"]:
        return None
    tag = tag_of("destroyed_under_attack")
    destroyed = {} if tag.mended_by in changes else tag.tasks.get(name, {})
    idle = known["passed_by_doing_nothing"][plain]
    return Limits({suite: frozenset(tasks) for suite, tasks in idle.items()}, destroyed)


def floor_of(cases: Iterable[CaseRow], limits: Limits) -> Bound:
    """Score of an agent that does nothing: the share of user tasks (each counts once) that pass untouched."""
    users = {(case.suite, case.user_task_id) for case in cases}
    return _bound(list(users), limits.passed_by_doing_nothing)


def cap_of(cases: Iterable[CaseRow], limits: Limits) -> Bound:
    """The most that utility under attack can be: the share of cases that are not destroyed.

    Args:
        cases: Attacked cases of one model, defense and attack.
        limits: Limits of their benchmark.
    """
    found = _bound([(case.suite, case.user_task_id) for case in cases], limits.destroyed_by_injection)
    return Bound(100.0 - found.value, found.tasks)


def _bound(counted: list[tuple[str, str]], tasks: Tasks) -> Bound:
    hits = [(suite, task in tasks.get(suite, ())) for suite, task in counted]
    present = {place for place, (_, hit) in zip(counted, hits, strict=True) if hit}
    causes = sorted(present, key=lambda pair: (pair[0], len(pair[1]), pair[1]))
    return Bound(mean_of_suites(hits).value, tuple(causes))
