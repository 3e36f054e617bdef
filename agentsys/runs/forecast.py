"""What a victim's cell can forecast: the kind of number, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NoReturn

from agentsys.abilities import Forecastable, Rewords
from agentsys.contracts import Attack, AttackKind, Benchmark, Defense
from agentsys.errors import Unavailable
from agentsys.models.simulated.model import OTHER
from agentsys.models.simulated.role import SimulatedOptions
from agentsys.models.simulated.victim.predict import asr_range
from agentsys.models.simulated.victim.profile import (
    FACTOR,
    FITTED,
    KINDS,
    STRUCTURAL,
    VictimProfile,
    load_profile,
)
from agentsys.records.case import Case
from agentsys.records.stored_plan import Outlook
from agentsys.runs.settings import Settings


class IntervalAlone(Unavailable):
    """A cell of a victim of which an interval is known and no number: nothing of it is run.

    Args:
        message: As for `ConfigError`.
        place: Name and version of the benchmark.
        shifts: The lowest and the highest change of obeying, on the logit; None where nothing is attacked.
    """

    def __init__(self, message: str, *, place: tuple[str, str], shifts: tuple[float, float] | None) -> None:
        super().__init__(message, needs="published runs")
        self.place = place
        self.shifts = shifts


def victim_of(settings: Settings) -> VictimProfile | None:
    """The profile that a cell's model is fitted to; None where it is no victim."""
    name = settings.model.get("victim")
    return load_profile(name) if isinstance(name, str) else None


def kind_of(settings: Settings, defense: Defense) -> str | None:
    """The kind of forecast of a cell's cases, for their records; None where nothing is forecast."""
    if settings.model.get("victim") is None:
        return None
    return defense.forecast_kind if isinstance(defense, Forecastable) else None


def check_forecast(settings: Settings, benchmark: Benchmark, attack: Attack, defense: Defense) -> None:
    """Refuse a cell of a victim whose number would mean nothing.

    Raises:
        Unavailable: If there are no runs of the benchmark, of one of the suites or of the attack, or the
            defense's effect on a model cannot be told from its structure.
    """
    profile = victim_of(settings)
    if profile is None:
        return
    fitted = profile.fitted_to.benchmark
    if benchmark.name.partition("+")[0] != fitted:
        _refuse(profile, f"has runs of {fitted} alone: {benchmark.name} cannot be forecast", "runs of it")
    chosen = settings.benchmark.get("suites") or benchmark.suite_names()
    unknown = [suite for suite in chosen if suite not in profile.suites]
    if unknown:
        _refuse(profile, f"has no runs of suite {unknown[0]}: it cannot be forecast", "runs of it")
    label = settings.labels["attack"]
    if attack.kind is not AttackKind.NONE and label not in profile.attacks:
        known = ", ".join(profile.attacks)
        _refuse(profile, f"has runs of {known} alone: attack '{label}' cannot be forecast", "runs of it")
    _check_defense(profile, defense, settings.labels["defense"])
    if isinstance(defense, Rewords) and kind_of(settings, defense) == FACTOR:
        raise IntervalAlone(
            _interval(profile, defense.logit_shifts, settings.labels["defense"]),
            place=(benchmark.name, benchmark.version),
            shifts=None if attack.kind is AttackKind.NONE else defense.logit_shifts,
        )


def _check_defense(profile: VictimProfile, defense: Defense, label: str) -> None:
    kind = defense.forecast_kind if isinstance(defense, Forecastable) else None
    if kind is None or kind not in KINDS:
        _refuse(
            profile,
            f"cannot forecast defense '{label}': its effect rests on a model's own judgement, of which there"
            " are no runs",
            "published runs",
        )
    if kind == FACTOR and not isinstance(defense, Rewords):
        _refuse(
            profile,
            f"cannot forecast defense '{label}': it only rewords, and models differ even in the sign of that",
            "published runs",
        )
    if kind != FITTED and STRUCTURAL not in profile.usable_for:
        _refuse(
            profile,
            "is usable for undefended forecasts alone, as the host of its runs dropped calls: defense"
            f" '{label}' cannot be forecast",
            "runs of a host that makes every call",
        )


def _interval(profile: VictimProfile, shifts: tuple[float, float], label: str) -> str:
    """A defense that only rewords: what its shifts on other models would make of this one's ASR."""
    low, high = asr_range(profile, shifts)
    undefended, _ = asr_range(profile, (0.0, 0.0))
    return (
        f"Victim '{profile.name}' gives no number for defense '{label}', which only rewords: by what it did"
        f" to other models, an ASR of {low:.0f} to {high:.0f}% (undefended {undefended:.0f}%)"
        " (docs/victims.md)."
    )


def _refuse(profile: VictimProfile, why: str, needs: str) -> NoReturn:
    raise Unavailable(f"Victim '{profile.name}' {why} (docs/victims.md).", needs=needs)


def intervals(blocked: Iterable[tuple[Settings, IntervalAlone]], cases: Iterable[Case]) -> Iterator[Outlook]:
    """The interval of each attacked cell of a defense that only rewords.

    Args:
        blocked: The cells' settings, and why they are not run.
        cases: What runs: the interval is of those that the same attack has there, so that it stands beside
            their numbers.
    """
    asked = list(blocked)
    listed = list(cases) if asked else []
    for settings, missing in asked:
        profile, labels = victim_of(settings), settings.labels
        if profile is None or missing.shifts is None:
            continue
        pairs = {
            (case.suite, case.user_task_id, case.injection_task_id or "")
            for case in listed
            if (case.model, case.attack) == (labels["model"], labels["attack"])
        }
        wording = profile.attacks[labels["attack"]].shift
        shifts = wording + missing.shifts[0], wording + missing.shifts[1]
        obeyed = _obedience(settings)
        low, high = (obeyed * end for end in asr_range(profile, shifts, pairs or None))
        benchmark, version = missing.place
        yield Outlook(
            benchmark=benchmark,
            version=version,
            model=labels["model"],
            defense=labels["defense"],
            attack=labels["attack"],
            kind=FACTOR,
            low=round(low, 1),
            high=round(high, 1),
            cases=len(pairs),
        )


def _obedience(settings: Settings) -> float:
    """The factor of the probability to obey that the model's options ask for under the cell's attack."""
    given = settings.model.get("susceptibility", 1.0)
    by_attack = dict(given) if isinstance(given, Mapping) else {OTHER: given}
    return SimulatedOptions(by_attack.pop(OTHER, 1.0), by_attack).obedience(settings.labels["attack"])
