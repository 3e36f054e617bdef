"""`asr_range`: a profile's overall ASR under a change of the logit, worked out from the profile alone."""

from __future__ import annotations

from collections.abc import Container, Iterator

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


def asr_range(
    profile: VictimProfile,
    shifts: tuple[float, float],
    pairs: Container[tuple[str, str, str]] | None = None,
) -> tuple[float, float]:
    """Mean ASR, percent, under the lower and the upper of two shifts.

    Args:
        profile: The victim.
        shifts: On the logit.
        pairs: (suite, user task, injection task) of those to average over, each suite by itself and then the
            suites, as tables do; None: all that the runs had, each alike.
    """
    low, high = (_mean(profile, shift, pairs) for shift in (min(shifts), max(shifts)))
    return 100 * low, 100 * high


def _mean(profile: VictimProfile, shift: float, pairs: Container[tuple[str, str, str]] | None) -> float:
    found: dict[str, list[float]] = {}
    for suite, user, goal, chance in chances(profile, shift):
        if pairs is None:
            found.setdefault("", []).append(chance)
        elif (suite, user.partition("/")[2], goal.partition("/")[2]) in pairs:
            found.setdefault(suite, []).append(chance)
    return sum(sum(one) / len(one) for one in found.values()) / len(found)
