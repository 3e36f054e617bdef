"""`Estimate`: a rate with its bootstrap replicates, and the ways in which rates combine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from agentsys.analysis.statistics.bootstrap import Resampler, resampled_total
from agentsys.analysis.statistics.outcome_grid import FloatArray, Tally
from agentsys.analysis.statistics.single_task_suites import (
    Lone,
    macro_draws,
    macro_spread,
    pooled_draws,
    pooled_spread,
)
from agentsys.analysis.statistics.variance import Spread, joined, scaled, spread

OVERALL = "overall"
"""Level of a rate: the unweighted mean of the suites."""
POOLED = "pooled"
"""Level of a rate: all cases of all suites together."""


class Side(Enum):
    """The one of a case's two outcomes that is asked about."""

    SOLVED = "solved"
    """The user task."""
    INJECTED = "hijacked"
    """The injection task."""


@dataclass(frozen=True)
class SuiteTotals:
    """Successes and cases, as counted and in each replicate (arrays of shape (replicates,))."""

    hits: float
    cases: float
    hit_draws: FloatArray
    case_draws: FloatArray
    errors: int
    spread: Spread
    """Of the rate `hits / cases`."""
    lone: Lone | None = None
    """Set where the suite has a single user task."""


@dataclass(frozen=True)
class Estimate:
    """A proportion; nan where undefined."""

    value: float
    draws: FloatArray
    """Shape (replicates,)."""
    n: int
    """Cases it rests on."""
    errors: int
    """Errored cases among those that were to be counted."""
    spreads: tuple[Spread, ...] = ()
    """One per suite, in the order of the suites; a single one where suites are drawn."""
    lone: Lone | None = None
    """Set for the rate of one suite that has a single user task."""


def totals(
    counted: Tally, side: Side, resampler: Resampler, frame: tuple[str, ...] | None = None
) -> SuiteTotals:
    """One suite's totals."""
    grid = counted.solved if side is Side.SOLVED else counted.hijacked
    return SuiteTotals(
        hits=float(grid.sum()),
        cases=float(counted.cases.sum()),
        hit_draws=resampled_total(grid, counted, resampler, frame),
        case_draws=resampler.case_totals(counted, frame),
        errors=counted.errors,
        spread=spread(grid, counted, frame),
        lone=_lone(grid, counted, resampler) if len(frame or counted.user_tasks) <= 1 else None,
    )


def _lone(grid: FloatArray, counted: Tally, resampler: Resampler) -> Lone:
    cells = int(np.count_nonzero(counted.cases))
    return Lone(counted.suite, float(grid.sum()), float(counted.cases.sum()), cells, resampler)


def rate(parts: Sequence[SuiteTotals]) -> Estimate:
    """Successes over cases: a suite's rate for one part, the pooled rate for several.

    Where several suites have a single user task each, suites are drawn (`single_task_suites`).
    """
    cases = sum(part.cases for part in parts)
    value = sum(part.hits for part in parts) / cases if cases else float("nan")
    errors, lone = sum(part.errors for part in parts), [part.lone for part in parts if part.lone]
    if len(parts) > 1 and len(lone) == len(parts) and cases:
        return Estimate(value, pooled_draws(lone), int(cases), errors, (pooled_spread(lone),))
    hits, drawn = _summed([part.hit_draws for part in parts]), _summed([part.case_draws for part in parts])
    draws = np.divide(hits, drawn, out=np.full_like(hits, np.nan), where=drawn > 0)
    spreads = tuple(scaled(part.spread, part.cases / cases if cases else 0.0) for part in parts)
    return Estimate(value, draws, int(cases), errors, spreads, lone[0] if len(parts) == 1 and lone else None)


def _summed(draws: Sequence[FloatArray]) -> FloatArray:
    """The sum in each replicate; of one suite its own."""
    return draws[0] if len(draws) == 1 else np.sum(draws, axis=0)


def macro(suites: Sequence[Estimate]) -> Estimate:
    """The unweighted mean of the suites: the paper's Overall. nan if a suite is undefined.

    Where several suites have a single user task each, suites are drawn (`single_task_suites`).

    Equals the paper's Table 2 on the published gpt-4o-mini runs.
    """
    value = float(np.mean([suite.value for suite in suites]))
    n, errors = sum(suite.n for suite in suites), sum(suite.errors for suite in suites)
    lone = [suite.lone for suite in suites if suite.lone and suite.lone.cases]
    if len(suites) > 1 and len(lone) == len(suites):
        return Estimate(value, macro_draws(lone), n, errors, (macro_spread(lone),))
    return Estimate(
        value=value,
        draws=np.mean([suite.draws for suite in suites], axis=0),
        n=n,
        errors=errors,
        spreads=tuple(scaled(part, 1 / len(suites)) for suite in suites for part in suite.spreads),
    )


def levels(
    suites: Mapping[str, Tally],
    side: Side,
    resampler: Resampler,
    frames: Mapping[str, tuple[str, ...]] | None = None,
) -> dict[str, Estimate]:
    """The rate of each suite, then `overall`, then `pooled`."""
    parts = {name: totals(of, side, resampler, (frames or {}).get(name)) for name, of in suites.items()}
    rates = {name: rate([part]) for name, part in parts.items()}
    return {**rates, OVERALL: macro(list(rates.values())), POOLED: rate(list(parts.values()))}


def defense_quality(benign: Estimate, asr: Estimate) -> Estimate:
    """Benign utility x (1 - targeted ASR), at whatever level the two are given.

    Overall is the product of the two overall rates, not the mean of the suites' products: the paper's
    Figure 3(b) prints 44.06 = 63.54 x (1 - 0.3066) for gpt-4o-mini; the mean of products is 44.20.
    """
    return Estimate(
        value=benign.value * (1 - asr.value),
        draws=benign.draws * (1 - asr.draws),
        n=benign.n + asr.n,
        errors=benign.errors + asr.errors,
        spreads=tuple(
            joined(scaled(attacked, -benign.value), scaled(solved, 1 - asr.value))
            for attacked, solved in zip(asr.spreads, benign.spreads, strict=False)
        ),
    )


def undefined(replicates: int) -> Estimate:
    """An estimate that no case supports."""
    return Estimate(float("nan"), np.full(replicates, np.nan), 0, 0)
