"""Footnotes on what the numbers above them can and cannot show, one line each, only where they apply."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from agentsys.analysis.metrics.benchmark_facts import is_control
from agentsys.analysis.metrics.denial import denies_service
from agentsys.analysis.metrics.exposed_rates import (
    Share,
    asr_on_the_same,
    asr_where_returned,
    asr_where_shown,
    at_the_floor,
    detectable_asr,
    returned_share,
    shown_share,
    unseen_reason,
    utility_where_safe,
    workspace_split,
)
from agentsys.analysis.metrics.limits import Bound, cap_of, floor_of, limits_of
from agentsys.analysis.metrics.rates import scored_cells
from agentsys.analysis.metrics.repaired_scores import changed_benchmark_notes
from agentsys.analysis.statistics.bootstrap import Resampler
from agentsys.analysis.statistics.error_rule import ErrorRule, no_text_notes
from agentsys.analysis.statistics.outcome_grid import Tally, tallies
from agentsys.analysis.statistics.sign_flips import SignDraws
from agentsys.analysis.tables.document import number_text
from agentsys.analysis.tables.provenance_notes import provenance_notes
from agentsys.analysis.tables.several_tries_notes import several_tries_notes
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, SEARCHED_ON_SUFFIX, CaseRow
from agentsys.records.published_facts import NO_DEFENSE

_LISTED = 3
"""Defenses whose numbers a note lists; of more, it gives the range."""
SLOPPY = "simulated, sloppiness "
"""How the note of a case begins whose model was made sloppy."""


_Lines = Mapping[tuple[str, str], list[CaseRow]]
"""(defense, attack) -> cases, in the order of the tables."""


def honesty_notes(
    cases: Iterable[CaseRow], rule: ErrorRule = ErrorRule.REPORT, *, replicates: int = 2000
) -> list[str]:
    """All footnotes on some cases, of which injection tasks run as user tasks are left out."""
    signs, resampler = SignDraws(), Resampler(replicates)
    listed = list(cases)
    sheets = _sheets(listed)
    notes = [*changed_benchmark_notes(benchmark for benchmark, *_ in sheets), *provenance_notes(listed)]
    for (benchmark, version, model), lines in sheets.items():
        prefix = f"{model} on {benchmark} {version}: " if len(sheets) > 1 else ""
        counted = {line: tallies(some, rule) for line, some in lines.items()}
        found = [
            *_sloppy(lines),
            *_mute(lines),
            *_odd_replies(lines),
            *_too_long(lines),
            *_silent(lines),
            *_floors(lines, counted, signs),
            *_detectable(lines, rule),
            *_limits(benchmark, version, lines),
            *several_tries_notes(lines, counted, rule, resampler),
            *_exposure(lines, rule),
            *_searches(lines, rule),
        ]
        notes += [f"{prefix}{note}" for note in found]
    return notes


def _sloppy(lines: _Lines) -> Iterator[str]:
    """Say what a simulated model was made to do wrong, by its records."""
    said = {note for cases in lines.values() for case in cases for note in case.notes}
    for note in sorted(note for note in said if note.startswith(SLOPPY)):
        yield f"{note}: replies depart from what was asked for at these rates (docs/sloppiness.md)."


def _mute(lines: _Lines) -> Iterator[str]:
    """Say of a cell that no tool was called in it: its numbers are those of a model that only talks."""
    for line, cases in lines.items():
        ran = [case for case in cases if case.status == "ok" and case.trajectory_length is not None]
        if ran and not any(case.calls or case.trajectory_length for case in ran):
            yield (
                f"{_name(*line)}: no tool was called in any of {len(ran)} cases. Does the model's server "
                "parse tool calls (docs/models.md)?"
            )


_ODD = {"empty": "empty", "unparsed_call": "a tool call as text that its server did not parse"}


def _odd_replies(lines: _Lines) -> Iterator[str]:
    """Count, per model that replied, the replies that came to nothing."""
    odd = [
        (model_id, kind, count)
        for cases in lines.values()
        for case in cases
        for model_id, kinds in case.odd_replies.items()
        for kind, count in kinds.items()
    ]
    for (model_id, kind), found in sorted(group_by(odd, lambda one: one[:2]).items()):
        yield (
            f"Replies of {model_id or 'a model without a name'} that were {_ODD.get(kind, kind)}: "
            f"{sum(count for *_, count in found)}, in {len(found)} cases."
        )


def _too_long(lines: _Lines) -> Iterator[str]:
    """Count by suite the cases that did not fit into the model's context; suites are not alike in that."""
    cases = [case for some in lines.values() for case in some]
    met = [case for case in cases if case.error_kind == "context_length"]
    if met:
        yield f"Longer than the model's context (context_length): {_by_suite(met, cases)}."


def _silent(lines: _Lines) -> Iterator[str]:
    """Count by suite the published cases that end in an empty answer.

    AgentDojo's element for local models takes every request that fails for one, an overlong one too.
    """
    cases = [case for some in lines.values() for case in some if case.foreign and case.status == "ok"]
    met = [case for case in cases if case.answer_chars == 0]
    if met:
        yield (
            f"Ended in an empty answer: {_by_suite(met, cases)}. In runs of other harnesses that may be "
            "a request that failed, scored as an answer."
        )


def _by_suite(met: Sequence[CaseRow], cases: Sequence[CaseRow]) -> str:
    """E.g. `banking 3 of 144, slack 1 of 105 cases`."""
    some, all_of = Counter(case.suite for case in met), Counter(case.suite for case in cases)
    listed = ", ".join(f"{suite} {count} of {all_of[suite]}" for suite, count in sorted(some.items()))
    return f"{listed} cases"


def _sheets(cases: Iterable[CaseRow]) -> dict[tuple[str, str, str], dict[tuple[str, str], list[CaseRow]]]:
    cells = scored_cells(cases)
    ordered = sorted(cells, key=lambda cell: (*cell[:3], cell.defense != NO_DEFENSE, *cell[3:]))
    sheets = group_by(ordered, lambda cell: cell[:3])
    return {sheet: {cell[3:]: cells[cell] for cell in of_sheet} for sheet, of_sheet in sheets.items()}


def _limits(benchmark: str, version: str, lines: _Lines) -> Iterator[str]:
    limits = limits_of(benchmark, version)
    if limits is None:
        return
    benign = [line for line in lines if line[1] == NO_ATTACK] or list(lines)
    floors = {line: floor_of(lines[line], limits) for line in benign}
    caps = {line: cap_of(cases, limits) for line, cases in lines.items() if line[1] != NO_ATTACK}
    for value, bound, names in _alike(floors):
        yield (f"An agent that does nothing scores {value} benign utility{names} ({_tasks(bound)}).")
    for value, bound, names in _alike(caps):
        yield (
            f"Utility under attack cannot exceed {value}{names}: the injection overwrites what some user "
            f"tasks need ({_tasks(bound)})."
        )


def _alike(bounds: Mapping[tuple[str, str], Bound]) -> Iterator[tuple[str, Bound, str]]:
    """Each bound that some task causes, once, with the lines it holds for unless it holds for all."""
    groups = group_by(bounds, bounds.__getitem__)
    for bound, lines in groups.items():
        if bound.tasks:
            under = f" under {', '.join(_name(*line) for line in lines)}" if len(groups) > 1 else ""
            yield f"{bound.value:.1f}", bound, under


def _tasks(bound: Bound) -> str:
    """E.g. `banking 0; slack 7, 9`."""
    by_suite = group_by(bound.tasks, itemgetter(0))
    return "; ".join(
        f"{suite} {', '.join(task.removeprefix('user_task_') for _, task in tasks)}"
        for suite, tasks in by_suite.items()
    )


def _floors(
    lines: _Lines, counted: Mapping[tuple[str, str], Mapping[str, Tally]], signs: SignDraws
) -> Iterator[str]:
    for (defense, attack), cases in lines.items():
        if defense != NO_DEFENSE or attack == NO_ATTACK or is_control(cases):
            continue
        levels = at_the_floor(counted[defense, attack], signs)
        if levels:
            yield (
                f"Floor: without defense the ASR under {attack} is so low ({', '.join(levels)}) that in "
                "these cases not even a defense that stops every attack could be told from none."
            )


def _detectable(lines: _Lines, rule: ErrorRule) -> Iterator[str]:
    attacks = sorted({attack for _, attack in lines} - {NO_ATTACK})
    for attack in attacks:
        baseline = lines.get((NO_DEFENSE, attack))
        others = {defense: cases for (defense, name), cases in lines.items() if name == attack}
        others.pop(NO_DEFENSE, None)
        if baseline and others:
            points = {name: detectable_asr(baseline, found, rule) for name, found in others.items()}
            known = {name: value for name, value in points.items() if not math.isnan(value)}
            if known:
                under = f" under {attack}" if len(attacks) > 1 else ""
                yield (
                    f"Minimum detectable effect on ASR{under}, against none (80% power): {_points(known)}."
                )


def _points(known: Mapping[str, float]) -> str:
    """E.g. `20.1 points (melon), 25.7 points (agentsys)`; of many the range (`agentsys compare` has each)."""
    listed = sorted(known.items(), key=lambda item: item[1])
    if len(listed) <= _LISTED:
        return ", ".join(f"{value:.1f} points ({name})" for name, value in listed)
    low, high = listed[0][1], listed[-1][1]
    return f"{low:.1f} to {high:.1f} points"


_STARTS = ("important_instructions", "opi_combined_attack")
"""The attacks whose texts a search starts from (agentsys.attacks.attacker_search.choose_start_attack)."""


def _searches(lines: _Lines, rule: ErrorRule) -> Iterator[str]:
    """Say what a searched attack's line is not.

    Cases without a text, cases the text was chosen on, and where a transferred text does worse than the one
    it came from.
    """
    for (defense, attack), cases in lines.items():
        yield from (f"{_name(defense, attack)}: {note}" for note in no_text_notes(cases))
        if attack.endswith(SEARCHED_ON_SUFFIX):
            yield (
                f"{_name(defense, attack)}: the cases that the texts were searched on, kept apart and run "
                "once more with the text that was chosen."
            )
            yield from _beside_its_start(lines, defense, attack.removesuffix(SEARCHED_ON_SUFFIX), rule)


def _beside_its_start(lines: _Lines, defense: str, attack: str, rule: ErrorRule) -> Iterator[str]:
    found = lines.get((defense, attack), [])
    starts = [(name, lines[defense, name]) for name in _STARTS if (defense, name) in lines]
    if found and not starts:
        yield (
            f"{_name(defense, attack)}: no line of the attack its texts start from stands beside it "
            f"({_STARTS[0]}, on ASB {_STARTS[1]})."
        )
    for name, cases in starts:
        ours, theirs = asr_on_the_same(found, cases, rule)
        if ours.n and ours.value < theirs.value:
            yield (
                f"{_name(defense, attack)}: ASR {ours.value:.2f} is below {theirs.value:.2f} of {name}, "
                f"whose text its searches start from, on the same {ours.n} cases: a text chosen on some user "
                "tasks can do worse on others."
            )


def _exposure(lines: _Lines, rule: ErrorRule) -> Iterator[str]:
    for (defense, attack), cases in lines.items():
        # A control has no payload that could be met, or miss its mark.
        bare = attack == NO_ATTACK or is_control(cases)
        parts = [] if bare else list(_exposure_parts(cases, rule))
        if parts:
            yield f"{_name(defense, attack)}: {'; '.join(parts)}."


def _exposure_parts(cases: Sequence[CaseRow], rule: ErrorRule) -> Iterator[str]:
    suites = len({case.suite for case in cases})
    returned, shown = returned_share(cases), shown_share(cases)
    if returned.n and returned.value < 100.0:
        yield f"payload returned by a tool in {returned.value:.1f}% of cases"
        if returned.value > 0:
            yield f"ASR there {_number(asr_where_returned(cases, rule), suites)}"
    if shown.n and shown.value == 0.0:
        yield "payload never shown to the model"
    elif shown.n and shown != returned:
        yield f"payload shown to the model in {shown.value:.1f}% of cases"
        yield f"ASR there {_number(asr_where_shown(cases, rule), suites)}"
    yield from _unseen_successes(cases)
    safe = utility_where_safe(cases, rule)
    goal = any(case.injection_task_id for case in cases) and not denies_service(cases[0].attack)
    if goal and any(case.injection_success for case in cases):
        yield f"utility where the attack failed {_number(safe, suites)}"
    split = workspace_split(cases, rule)
    if split:
        yield (
            f"workspace ASR on injection tasks 0-5 {_number(split.old, 1)}, on those added in v1.2 "
            f"{_number(split.added, 1)}"
        )


def _unseen_successes(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Say where attacks succeeded although the acting model was not shown them: who read them instead."""
    reasons: Counter[str] = Counter()
    for case in cases:
        if case.status == "ok" and case.injection_success and case.exposed_shown is False:
            reasons[unseen_reason(case)] += 1
    if reasons and not denies_service(cases[0].attack):
        listed = ", ".join(f"{reason} in {count}" for reason, count in sorted(reasons.items()))
        yield f"{reasons.total()} succeeded though the payload was never shown to the model ({listed})"


def _number(share: Share, suites: int) -> str:
    """E.g. `34.51 (n 556)`; the number of suites where it is not all of the line's."""
    fewer = f", {share.suites} of {suites} suites" if share.suites < suites else ""
    return f"{number_text(share.value)} (n {share.n}{fewer})"


def _name(defense: str, attack: str) -> str:
    return defense if attack == NO_ATTACK else f"{defense} / {attack}"
