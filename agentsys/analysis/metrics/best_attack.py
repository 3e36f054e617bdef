"""The best of several attacks on a defense, corrected for having chosen the maximum; and of several tries.

The highest of several rates is high partly by chance. So each injection task is measured with the attack
that is best on the *other* injection tasks: nothing is chosen on the cases that are counted. Source of the
idea: cross-validation (Stone 1974); injection tasks are the folds, because cases of one goal are alike.
Wherever the best of several attacks is spoken of, this is the number. `pool_attacks` takes several attacks
for one instead: the mean over attack types, as benchmarks publish it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
import scipy

from agentsys.analysis.metrics.cell_verdict import is_control
from agentsys.analysis.metrics.rates import MeasuredCell, Number, make_number
from agentsys.analysis.statistics.outcome_grid import (
    ErrorRule,
    FloatArray,
    Resampler,
    Side,
    Tally,
    tally_suites,
)
from agentsys.analysis.statistics.rate_estimates import UPPER, estimate_mean_rate
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError
from agentsys.records.case_row import NO_ATTACK, CaseRow

_Key = tuple[str, str, str | None, int]
"""`CaseRow.task_key`: suite, user task, injection task, epoch."""


class BestAttack(NamedTuple):
    """The best of the attacks on one defense."""

    name: str
    """The attack with the highest ASR on the cases that the defense has under all of them."""
    tried: int
    """Number of attacks."""
    asr: Number
    """Of each such case under the attack that is best on all other injection tasks: the named one, unless that
    is best by this very task alone. The interval is one that each of the attacks would need so that all hold
    together (Bonferroni)."""


def find_best_attack(
    cases: Iterable[CaseRow], resampler: Resampler, rule: ErrorRule = ErrorRule.REPORT
) -> BestAttack | None:
    """Find the best of the attacks on one defense.

    Args:
        cases: Of one model and defense, under attacks that have a goal of their own.
        resampler: Draws the tasks.
        rule: What errored cases count as.

    Returns:
        None where no two attacks have cases in common, or these have one injection task.
    """
    attacks = {
        name: {case.task_key: case for case in some}
        for name, some in group_by(cases, lambda case: case.attack).items()
    }
    common = sorted(set.intersection(*map(set, attacks.values())), key=str) if len(attacks) > 1 else []
    attacks = {name: {key: attacks[name][key] for key in common} for name in sorted(attacks)}
    best, counted = _find_best(attacks), list[CaseRow]()
    for fold, keys in group_by(common, _fold).items():
        if chosen := _find_best(attacks, without=fold):
            counted += [attacks[chosen][key] for key in keys]
    if best is None or not counted:
        return None
    asr = estimate_mean_rate(tally_suites(counted, rule).values(), Side.INJECTED, resampler)
    return BestAttack(best, len(attacks), make_number(asr, 1 - (1 - UPPER) / len(attacks)))


def _find_best(
    attacks: Mapping[str, Mapping[_Key, CaseRow]], without: tuple[str, str | None] | None = None
) -> str | None:
    """Name the attack with the highest ASR (mean of the suites), of equals the first; None without a case."""
    rates: dict[str, float] = {}
    for name, cases in attacks.items():
        counted = [case for key, case in cases.items() if _fold(key) != without and case.status == "ok"]
        suites = group_by(counted, lambda case: case.suite).values()
        shares = [sum(case.injection_success is True for case in found) / len(found) for found in suites]
        if shares:
            rates[name] = sum(shares) / len(shares)
    return max(rates, key=rates.__getitem__, default=None)


def _fold(key: _Key) -> tuple[str, str | None]:
    return key[0], key[2]


def pool_attacks(cases: Sequence[CaseRow], pattern: str) -> tuple[CaseRow, ...]:
    """The cases, with the attacks whose name matches taken for one, e.g. `opi_* (5 attacks)`.

    Of each defense only cases that it has under all of these attacks are kept, so that every attack
    weighs alike. Controls are left as they are, and so is an attack that is the only match.

    Raises:
        ConfigError: If nowhere two attacks match.
    """
    controls = {case.attack for case in cases if is_control([case])} | {NO_ATTACK}
    attacks = {case.attack for case in cases} - controls
    matching = {name for name in attacks if fnmatchcase(name, pattern)}
    span = 1 + max((case.epoch for case in cases), default=0)
    fields = group_by(cases, lambda case: MeasuredCell.of(case)[:4])
    found = tuple(
        case for field in fields.values() for case in _pool_attacks_in_field(field, matching, pattern, span)
    )
    if {case.attack for case in found} <= attacks | controls:
        raise ConfigError(
            f"--together {pattern}: two attacks or more must match; these runs have"
            f" {', '.join(sorted(attacks)) or 'none'}."
        )
    return found


def _pool_attacks_in_field(
    field: Sequence[CaseRow], matching: set[str], pattern: str, span: int
) -> Iterator[CaseRow]:
    names = sorted({case.attack for case in field} & matching)
    if len(names) < 2:
        yield from field
        return
    shared = set.intersection(*({case.task_key for case in field if case.attack == name} for name in names))
    for case in field:
        if case.attack not in names:
            yield case
        elif case.task_key in shared:
            # Each attack's cases are repetitions of their own, none of which is that of a control.
            epoch = (1 + names.index(case.attack)) * span + case.epoch
            yield replace(case, attack=f"{pattern} ({len(names)} attacks)", epoch=epoch)


def count_least_repeats(counted: Mapping[str, Tally]) -> int:
    """Count how often every case of one model, defense and attack was run; 0 without cases."""
    run = [found.cases[found.cases > 0] for found in counted.values()]
    return min((int(times.min()) for times in run if len(times)), default=0)


def compute_pass_at_k(counted: Mapping[str, Tally], side: Side, k: int, resampler: Resampler) -> Number:
    """Overall share of cases in which the outcome occurs in one of k tries or more (pass@k).

    Args:
        counted: Suite -> cases of one model, defense and attack (or benign).
        side: Which outcome.
        k: Tries; at most `count_least_repeats(counted)`.
        resampler: Draws the tasks.

    Source: M. Chen et al., "Evaluating Large Language Models Trained on Code", arXiv 2107.03374, 2021: the
    mean over all ways to choose k of a case's tries.
    """
    return make_number(
        estimate_mean_rate((_compute_chances(found, k) for found in counted.values()), side, resampler)
    )


def _compute_chances(counted: Tally, k: int) -> Tally:
    """A tally in which every case counts once, for the chance that one of k of its tries succeeds."""
    enough = counted.cases >= k

    def compute_chance(hits: FloatArray) -> FloatArray:
        draws = scipy.special.binom(counted.cases, k)
        none = scipy.special.binom(counted.cases - hits, k) / np.maximum(draws, 1)
        return np.where(enough, 1 - none, 0.0)

    solved, hijacked = compute_chance(counted.solved), compute_chance(counted.hijacked)
    return replace(counted, cases=enough.astype(np.float64), solved=solved, hijacked=hijacked)
