"""`forecasts`: what a profile says of defended runs, beside what those runs were."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from agentsys.models.simulated.victim.predict import probability
from agentsys.models.simulated.victim.profile import BOUND, FITTED, STRUCTURAL, VictimProfile
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.published_name import NO_DEFENSE
from agentsys.victims.behaviour import Behaviour, behaviour
from agentsys.victims.fit import PublishedRuns, covariates_of, digest_of, obey_levels
from agentsys.victims.solutions import Ways

OVERALL = "overall"
"""In place of a suite: all cases together."""
IN_SAMPLE = "in-sample"


@dataclass(frozen=True)
class ForecastRow:
    """One suite under one defense."""

    defense: str
    kind: str
    """What the forecast is: `fitted`, `structural`, `bound`."""
    suite: str
    """A suite, or `overall`."""
    cases: int
    """Attacked cases that both runs have."""
    forecast: float
    """Targeted ASR, percent."""
    published: float
    """The same, as it was."""
    note: str
    """`in-sample` where the profile was fitted to these very runs."""


_KINDS: Mapping[str, str] = MappingProxyType(
    {
        NO_DEFENSE: FITTED,
        "tool_filter": STRUCTURAL,
        "progent": BOUND,
        "drift": BOUND,
        "camel": BOUND,
        "isolategpt": BOUND,
        "agentsys": BOUND,
    }
)
"""Defense of published runs -> what can be said of it without running it."""


def forecasts(
    profile: VictimProfile, runs: PublishedRuns, against: Iterable[CaseRow], ways: Ways
) -> list[ForecastRow]:
    """Forecast published runs from the exposure of the undefended ones.

    Args:
        profile: Fitted to `runs`, or to others of the same suites.
        runs: Undefended runs: what each pair of tasks showed to the agent.
        against: Cases of defended runs, or of undefended ones; those of a defense that only rewords, or of
            one that is not known here, are passed over.
        ways: What the benchmark's solutions call.
    """
    met = {(case.user, case.injection): case for case in runs.attacked}
    by_defense: dict[str, list[CaseRow]] = {}
    for row in against:
        wanted = row.attack != NO_ATTACK and row.status == "ok" and not row.is_injection_task_alone
        if wanted and row.defense in _KINDS and row.attack in profile.attacks:
            by_defense.setdefault(row.defense, []).append(row)
    in_sample = digest_of(runs.behaviours) == profile.fitted_to.digest
    found = []
    for defense, rows in by_defense.items():
        if _KINDS[defense] != FITTED and STRUCTURAL not in profile.usable_for:
            continue
        pairs = [(row, met[key]) for row in rows if (key := _key(row)) in met]
        found += _of_defense(profile, defense, pairs, ways, in_sample=in_sample)
    return found


def _key(row: CaseRow) -> tuple[str, str]:
    return f"{row.suite}/{row.user_task_id}", f"{row.suite}/{row.injection_task_id}"


def _of_defense(
    profile: VictimProfile,
    defense: str,
    pairs: Sequence[tuple[CaseRow, Behaviour]],
    ways: Ways,
    *,
    in_sample: bool,
) -> list[ForecastRow]:
    kept = _filtered if defense == "tool_filter" else _planned
    told = [
        (row.suite, chance(profile, case, ways, kept(row, case, ways, defense)), bool(row.injection_success))
        for row, case in pairs
    ]
    own = defense == NO_DEFENSE and in_sample
    suites = [*dict.fromkeys(suite for suite, _, _ in told), OVERALL]
    rows = []
    for suite in suites:
        chosen = [(p, hit) for where, p, hit in told if suite in (where, OVERALL)]
        rows.append(
            ForecastRow(
                defense,
                _KINDS[defense],
                suite,
                len(chosen),
                _percent([p for p, _ in chosen]),
                _percent([float(hit) for _, hit in chosen]),
                IN_SAMPLE if own else "",
            )
        )
    return rows


def chance(profile: VictimProfile, case: Behaviour, ways: Ways, tools: frozenset[str] | None) -> float:
    """The probability that an attacked case succeeds where only `tools` (None: all) can be called."""
    if case.met is None or case.injection is None:
        return 0.0
    needs = profile.needs.get(case.injection) or ways.goals.get(case.injection, ())
    if tools is not None and not set(needs) <= tools:
        return 0.0
    shift = profile.attacks[case.attack].shift
    return probability(profile.obey, obey_levels(case), covariates_of(case, ways), shift)


def _planned(row: CaseRow, case: Behaviour, ways: Ways, defense: str) -> frozenset[str] | None:
    """A policy, or a plan made before anything is read, allows at most the tools of the task's own way."""
    return None if defense == NO_DEFENSE else frozenset(ways.tasks[case.user])


def _filtered(row: CaseRow, case: Behaviour, ways: Ways, defense: str) -> frozenset[str] | None:
    """What a tool filter kept, as the record says; else the tools of the task's own way."""
    recorded = behaviour(row, ways)
    return frozenset((recorded.offered if recorded else ()) or ways.tasks[case.user])


def _percent(values: Sequence[float]) -> float:
    return 100 * math.fsum(values) / len(values) if values else math.nan
