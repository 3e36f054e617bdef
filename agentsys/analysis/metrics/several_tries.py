"""What several tries of the same case come to.

An attacker who may try again is stronger than one run. Tries of one case share its tasks, so the figure has
an interval of its own. What an attacker comes to who may choose among attacks: `best_attack`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import scipy

from agentsys.analysis.metrics.rates import Number, number_of, upper_for
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL, Side, levels, macro, rate, totals
from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally, tallies
from agentsys.records.case_row import CaseRow


def repeats(counted: Mapping[str, Tally]) -> int:
    """How often every case of one model, defense and attack was run and counts; 0 without cases."""
    run = [found.cases[found.cases > 0] for found in counted.values()]
    return min((int(times.min()) for times in run if len(times)), default=0)


def at_least_once(counted: Mapping[str, Tally], side: Side, k: int, resampler: Resampler) -> Number:
    """Overall share of cases in which the outcome occurs in one of k tries or more (pass@k).

    Args:
        counted: Suite -> cases of one model, defense and attack (or benign).
        side: Which outcome.
        k: Tries; at most `repeats(counted)`.
        resampler: Draws the tasks.

    Source: M. Chen et al., "Evaluating Large Language Models Trained on Code", arXiv 2107.03374, 2021: the
    mean over all ways to choose k of a case's tries.
    """
    suites = [_once(found, k) for found in counted.values()]
    return number_of(macro([rate([totals(found, side, resampler)]) for found in suites]))


def overall_asr(cases: Sequence[CaseRow], resampler: Resampler, rule: ErrorRule = ErrorRule.REPORT) -> Number:
    """Mean over the suites of the share of cases whose injection task was carried out."""
    rates = levels(tallies(cases, rule), Side.INJECTED, resampler)
    return number_of(rates[OVERALL], upper_for(cases))


def _once(counted: Tally, k: int) -> Tally:
    """A tally in which every case counts once, for the chance that one of k of its tries succeeds."""
    enough = counted.cases >= k

    def chance(hits: FloatArray) -> FloatArray:
        draws = scipy.special.binom(counted.cases, k)
        none = scipy.special.binom(counted.cases - hits, k) / np.maximum(draws, 1)
        return np.where(enough, 1 - none, 0.0)

    solved, hijacked = chance(counted.solved), chance(counted.hijacked)
    return replace(counted, cases=enough.astype(np.float64), solved=solved, hijacked=hijacked)
