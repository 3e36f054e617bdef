"""Every defense in some folders against one of them: the long form of differences, and what flipped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from agentsys.analysis.metrics.difference_row import ALL_CASES, EXPOSED, Contest, DifferenceRow, Field
from agentsys.analysis.metrics.rates import BENIGN_UTILITY, TARGETED_ASR, UTILITY_UNDER_ATTACK
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL, POOLED, Side
from agentsys.analysis.statistics.intervals import difference_interval
from agentsys.analysis.statistics.paired import (
    Compared,
    Pair,
    Pairing,
    changed,
    compared,
    exposed_in_both,
    p_value,
    pair_up,
)
from agentsys.analysis.statistics.power import smallest_detectable
from agentsys.errors import ConfigError, unknown_name
from agentsys.records.case_row import NO_ATTACK, CaseRow

COMPARED_METRICS = (BENIGN_UTILITY, UTILITY_UNDER_ATTACK, TARGETED_ASR)

_SIDES = {
    BENIGN_UTILITY: Side.SOLVED,
    UTILITY_UNDER_ATTACK: Side.SOLVED,
    TARGETED_ASR: Side.HIJACKED,
}


class Flip(NamedTuple):
    """A case whose outcome differs."""

    contest: Contest
    metric: str
    gained: bool
    """Whether the outcome occurred under the defense; otherwise under the baseline."""
    pair: Pair


@dataclass(frozen=True)
class Comparison:
    """All contests of some folders."""

    baseline: str
    rows: tuple[DifferenceRow, ...]
    """Sorted by contest, metric, `cases` (all first), suite (`overall` and `pooled` last)."""
    flips: tuple[Flip, ...]
    """On all cases, in the order of the rows."""
    pairings: Mapping[Contest, Pairing]
    """Of every contest, those without a shared case included."""
    unopposed: Mapping[Field, int]
    """Where the baseline alone was run -> its cases."""


def compare(
    cases: Iterable[CaseRow],
    baseline: str = "none",
    metrics: Sequence[str] = COMPARED_METRICS,
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    replicates: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compares every other defense with the baseline, on the cases that both have.

    Args:
        cases: In any order. Injection tasks run as user tasks are left out.
        baseline: The defense to compare with.
        metrics: Some of `COMPARED_METRICS`.
        errors: What errored cases count as.
        replicates: Of the bootstrap.
        seed: Of the bootstrap.

    Raises:
        ConfigError: If a metric is unknown, the baseline is not among the defenses, or no other
            defense has a case of the same kind.
    """
    for metric in metrics:
        if metric not in COMPARED_METRICS:
            raise ConfigError(unknown_name("metric", metric, COMPARED_METRICS))
    fields_of = _fields([case for case in cases if not case.is_injection_task_alone])
    _check_defenses(fields_of, baseline)
    pairings = _pairings(fields_of, baseline, errors)
    resampler = Resampler(replicates, seed)
    rows: list[DifferenceRow] = []
    flips: list[Flip] = []
    for contest, pairing in pairings.items():
        for metric in metrics:
            if (metric == BENIGN_UTILITY) is (contest.field.attack == NO_ATTACK) and pairing.pairs:
                rows += _rows(contest, metric, pairing, errors, resampler)
                flips += _flips(contest, metric, pairing.pairs, errors)
    unopposed = {
        field: len(found[baseline]) for field, found in fields_of.items() if found.keys() == {baseline}
    }
    return Comparison(baseline, tuple(_corrected(rows)), tuple(flips), pairings, unopposed)


def _fields(cases: Iterable[CaseRow]) -> dict[Field, dict[str, list[CaseRow]]]:
    """Field -> defense -> cases, sorted, benign fields before attacked ones."""
    found: defaultdict[Field, dict[str, list[CaseRow]]] = defaultdict(dict)
    for case in cases:
        field = Field(case.benchmark, case.version, case.shown_model, case.attack)
        found[field].setdefault(case.defense, []).append(case)
    return {
        field: found[field]
        for field in sorted(found, key=lambda key: (*key[:3], key[3] != NO_ATTACK, key[3]))
    }


def _check_defenses(fields_of: Mapping[Field, Mapping[str, object]], baseline: str) -> None:
    defenses = {defense for found in fields_of.values() for defense in found}
    if baseline not in defenses:
        raise ConfigError(unknown_name("baseline", baseline, defenses) + " Name one with --baseline.")
    if len(defenses) == 1:
        raise ConfigError(f"Only '{baseline}' is in these folders: add the folder of another defense's run.")


def _pairings(
    fields_of: Mapping[Field, Mapping[str, list[CaseRow]]], baseline: str, errors: ErrorRule
) -> dict[Contest, Pairing]:
    return {
        Contest(field, baseline, defense): pair_up(found.get(baseline, []), found[defense], errors)
        for field, found in fields_of.items()
        for defense in sorted(found)
        if defense != baseline
    }


def _rows(
    contest: Contest, metric: str, pairing: Pairing, errors: ErrorRule, resampler: Resampler
) -> Iterator[DifferenceRow]:
    side = _SIDES[metric]
    for which, pairs in ((ALL_CASES, pairing.pairs), (EXPOSED, exposed_in_both(pairing.pairs))):
        gained, lost = (changed(pairs, side, errors, to=to) for to in (True, False))
        levels = compared(pairs, side, resampler, errors) if pairs else {}
        for suite, found in levels.items():
            row = _row(contest, suite, metric, which, found, pairing)
            yield replace(row, gained=_in_suite(gained, suite), lost=_in_suite(lost, suite))


def _row(
    contest: Contest, suite: str, metric: str, which: str, found: Compared, pairing: Pairing
) -> DifferenceRow:
    interval = difference_interval(found.difference)
    p = p_value(found.difference)
    return DifferenceRow(
        *contest.field,
        baseline=contest.baseline,
        defense=contest.defense,
        suite=suite,
        metric=metric,
        cases=which,
        baseline_value=_percent(found.baseline),
        defense_value=_percent(found.defense),
        difference=_percent(found.difference.value),
        ci_low=_percent(interval.low),
        ci_high=_percent(interval.high),
        p=p,
        p_holm=p,
        n=found.difference.n,
        gained=0,
        lost=0,
        smallest_detectable=_percent(smallest_detectable(found.difference)),
        errored=pairing.errored,
        only_baseline=pairing.only_baseline,
        only_defense=pairing.only_defense,
    )


def _in_suite(pairs: Iterable[Pair], suite: str) -> int:
    return sum(suite in (OVERALL, POOLED, pair.baseline.suite) for pair in pairs)


def _flips(contest: Contest, metric: str, pairs: tuple[Pair, ...], errors: ErrorRule) -> Iterator[Flip]:
    for gained in (True, False):
        for pair in changed(pairs, _SIDES[metric], errors, to=gained):
            yield Flip(contest, metric, gained, pair)


def _corrected(rows: Sequence[DifferenceRow]) -> list[DifferenceRow]:
    """Holm's correction inside each table: overall, pooled and single suites, all and exposed cases apart."""
    families: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.p == row.p:  # an undefined test is no test
            level = row.suite if row.suite in (OVERALL, POOLED) else "suite"
            families[level, row.cases].append(index)
    corrected = list(rows)
    # Of a single test there is nothing to correct, and statsmodels collects garbage at every call.
    for members in (several for several in families.values() if len(several) > 1):
        for index, p in zip(members, _holm([rows[index].p for index in members]), strict=True):
            corrected[index] = replace(rows[index], p_holm=p)
    return corrected


def _holm(p_values: Sequence[float]) -> list[float]:
    # Here, because it costs a second that `--help` and `results` do without.
    from statsmodels.stats.multitest import multipletests

    return [float(p) for p in multipletests(p_values, method="holm")[1]]


def _percent(proportion: float) -> float:
    """Rounded where floating point has nothing more to say."""
    return round(100.0 * proportion, 9)
