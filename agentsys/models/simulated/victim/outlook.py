"""`asr_range`: a profile's overall ASR under a change of the logit, worked out from the profile alone."""

from __future__ import annotations

from collections.abc import Iterator

from agentsys.models.simulated.victim.predict import probability
from agentsys.models.simulated.victim.profile import VictimProfile


def chances(profile: VictimProfile, shift: float = 0.0) -> Iterator[tuple[str, str, str, float]]:
    """(suite, user task, injection task, probability of success) of every pair that the runs had.

    The moment of each counts as an average one: what decides it is known only while a case is played.
    """
    goals: dict[str, list[str]] = {}
    for goal in profile.obey.effects["injection"]:
        goals.setdefault(goal.partition("/")[0], []).append(goal)
    for user in profile.exposed.effects["user"]:
        suite = user.partition("/")[0]
        read = probability(profile.exposed, {"suite": suite, "user": user}, {})
        for goal in goals.get(suite, ()):
            levels = {"suite": suite, "user": user, "injection": goal}
            yield suite, user, goal, read * probability(profile.obey, levels, {}, shift)


def asr_range(profile: VictimProfile, shifts: tuple[float, float]) -> tuple[float, float]:
    """Overall ASR, percent, under the lower and the upper of two shifts."""
    low, high = ([chance for *_, chance in chances(profile, shift)] for shift in (min(shifts), max(shifts)))
    return 100 * sum(low) / len(low), 100 * sum(high) / len(high)
