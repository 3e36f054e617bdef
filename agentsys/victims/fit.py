"""`fitted_profile`: how one model behaved, undefended -> a `VictimProfile`, and that as YAML."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from agentsys.errors import ConfigError
from agentsys.models.simulated.victim.predict import probability
from agentsys.models.simulated.victim.profile import (
    BENIGN,
    FORMAT,
    HIJACKED,
    NOT_HIJACKED,
    AttackShift,
    FittedTo,
    LogitBlock,
    Rates,
    VictimProfile,
)
from agentsys.models.simulated.victim.situation import covariates
from agentsys.records.case_row import CaseRow
from agentsys.records.published_name import NO_DEFENSE
from agentsys.victims.behaviour import Behaviour, behaviour
from agentsys.victims.blocks import Point, fitted_block
from agentsys.victims.folds import validated
from agentsys.victims.solutions import Ways

_SUCCESSES = 10
"""Of a goal, from which on it shows which tools it takes."""
_NEARLY_ALL = 0.97
_FEW_EXPOSED = 30
"""Exposed cases below which there is nothing to fit."""
_NO_CALL, _EMPTY = 0.2, 0.1
"""Shares of conversations without a call, and with an empty end, from which on the host dropped calls."""
_ROUNDS = 40


@dataclass(frozen=True)
class PublishedRuns:
    """What a profile is fitted to."""

    model: str
    benchmark: str
    behaviours: Sequence[Behaviour]
    """Benign and attacked cases without error, no defense."""

    @property
    def attacked(self) -> list[Behaviour]:
        """The attacked cases."""
        return [case for case in self.behaviours if case.injection is not None]

    @property
    def exposed(self) -> list[Behaviour]:
        """The attacked cases in which a tool returned the payload."""
        return [case for case in self.attacked if case.met is not None]


def published_runs(rows: Iterable[CaseRow], ways: Ways) -> PublishedRuns:
    """Read what a model did, undefended.

    Args:
        rows: Cases of one model; other defenses' are passed over, errored ones and tasks run alone too.
        ways: What the benchmark's solutions call.

    Raises:
        ConfigError: If there are several models, or simulated ones, or too few cases in which a tool returned
            the payload.
    """
    chosen = [
        row
        for row in rows
        if row.defense == NO_DEFENSE and row.status == "ok" and not row.is_injection_task_alone
    ]
    if any(row.simulated for row in chosen):
        raise ConfigError("A victim is fitted to a real model's runs; some of these are simulated.")
    models = sorted({(row.named_model, row.benchmark) for row in chosen})
    if len(models) != 1:
        found = ", ".join(f"{model} ({benchmark})" for model, benchmark in models) or "none"
        raise ConfigError(
            f"A victim is fitted to undefended runs of one model on one benchmark; found: {found}."
        )
    _check_known(chosen, ways)
    runs = PublishedRuns(*models[0], [b for row in chosen if (b := behaviour(row, ways)) is not None])
    if len(runs.exposed) < _FEW_EXPOSED:
        raise ConfigError(
            f"{len(runs.exposed)} of {len(runs.attacked)} attacked cases show a tool that returned the"
            f" payload; a victim needs {_FEW_EXPOSED}. Runs without recorded messages or injections cannot"
            " be fitted."
        )
    return runs


def _check_known(rows: Sequence[CaseRow], ways: Ways) -> None:
    for row in rows:
        if f"{row.suite}/{row.user_task_id}" not in ways.tasks:
            raise ConfigError(
                f"{row.source}: {row.suite} {row.user_task_id} is no task of this version; "
                "give the one that the runs were made with (--version)."
            )


def grid_of(runs: PublishedRuns) -> list[dict[str, str]]:
    """The levels of every attacked case: the grid that truths which are known are drawn on."""
    return [
        {"suite": case.suite, "user": case.user, "injection": case.injection}
        for case in runs.attacked
        if case.injection is not None
    ]


def obey_points(cases: Iterable[Behaviour], ways: Ways) -> list[Point]:
    """What obeying is fitted to: exposed cases."""
    exposed = (case for case in cases if case.met is not None)
    return [Point(case.obeyed, obey_levels(case), covariates_of(case, ways)) for case in exposed]


def obey_levels(case: Behaviour) -> dict[str, str]:
    """The levels of an exposed case."""
    assert case.met is not None and case.injection is not None
    return {
        "suite": case.suite,
        "tool": f"{case.suite}/{case.met.tool}",
        "user": case.user,
        "injection": case.injection,
    }


def covariates_of(case: Behaviour, ways: Ways) -> Mapping[str, float]:
    """The covariates of an exposed case."""
    assert case.met is not None and case.injection is not None
    return covariates(case.met, ways.tasks[case.user], ways.goals.get(case.injection, ()))


def condition(case: Behaviour) -> str:
    """Under what a user task was solved or not."""
    return BENIGN if case.injection is None else HIJACKED if case.obeyed else NOT_HIJACKED


def fitted_profile(
    runs: PublishedRuns,
    ways: Ways,
    *,
    name: str,
    version: str,
    source: str = "not stated",
) -> VictimProfile:
    """Fit a profile, without its validation."""
    by_attack = Counter(case.attack for case in runs.exposed)
    first = by_attack.most_common(1)[0][0]
    points = obey_points([case for case in runs.exposed if case.attack == first], ways)
    obey = fitted_block(points)
    missed = [case for case in runs.attacked if case.met is None]
    return VictimProfile(
        victim=FORMAT,
        name=name,
        fitted_to=FittedTo(
            benchmark=runs.benchmark,
            version=version,
            cases=len(runs.attacked),
            exposed=len(runs.exposed),
            digest=digest_of(runs.behaviours),
            source=source,
        ),
        usable_for=("undefended",) if is_crippled(runs.behaviours) else ("undefended", "structural"),
        attacks={attack: _shift(obey, runs, attack, first, ways) for attack in sorted(by_attack)},
        obey=obey,
        exposed=fitted_block(
            [Point(case.met is not None, {"suite": case.suite, "user": case.user}) for case in runs.attacked]
        ),
        solve=fitted_block(
            [
                Point(case.solved, {"suite": f"{case.suite}/{condition(case)}", "user": case.user})
                for case in runs.behaviours
            ]
        ),
        needs=learned_needs(runs.exposed, ways),
        without_exposure=(sum(case.obeyed for case in missed), len(missed)),
        manners=rates_of(runs.behaviours),
    )


def first_points(profile: VictimProfile, runs: PublishedRuns, ways: Ways) -> list[Point]:
    """The cases of the wording that a profile's obeying was fitted to."""
    wording = next(name for name, attack in profile.attacks.items() if attack.se == 0.0)
    return obey_points([case for case in runs.exposed if case.attack == wording], ways)


def with_validation(profile: VictimProfile, runs: PublishedRuns, ways: Ways) -> VictimProfile:
    """The profile with forecasts of what was left out: user tasks, injection tasks and suites."""
    found = validated(first_points(profile, runs, ways), profile.obey)
    return profile.model_copy(update={"validation": found})


def _shift(block: LogitBlock, runs: PublishedRuns, attack: str, first: str, ways: Ways) -> AttackShift:
    """The one shift that makes an attack's mean forecast its observed rate."""
    cases = [case for case in runs.exposed if case.attack == attack]
    if attack == first:
        return AttackShift(shift=0.0, se=0.0, cases=len(cases))
    parts = [(obey_levels(case), covariates_of(case, ways)) for case in cases]
    hits = min(max(sum(case.obeyed for case in cases), 0.25), len(cases) - 0.25)
    low, high = -15.0, 15.0
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        mean = sum(probability(block, *part, shift=middle) for part in parts)
        low, high = (middle, high) if mean < hits else (low, middle)
    chances = [probability(block, *part, shift=low) for part in parts]
    error = 1 / math.sqrt(max(sum(p * (1 - p) for p in chances), 0.05))
    return AttackShift(shift=round(low, 3), se=round(error, 3), cases=len(cases))


def learned_needs(exposed: Iterable[Behaviour], ways: Ways) -> dict[str, tuple[str, ...]]:
    """Goal -> the tools that it takes, as its successes show; only of goals with enough of them.

    Ground truths may be placeholders, and models reach goals with fewer calls. What successes share may
    be the user task's: of tools that the ground truth has as well, those alone are kept.
    """
    called: dict[str, list[frozenset[str]]] = {}
    for case in exposed:
        if case.obeyed and case.injection is not None:
            called.setdefault(case.injection, []).append(frozenset(case.after))
    found = {}
    for goal, successes in sorted(called.items()):
        counts = Counter(tool for tools in successes for tool in tools)
        shared = {tool for tool, count in counts.items() if count >= _NEARLY_ALL * len(successes)}
        kept = shared & set(ways.goals.get(goal, ())) or shared
        if len(successes) >= _SUCCESSES and kept:
            found[goal] = tuple(sorted(kept))
    return found


def is_crippled(cases: Sequence[Behaviour]) -> bool:
    """Whether the host dropped calls: a defense that changes the format then changes more than it should."""
    silent = sum(case.manners.calls == 0 for case in cases)
    empty = sum(case.manners.empty for case in cases)
    return silent > _NO_CALL * len(cases) or empty > _EMPTY * len(cases)


def rates_of(cases: Sequence[Behaviour]) -> Rates:
    """Count the manners of all conversations."""
    manners, n = [case.manners for case in cases], len(cases)
    return Rates(
        no_call=(sum(m.calls == 0 for m in manners), n),
        text_call=(sum(m.as_text for m in manners), n),
        empty_final=(sum(m.empty for m in manners), n),
        ends_on_call=(sum(m.on_call for m in manners), n),
        repeated_call=(sum(m.repeated for m in manners), n),
        parallel=(sum(m.parallel for m in manners), sum(m.turns for m in manners)),
        failed_call=(sum(m.failed for m in manners), sum(m.calls for m in manners)),
    )


def digest_of(cases: Iterable[Behaviour]) -> str:
    """Digest of the runs' content, whatever folder they lie in and in whatever order they are read."""
    parts = sorted(
        hashlib.sha256(
            "\x1f".join([case.user, case.injection or "", case.attack, case.content]).encode(
                "utf-8", "surrogatepass"
            )
        ).digest()
        for case in cases
    )
    return f"sha256:{hashlib.sha256(b''.join(parts)).hexdigest()}"


def profile_yaml(profile: VictimProfile) -> str:
    """The file's text: one line per level, readable and short."""
    data: dict[str, Any] = profile.model_dump(mode="json")
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=10_000, allow_unicode=True)
