"""Footnotes on what an attacker with several tries, or several attacks to choose from, comes to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from agentsys.analysis.metrics.benchmark_facts import is_control
from agentsys.analysis.metrics.best_attack import best_attack
from agentsys.analysis.metrics.denial import denies_service
from agentsys.analysis.metrics.rates import Number
from agentsys.analysis.metrics.several_tries import at_least_once, overall_asr, repeats
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import Side
from agentsys.analysis.statistics.outcome_grid import Tally
from agentsys.records.case_row import NO_ATTACK, SEARCHED_ON_SUFFIX, CaseRow


def several_tries_notes(
    lines: Mapping[tuple[str, str], Sequence[CaseRow]],
    counted: Mapping[tuple[str, str], Mapping[str, Tally]],
    rule: ErrorRule,
    resampler: Resampler,
) -> Iterator[str]:
    """A line per defense and attack that was run several times, and per defense with several attacks.

    Args:
        lines: (defense, attack) -> cases.
        counted: (defense, attack) -> suite -> these, counted by the rule.
        rule: What errored cases count as.
        resampler: Draws the tasks.
    """
    for (defense, attack), cases in lines.items():
        k = repeats(counted[defense, attack])
        if k > 1:
            name = defense if attack == NO_ATTACK else f"{defense} / {attack}"
            tried = ", ".join(_tried(cases, counted[defense, attack], k, resampler))
            yield f"{name}, at least once in {k} runs of a case: {tried}."
    for defense in dict.fromkeys(defense for defense, _ in lines):
        against = [cases for (one, _), cases in lines.items() if one == defense and _aims(cases)]
        best = best_attack(chain.from_iterable(against)) if len(against) > 1 else None
        if best is not None and best.cases:
            asr = _number(overall_asr(best.cases, resampler, rule))
            yield (
                f"{defense}: the best of {best.tried} attacks is {best.name}; ASR {asr}, where each injection"
                " task counts with the attack that is best on all others."
            )


def _tried(
    cases: Sequence[CaseRow], counted: Mapping[str, Tally], k: int, resampler: Resampler
) -> Iterator[str]:
    solved = _number(at_least_once(counted, Side.SOLVED, k, resampler))
    if cases[0].attack == NO_ATTACK:
        yield f"benign utility {solved}"
        return
    yield f"utility under attack {solved}"
    if _aims(cases):
        yield f"ASR {_number(at_least_once(counted, Side.INJECTED, k, resampler))}"


def _aims(cases: Sequence[CaseRow]) -> bool:
    """Whether an attack has a goal of its own that could be reached."""
    attack = cases[0].attack
    if (
        attack == NO_ATTACK
        or attack.endswith(SEARCHED_ON_SUFFIX)
        or is_control(cases)
        or denies_service(attack)
    ):
        return False
    return any(case.injection_task_id for case in cases)


def _number(found: Number) -> str:
    if math.isnan(found.ci_low):
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({found.ci_low:.1f} to {found.ci_high:.1f})"
