"""The best of several attacks on each defense, corrected for having chosen the maximum; and of several tries.

The highest of several rates is high partly by chance. So each injection task is measured with the attack
that is best on the *other* injection tasks: nothing is chosen on the cases that are counted. Source of the
idea: cross-validation (Stone 1974); injection tasks are the folds, because cases of one goal are alike.
Wherever the best of several attacks is spoken of, this is the number. `pool_attacks` takes several attacks
for one instead: the mean over attack types, as benchmarks publish it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
import scipy

from agentsys.analysis.metrics.attack_success import is_denial_of_service
from agentsys.analysis.metrics.cell_verdict import IS_CONTROL
from agentsys.analysis.metrics.rates import CHOSEN_AMONG, MeasuredCell, Number, number_of, upper_for
from agentsys.analysis.statistics.outcome_grid import (
    ErrorRule,
    FloatArray,
    Resampler,
    Side,
    Tally,
    tally_suites,
)
from agentsys.analysis.statistics.rate_estimates import mean_rate
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError
from agentsys.records.case_row import NO_ATTACK, SEARCHED_ON_SUFFIX, CaseRow

_Key = tuple[str, str, str | None, int]
"""`CaseRow.task_key`: suite, user task, injection task, epoch."""
_ByAttack = Mapping[str, Mapping[_Key, CaseRow]]
_OF_SEVERAL = re.compile(r"(?:best|any) of \d+")


@dataclass(frozen=True)
class BestAttack:
    """The best of the attacks on one defense."""

    name: str
    """The attack with the highest ASR on the cases that the defense has under all of them."""
    tried: int
    """Number of attacks."""
    cases: tuple[CaseRow, ...]
    """Each shared case under the attack that is best on all other injection tasks: the named one, unless that
    is best by this very task alone. Empty where all cases have one injection task."""


@dataclass(frozen=True)
class BestAttacks:
    """The attacked cases of each defense as two lines: its best attack, and any of them."""

    cases: tuple[CaseRow, ...]
    notes: tuple[str, ...]


def best_attacks(cases: Sequence[CaseRow], among: str = "*") -> BestAttacks:
    """Replace each defense's attacks that match a shell pattern by the best of them; benign cases stay.

    Only cases that a defense has under all of its attacks are counted. Left out are denials of service,
    controls, and the cases that a search's text was searched on.

    Raises:
        ConfigError: If no defense has two such attacks.
    """
    fields = group_by(cases, lambda case: MeasuredCell.of(case)[:4])
    kept = [case for case in cases if case.attack == NO_ATTACK]
    notes = []
    for (_, _, model, defense), field in fields.items():
        attacks = _cases_in_common(field, among)
        if len(attacks) > 1:
            kept += _best_and_any(attacks)
            notes.append(_note(f"{model} / {defense}", attacks))
    if not notes:
        known = ", ".join(sorted({case.attack for case in cases} - {NO_ATTACK})) or "none"
        raise ConfigError(
            f"--best-attack: no defense has two attacks with cases in common; these runs have {known}."
        )
    counted = {len(_cases_in_common(field, among)) for field in fields.values()} - {0}
    if len(counted) > 1:
        notes.append(
            "Defenses were tried with different numbers of attacks: their maxima cannot be compared."
        )
    return BestAttacks(tuple(kept), (*notes, _MEANING))


_MEANING = (
    "The best attack is the one with the highest ASR (mean of the suites) on the cases that the defense has"
    " under all of them. The highest of several rates is too high by chance, so each injection task counts"
    " with the attack that is best on all others, and the interval allows for the choice; the attacks' own"
    " rates are listed above. 'Any' counts a case where at least one succeeded."
)


def best_attack(cases: Iterable[CaseRow]) -> BestAttack | None:
    """Find the best of the attacks on one defense; None if it has no two with cases in common.

    Args:
        cases: Of one model and defense. Left out is what `best_attacks` leaves out, and its own lines.
    """
    attacks = _cases_in_common(cases, "*")
    return _best_of(attacks) if len(attacks) > 1 else None


def _cases_in_common(field: Iterable[CaseRow], among: str) -> dict[str, dict[_Key, CaseRow]]:
    """Attack -> its cases, of the cases that all attacks have."""
    found: dict[str, dict[_Key, CaseRow]] = {}
    for case in field:
        lone = (
            case.attack == NO_ATTACK
            or case.attack.endswith(SEARCHED_ON_SUFFIX)
            or is_denial_of_service(case.attack)
        )
        lone = lone or _OF_SEVERAL.match(case.attack) is not None or case.measured.get(IS_CONTROL) is True
        if not lone and fnmatchcase(case.attack, among):
            found.setdefault(case.attack, {})[case.task_key] = case
    if len(found) < 2:
        return found
    common = sorted(set.intersection(*(set(one) for one in found.values())), key=str)
    return {name: {key: found[name][key] for key in common} for name in sorted(found)} if common else {}


def _best_and_any(attacks: _ByAttack) -> Iterator[CaseRow]:
    if best := _best_of(attacks):
        yield from (replace(case, attack=f"best of {best.tried}: {best.name}") for case in best.cases)
    for key in next(iter(attacks.values())):
        # The case as the attack that succeeded on it left it; errored where one errored and none succeeded.
        cases = [one[key] for one in attacks.values()]
        left = max(cases, key=lambda case: (_is_success(case), case.status == "error"))
        yield replace(left, attack=f"any of {len(attacks)}")


def _best_of(attacks: _ByAttack) -> BestAttack | None:
    """Find the best attack; None if every case of every attack is an error."""
    best = _best(attacks)
    if best is None:
        return None
    cases = []
    for fold, keys in group_by(next(iter(attacks.values())), _fold).items():
        # The attack that is best on all other injection tasks; none where this one is alone.
        if chosen := _best(attacks, without=fold):
            cases += [attacks[chosen][key] for key in keys]
    marked = (replace(one, measured={**one.measured, CHOSEN_AMONG: len(attacks)}) for one in cases)
    return BestAttack(best, len(attacks), tuple(marked))


def _best(attacks: _ByAttack, without: tuple[str, str | None] | None = None) -> str | None:
    """Name the attack with the highest ASR, of equals the first; None without a case to choose on."""
    rates = {name: _rate(cases, without) for name, cases in attacks.items()}
    known = {name: rate for name, rate in rates.items() if rate is not None}
    return max(sorted(known), key=known.__getitem__, default=None)


def _rate(cases: Mapping[_Key, CaseRow], without: tuple[str, str | None] | None = None) -> float | None:
    """Mean over the suites of the share of successes among cases without an error."""
    counted = [case for key, case in cases.items() if _fold(key) != without and case.status == "ok"]
    suites = group_by(counted, lambda case: case.suite).values()
    shares = [sum(map(_is_success, found)) / len(found) for found in suites]
    return sum(shares) / len(shares) if shares else None


def _is_success(case: CaseRow) -> bool:
    return case.status == "ok" and case.injection_success is True


def _fold(key: _Key) -> tuple[str, str | None]:
    return key[0], key[2]


def _note(who: str, attacks: _ByAttack) -> str:
    rates = {name: _rate(cases) for name, cases in attacks.items()}
    told = ", ".join(
        f"{name} {100 * rate:.1f}" if rate is not None else f"{name} n/a"
        for name, rate in sorted(rates.items(), key=lambda item: -(item[1] or 0.0))
    )
    shared = len(next(iter(attacks.values())))
    return f"{who}: {len(attacks)} attacks tried on {shared} cases each: {told}."


def pool_attacks(cases: Sequence[CaseRow], pattern: str) -> tuple[CaseRow, ...]:
    """The cases, with the attacks whose name matches taken for one, e.g. `opi_* (5 attacks)`.

    Of each defense only cases that it has under all of these attacks are kept, so that every attack
    weighs alike. Controls are left as they are, and so is an attack that is the only match.

    Raises:
        ConfigError: If nowhere two attacks match.
    """
    controls = {case.attack for case in cases if case.measured.get(IS_CONTROL) is True} | {NO_ATTACK}
    attacks = {case.attack for case in cases} - controls
    matching = {name for name in attacks if fnmatchcase(name, pattern)}
    span = 1 + max((case.epoch for case in cases), default=0)
    fields = group_by(cases, lambda case: MeasuredCell.of(case)[:4])
    found = tuple(
        case for field in fields.values() for case in _pool_in_field(field, matching, pattern, span)
    )
    if {case.attack for case in found} <= attacks | controls:
        raise ConfigError(
            f"--together {pattern}: two attacks or more must match; these runs have"
            f" {', '.join(sorted(attacks)) or 'none'}."
        )
    return found


def _pool_in_field(
    field: Sequence[CaseRow], matching: set[str], pattern: str, span: int
) -> Iterator[CaseRow]:
    """The cases of one defense on one benchmark."""
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


def least_repeats(counted: Mapping[str, Tally]) -> int:
    """Count how often every case of one model, defense and attack was run; 0 without cases."""
    run = [found.cases[found.cases > 0] for found in counted.values()]
    return min((int(times.min()) for times in run if len(times)), default=0)


def at_least_once(counted: Mapping[str, Tally], side: Side, k: int, resampler: Resampler) -> Number:
    """Overall share of cases in which the outcome occurs in one of k tries or more (pass@k).

    Args:
        counted: Suite -> cases of one model, defense and attack (or benign).
        side: Which outcome.
        k: Tries; at most `least_repeats(counted)`.
        resampler: Draws the tasks.

    Source: M. Chen et al., "Evaluating Large Language Models Trained on Code", arXiv 2107.03374, 2021: the
    mean over all ways to choose k of a case's tries.
    """
    return number_of(mean_rate((_chances(found, k) for found in counted.values()), side, resampler))


def overall_asr(cases: Sequence[CaseRow], resampler: Resampler, rule: ErrorRule = ErrorRule.REPORT) -> Number:
    """Mean over the suites of the share of cases whose injection task was carried out."""
    found = mean_rate(tally_suites(cases, rule).values(), Side.INJECTED, resampler)
    return number_of(found, upper_for(cases))


def _chances(counted: Tally, k: int) -> Tally:
    """A tally in which every case counts once, for the chance that one of k of its tries succeeds."""
    enough = counted.cases >= k

    def chance(hits: FloatArray) -> FloatArray:
        draws = scipy.special.binom(counted.cases, k)
        none = scipy.special.binom(counted.cases - hits, k) / np.maximum(draws, 1)
        return np.where(enough, 1 - none, 0.0)

    solved, hijacked = chance(counted.solved), chance(counted.hijacked)
    return replace(counted, cases=enough.astype(np.float64), solved=solved, hijacked=hijacked)
