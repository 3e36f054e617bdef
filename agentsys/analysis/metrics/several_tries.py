"""What several tries come to: the same case run several times, and the strongest of several attacks.

An attacker who may try again, or choose among attacks, is stronger than one run of one attack. Both figures
have intervals of their own: tries of one case share its tasks, and the strongest attack was chosen because it
did best, partly by luck.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import special

from agentsys.analysis.metrics.rates import Number, number_of, percent
from agentsys.analysis.statistics.bootstrap import CONFIDENCE, Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule, outcome
from agentsys.analysis.statistics.estimate import Estimate, Side, macro, rate, totals
from agentsys.analysis.statistics.intervals import UPPER, proportion_interval
from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally, tally
from agentsys.records.case_row import CaseRow


class Strongest(NamedTuple):
    """The attack that did best, of some."""

    attack: str
    number: Number
    """Its overall ASR; the interval is of the best attack's true ASR, whichever that is."""


def repeats(cases: Sequence[CaseRow], rule: ErrorRule = ErrorRule.REPORT) -> int:
    """How often every case of one model, defense and attack was run and counts; 0 without cases."""
    counted = Counter(
        (case.suite, case.user_task_id, case.injection_task_id)
        for case in cases
        if outcome(case, rule) is not None
    )
    return min(counted.values(), default=0)


def at_least_once(
    cases: Sequence[CaseRow], side: Side, k: int, resampler: Resampler, rule: ErrorRule = ErrorRule.REPORT
) -> Number:
    """Overall share of cases in which the outcome occurs in one of k tries or more (pass@k).

    Args:
        cases: Of one model, defense and attack (or benign).
        side: Which outcome.
        k: Tries; at most `repeats(cases)`.
        resampler: Draws the tasks.
        rule: What errored cases count as.

    Source: M. Chen et al., "Evaluating Large Language Models Trained on Code", arXiv 2107.03374, 2021: the
    mean over all ways to choose k of a case's tries.
    """
    suites = [_once(found, k) for found in _tallies(cases, rule)]
    return number_of(macro([rate([totals(found, side, resampler)]) for found in suites]))


def strongest(
    attacks: Mapping[str, Sequence[CaseRow]], resampler: Resampler, rule: ErrorRule = ErrorRule.REPORT
) -> Strongest | None:
    """The attack with the highest overall ASR, with an interval that allows for its having been chosen.

    Args:
        attacks: Attack -> its cases against one defense of one model. Attacks that lack a suite that another
            has are left out.
        resampler: Draws the tasks, the same for every attack.
        rule: What errored cases count as.

    Returns:
        None unless two attacks or more have a rate with an interval.
    """
    suites = {case.suite for cases in attacks.values() for case in cases}
    whole = {name: cases for name, cases in attacks.items() if {case.suite for case in cases} == suites}
    return best_of({name: _overall_asr(cases, resampler, rule) for name, cases in whole.items()})


def best_of(rates: Mapping[str, Estimate]) -> Strongest | None:
    """The highest of several rates, with an interval of the highest true one.

    All intervals are made so much longer that together they hold their true rates in 95% of runs: by the
    largest of the standardized replicates of each draw of tasks. The highest true rate then lies between the
    largest of the lower ends and the largest of the upper ones.

    Source: joint inference from the maximum of bootstrapped statistics: J. P. Romano, M. Wolf, Journal of the
    American Statistical Association 100(469), 2005 (there for tests).
    """
    known = {name: one for name, one in rates.items() if not math.isnan(proportion_interval(one).low)}
    if len(known) < 2:
        return None
    upper = _joint_upper([one.draws for one in known.values()])
    intervals = [proportion_interval(one, upper) for one in known.values()]
    name = max(known, key=lambda one: (known[one].value, one))
    low, high = max(one.low for one in intervals), max(one.high for one in intervals)
    best = known[name]
    return Strongest(name, Number(percent(best.value), percent(low), percent(high), best.n, best.errors))


def _overall_asr(cases: Sequence[CaseRow], resampler: Resampler, rule: ErrorRule) -> Estimate:
    return macro([rate([totals(found, Side.INJECTED, resampler)]) for found in _tallies(cases, rule)])


def _tallies(cases: Sequence[CaseRow], rule: ErrorRule) -> list[Tally]:
    by_suite: defaultdict[str, list[CaseRow]] = defaultdict(list)
    for case in cases:
        by_suite[case.suite].append(case)
    return [tally(suite, by_suite[suite], rule) for suite in sorted(by_suite)]


def _once(counted: Tally, k: int) -> Tally:
    """A tally in which every case counts once, for the chance that one of k of its tries succeeds."""
    enough = counted.cases >= k

    def chance(hits: FloatArray) -> FloatArray:
        none = special.binom(counted.cases - hits, k) / np.maximum(special.binom(counted.cases, k), 1)
        return np.where(enough, 1 - none, 0.0)

    solved, hijacked = chance(counted.solved), chance(counted.hijacked)
    return replace(counted, cases=enough.astype(np.float64), solved=solved, hijacked=hijacked)


def _joint_upper(draws: Sequence[FloatArray]) -> float:
    """The quantile at which intervals of several estimates hold together as often as one does alone."""
    varying = [one[~np.isnan(one)] for one in draws]
    standard = [np.abs(one - one.mean()) / one.std() for one in varying if len(one) and one.std() > 0]
    same = [one for one in standard if len(one) == len(standard[0])] if standard else []
    if len(same) < len(draws):
        return 1 - (1 - UPPER) / len(draws)  # Bonferroni, where an attack shows no spread
    largest = float(np.percentile(np.max(same, axis=0), CONFIDENCE))
    return max(float(special.ndtr(largest)), UPPER)
