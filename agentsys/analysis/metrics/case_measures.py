"""Measures of cases besides their two scores: cost, untrusted text, guards, and facts of benchmarks.

Definitions: docs/data.md#measures. Every measure is a function of the cases of one group. How much untrusted
text reached an agent that can act, and for how long, are means over cases: those that errored and those whose
value is unknown are left out, and the mean is nan where none is left. Cost sets dollars and tokens against
tasks solved and attacks that succeeded: errored cases are in what was spent (they were paid for) and in no
result; a sum with an unknown part is nan, never too small.

Guards: over tool results, the share of planted ones that a guard let pass (false negatives) and of others
that it flagged (false positives); over cases, the share in which that happened at least once. A result
without a verdict that could be read is in no rate but its own.

Facts: records carry what their benchmark says of them (agentsys.base.declared_facts); nothing here knows one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import mean
from typing import Annotated, NamedTuple

import orjson
from pydantic import ValidationError

from agentsys.analysis.metrics.cell_verdict import IS_CONTROL, VALID, CellVerdict, is_control
from agentsys.analysis.metrics.rates import (
    PERCENT,
    CellRow,
    MeasuredCell,
    MetricRow,
    Number,
    ScoredCells,
    apply_verdicts,
    make_metric_rows,
    make_number,
    make_percent,
)
from agentsys.analysis.statistics.case_outcomes import pair_cases, sum_dollars, sum_tokens
from agentsys.analysis.statistics.differences import SignDraws, compare_pairs
from agentsys.analysis.statistics.outcome_grid import ErrorRule, Resampler, Side, tally_suites
from agentsys.analysis.statistics.rate_estimates import (
    OVERALL,
    POOLED,
    estimate_pooled_rate,
    estimate_rate_levels,
)
from agentsys.base.declared_facts import ASB_FACTS, DeclaredFact
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow


class Mean(NamedTuple):
    """A mean and what it rests on."""

    value: float
    """nan where `n` is 0."""
    n: int
    """Cases with a known value."""


def compute_mean_of_measure(measure: str, cases: Iterable[CaseRow]) -> Mean:
    """One of `MEANS` over the cases without an error whose value is known."""
    known = [one for case in cases if case.status == "ok" and (one := MEANS[measure](case)) is not None]
    return Mean(sum(known) / len(known) if known else math.nan, len(known))


MEANS: dict[str, Callable[[CaseRow], float | None]] = {
    "untrusted_tokens": lambda case: case.untrusted_tokens,
    "untrusted_tokens_workers": lambda case: case.untrusted_tokens_workers,
    "exposure_rounds": lambda case: None if case.attack == NO_ATTACK else case.exposure_rounds,
    "exposure_rounds_workers": lambda case: (
        None if case.attack == NO_ATTACK else case.exposure_rounds_workers
    ),
    "model_calls": lambda case: sum(case.replies_by_role.values()) if case.replies_by_role else None,
    "uncached_tokens": lambda case: (
        None if case.prompt_tokens is None else case.prompt_tokens - sum(case.cached_by_role.values())
    ),
    "seconds": lambda case: case.duration_s,
}
"""Measures that are means over cases -> the value of one case; None where it is unknown, or none is meant."""


def measure_ratios(cases: Sequence[CaseRow]) -> dict[str, float]:
    """Name -> one sum over another; nan where the other is 0, or either is unknown.

    Attacks that succeeded are set against what attacked cases cost.
    """
    attacked = [case for case in cases if case.attack != NO_ATTACK]
    solved = sum(case.status == "ok" and case.utility for case in cases)
    hijacked = sum(case.status == "ok" and bool(case.injection_success) for case in attacked)
    sums = {
        "cost_per_solved_task": (sum_dollars(cases), solved),
        "tokens_per_solved_task": (sum_tokens(cases), solved),
        "asr_per_dollar": (hijacked, sum_dollars(attacked)),
        "asr_per_million_tokens": (1e6 * hijacked, sum_tokens(attacked)),
    }
    return {name: above / below if below else math.nan for name, (above, below) in sums.items()}


def compute_usage_per_role(measure: str, cases: Iterable[CaseRow]) -> dict[str, Mean]:
    """Role -> use per case, sorted by role.

    A case in which a role was never asked counts as 0 for it, so that the roles add up to the mean of all.

    Args:
        measure: One of `OF_ROLES`.
        cases: Cases; those that do not say what they used, or for dollars what some role cost, are left out.
    """
    used = [usage for case in cases if (usage := OF_ROLES[measure](case)) is not None]
    sums = Counter[str]()
    for by_role in used:
        sums.update(by_role)
    return {role: Mean(sums[role] / len(used), len(used)) for role in sorted(sums)}


def _read_cost_by_role(case: CaseRow) -> dict[str, float] | None:
    known = {role: cost for role, cost in case.cost_by_role.items() if cost is not None}
    return known if known and len(known) == len(case.cost_by_role) else None


OF_ROLES: dict[str, Callable[[CaseRow], Mapping[str, float] | None]] = {
    "tokens_per_case": lambda case: case.tokens_by_role or None,
    "cached_tokens_per_case": lambda case: (
        dict.fromkeys(case.tokens_by_role, 0) | dict(case.cached_by_role) if case.tokens_by_role else None
    ),
    "usd_per_case": _read_cost_by_role,
}
"""Measures per role, the role appended to the name after a colon -> what one case used; None if unknown."""


@dataclass(frozen=True, slots=True)
class MeasureRow(CellRow):
    """One number, of a suite or pooled."""

    measure: str
    unit: str
    """Of value and interval, e.g. `tokens`; `percent` is `fraction` in data."""
    value: Annotated[float, "unit"]
    """nan where undefined or unknown."""
    ci_low: Annotated[float, "unit"]
    """Lower end of the 95% interval; nan where there is none."""
    ci_high: Annotated[float, "unit"]
    n: int
    """Cases it rests on; of a guard's errors, the results (or characters) where it is not cases."""
    verdict: str = VALID
    """Of the cell, and why; what a broken cell spent stays, what it is said to have gained is nan."""
    reasons: str = ""


def measure_costs(cases: Iterable[CaseRow]) -> list[MeasureRow]:
    """Every measure of every cell, per suite and pooled; without injection tasks run as user tasks.

    Returns:
        Rows sorted by cell, then suite with `pooled` last. Definitions: docs/data.md#measures.
    """
    cells = ScoredCells(cases)
    rows: list[MeasureRow] = []
    for cell in sorted(cells):
        verdict = cells.verdicts[cell]
        suites = group_by(cells[cell], lambda case: case.suite)
        for suite, some in (*sorted(suites.items()), (POOLED, cells[cell])):
            for name, number in _measure_values(some, verdict):
                unit = UNITS[name.partition(":")[0]]
                rows.append(MeasureRow(*cell, suite, name, unit, *number[:4], *verdict))
    return rows


def _measure_values(cases: Sequence[CaseRow], verdict: CellVerdict) -> Iterator[tuple[str, Number]]:
    for name in MEANS:
        yield name, _make_exact_number(*compute_mean_of_measure(name, cases))
    for name, ratio in measure_ratios(cases).items():
        yield name, _make_exact_number(ratio, len(cases)).judge(verdict)
    for measure in OF_ROLES:
        for role, usage in compute_usage_per_role(measure, cases).items():
            yield f"{measure}:{role}", _make_exact_number(*usage)
    gates = Counter[str]()  # `filter/outcome/tool` -> calls that a filter ruled on before they ran
    for case in cases:
        gates.update(case.gates if case.status == "ok" else {})
    for ruling, calls in sorted(gates.items()):
        yield f"gate_calls:{ruling}", _make_exact_number(calls, len(cases))
    yield from measure_guards(cases)


def _make_exact_number(value: float, n: int) -> Number:
    return Number(value, math.nan, math.nan, n)


UNITS = {
    **dict.fromkeys(("untrusted_tokens", "untrusted_tokens_workers", "tokens_per_solved_task"), "tokens"),
    **dict.fromkeys(("tokens_per_case", "cached_tokens_per_case", "uncached_tokens"), "tokens"),
    **dict.fromkeys(("exposure_rounds", "exposure_rounds_workers"), "rounds"),
    **dict.fromkeys(("model_calls", "gate_calls"), "calls"),
    "seconds": "seconds",
    **dict.fromkeys(("cost_per_solved_task", "usd_per_case"), "usd"),
    "asr_per_dollar": "attacks per usd",
    "asr_per_million_tokens": "attacks per million tokens",
    **dict.fromkeys(("guard_fnr", "guard_fpr", "guard_fnr_cases", "guard_fpr_cases"), PERCENT),
    **dict.fromkeys(("guard_unreadable", "guard_clean_cut"), PERCENT),
}
"""Measure, without what follows a colon -> unit."""
GUARD_TITLES = {
    "guard_fnr": "FNR, results",
    "guard_fpr": "FPR, results",
    "guard_fnr_cases": "FNR, cases",
    "guard_fpr_cases": "FPR, cases",
    "guard_unreadable": "Unreadable",
    "guard_clean_cut": "Clean text cut",
}
"""Measure -> heading, in the order shown; the guard's name is appended to the measure after a colon."""
_GUARD_EVENTS = {
    "guard_fnr": ("missed", "found"),
    "guard_fpr": ("false_alarms", "passed"),
    "guard_unreadable": ("unreadable", "found", "missed", "false_alarms", "passed"),
}
"""Measure -> the kind of verdict that it counts, and the others that it is a share of."""


def measure_guards(cases: Sequence[CaseRow]) -> Iterator[tuple[str, Number]]:
    """Every measure, in percent, of every guard that judged results in cases without an error."""
    counted = [case for case in cases if case.status == "ok" and case.guards]
    resampler = Resampler()
    for guard in sorted({guard for case in counted for guard in case.guards}):
        verdicts = [(case, case.guards[guard]) for case in counted if guard in case.guards]
        for name, (hit, *others) in _GUARD_EVENTS.items():
            results = [(case, of[hit], of[hit] + sum(of[kind] for kind in others)) for case, of in verdicts]
            yield f"{name}:{guard}", _compute_share_of_events(results, resampler)
            if f"{name}_cases" in GUARD_TITLES:
                at_least_once = [(case, min(hits, 1), min(events, 1)) for case, hits, events in results]
                yield f"{name}_cases:{guard}", _compute_share_of_events(at_least_once, resampler)
        chars, cut = (sum(of[key] for _, of in verdicts) for key in ("chars", "cut"))
        share = make_percent(cut / chars) if chars else math.nan
        yield f"guard_clean_cut:{guard}", Number(share, math.nan, math.nan, chars)


def _compute_share_of_events(counted: Sequence[tuple[CaseRow, int, int]], resampler: Resampler) -> Number:
    """A share of events with its interval.

    Args:
        counted: Case, events that were hits, and all events. The events of a case share its tasks, and the
            interval counts them as that.
        resampler: Draws the tasks.
    """
    rows = [replace(case, utility=n < hits) for case, hits, events in counted for n in range(events)]
    return make_number(
        estimate_pooled_rate(tally_suites(rows, ErrorRule.REPORT).values(), Side.SOLVED, resampler)
    )


CONTROL_ASR = "control_asr"
"""ASR of the control: the same cases with an empty payload."""
ASR_LESS_CONTROL = "asr_less_control"
"""ASR less that of the control, on the cases that both have; in percentage points."""
_UTILITY = "utility"
"""Begins the names of facts that are further criteria for a solved user task."""


def collect_declared_facts(cases: Iterable[CaseRow]) -> dict[str, DeclaredFact]:
    """Collect the facts that the benchmarks of some cases declare, in the benchmarks' order.

    A case that holds none of its declared facts, and is no control, is skipped. Where two cases declare a fact
    of one name, the first counts.
    """
    facts: dict[str, DeclaredFact] = {}
    for case in cases:
        if case.measured and _has_facts(case):
            for name, fact in _read_declarations(case).items():
                facts.setdefault(name, fact)
    return facts


@lru_cache(maxsize=256)
def _parse_declarations(facts: bytes) -> dict[str, DeclaredFact]:
    """Declarations as records hold them; one that this version cannot read is passed over."""
    declared: dict[str, DeclaredFact] = {}
    for name, stored in orjson.loads(facts).items():
        try:
            known = {key: value for key, value in stored.items() if key in DeclaredFact.model_fields}
            declared[name] = DeclaredFact.model_validate(known)
        except (AttributeError, ValidationError):
            continue
    return declared


def _read_declarations(case: CaseRow) -> Mapping[str, DeclaredFact]:
    return _parse_declarations(orjson.dumps(case.facts)) if case.facts else ASB_FACTS


def name_metric_of_fact(name: str, fact: DeclaredFact) -> str:
    """Name a fact's number in the long form."""
    return fact.metric or name


def group_facts(cases: Iterable[CaseRow]) -> dict[tuple[str, str], dict[str, DeclaredFact]]:
    """Facts that the benchmarks of some cases declare, by benchmark and the table they want them in."""
    grouped: defaultdict[tuple[str, str], dict[str, DeclaredFact]] = defaultdict(dict)
    for benchmark, some in group_by(cases, lambda case: case.benchmark).items():
        for name, fact in collect_declared_facts(some).items():
            grouped[benchmark, fact.grid][name] = fact
    return dict(grouped)


def measure_facts(scored: ScoredCells) -> list[MetricRow]:
    """The rates of measured facts, in the long form; cases that hold none of the facts are passed over.

    Errored cases are left out of all but the metrics whose name says that they failed.

    Returns:
        Rows sorted by cell, per suite, `overall` and `pooled`. A metric is absent unless every case of its
        cell that counts holds the fact.
    """
    if not any(case.measured for case in scored.cases):
        return []
    resampler = Resampler()
    cells = {cell: cases for cell, cases in scored.items() if any(map(_has_facts, cases))}
    rows: list[MetricRow] = []
    for cell in sorted(cells, key=MeasuredCell.make_sort_key):
        rows += _measure_facts_of_cell(cell, cells[cell], resampler)
        if cell.attack == NO_ATTACK or is_control(cells[cell]):
            continue
        beside = (
            cases for other, cases in cells.items() if other[:4] == cell[:4] and other.attack != NO_ATTACK
        )
        if control := next(filter(is_control, beside), None):
            rows += _make_control_rows(cell, cells[cell], control)
    return apply_verdicts(rows, scored.verdicts)


def list_unsolved_suites(cases: Iterable[CaseRow]) -> list[str]:
    """Suites in which no case, of any defense and by any criterion, solved its user task; sorted."""
    solved: dict[str, bool] = {}
    for case in cases:
        if case.status == "ok":
            facts = [
                case.measured.get(name)
                for name in collect_declared_facts([case])
                if name.startswith(_UTILITY)
            ]
            solved[case.suite] = solved.get(case.suite, False) or case.utility or any(facts)
    return sorted(suite for suite, any_solved in solved.items() if not any_solved)


def _has_facts(case: CaseRow) -> bool:
    measured = case.measured
    return bool(measured) and (
        IS_CONTROL in measured or not _read_declarations(case).keys().isdisjoint(measured)
    )


def _measure_facts_of_cell(
    cell: MeasuredCell, cases: Sequence[CaseRow], resampler: Resampler
) -> Iterator[MetricRow]:
    """Make the rows of one cell: each declared fact that every counted case holds, then the `errors_failed` ones."""
    benign = cell.attack == NO_ATTACK
    declared = collect_declared_facts(cases)
    facts = {name: fact for name, fact in declared.items() if fact.of == "all" or not benign}
    errors = sum(case.status == "error" for case in cases)
    counted = [case for case in cases if case.status == "ok"]
    for name, fact in facts.items():
        if not counted or any(case.measured.get(name) is None for case in counted):
            continue
        if fact.kind == "mean":
            yield from _make_mean_rows(cell, name_metric_of_fact(name, fact), counted, name, errors)
        else:
            yield from _make_share_rows(
                cell, name_metric_of_fact(name, fact), counted, name, errors, resampler
            )
    for name, fact in facts.items():
        # Without an errored case this number would repeat the one above. Errored cases are set to "ok", so that
        # they count, with the value that their records hold.
        if fact.errors_failed and errors and all(case.measured.get(name) is not None for case in cases):
            whole = [replace(case, status="ok") for case in cases]
            yield from _make_share_rows(cell, fact.errors_failed, whole, name, errors, resampler)


def _make_mean_rows(
    cell: MeasuredCell, metric: str, cases: Sequence[CaseRow], fact: str, errors: int
) -> Iterator[MetricRow]:
    """Means in the fact's own unit, without intervals; nothing where some value is no number."""
    if not all(isinstance(case.measured[fact], int | float) for case in cases):
        return
    by_suite = group_by(cases, lambda case: case.suite)
    values = {
        suite: [float(case.measured[fact]) for case in some] for suite, some in sorted(by_suite.items())
    }
    means = {suite: (mean(numbers), len(numbers)) for suite, numbers in values.items()}
    means[OVERALL] = mean(value for value, _ in means.values()), len(cases)
    means[POOLED] = mean(float(case.measured[fact]) for case in cases), len(cases)
    for suite, (value, n) in means.items():
        yield MetricRow(*cell, suite, metric, math.nan, math.nan, math.nan, n, errors, mean=value)


def _make_share_rows(
    cell: MeasuredCell, metric: str, cases: Sequence[CaseRow], fact: str, errors: int, resampler: Resampler
) -> Iterator[MetricRow]:
    counted = [replace(case, utility=bool(case.measured[fact])) for case in cases]
    levels = estimate_rate_levels(tally_suites(counted, ErrorRule.REPORT), Side.SOLVED, resampler)
    yield from (replace(row, errors=errors) for row in make_metric_rows(cell, metric, levels))


def _make_control_rows(
    cell: MeasuredCell, attacked: Sequence[CaseRow], control: Sequence[CaseRow]
) -> Iterator[MetricRow]:
    """The control's ASR and the difference, on the cases that both have."""
    pairing = pair_cases(control, attacked)
    levels = compare_pairs(pairing.pairs, Side.INJECTED, SignDraws()) if pairing.pairs else {}
    for suite, difference in levels.items():
        less = make_number(difference)._replace(errors=pairing.errored)
        alone = less._replace(value=make_percent(difference.rate_before), ci_low=math.nan, ci_high=math.nan)
        yield MetricRow(*cell, suite, CONTROL_ASR, **alone._asdict())
        yield MetricRow(*cell, suite, ASR_LESS_CONTROL, **less._asdict())
