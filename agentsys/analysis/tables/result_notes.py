"""Footnotes of results, one line each, only where they apply: what numbers can and cannot show."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from agentsys.analysis.metrics import attack_success, cell_verdict
from agentsys.analysis.metrics.attack_success import compute_pass_at_k, count_least_repeats, find_best_attack
from agentsys.analysis.metrics.case_measures import (
    ASR_LESS_CONTROL,
    collect_declared_facts,
    list_unsolved_suites,
    name_metric_of_fact,
)
from agentsys.analysis.metrics.comparison import DifferenceRow
from agentsys.analysis.metrics.rates import (
    BENIGN_UTILITY,
    DEFENSE_QUALITY,
    TARGETED_ASR,
    MetricRow,
    Number,
    ScoredCells,
)
from agentsys.analysis.metrics.task_tags import load_limits_of, measure_bound
from agentsys.analysis.statistics.difference_test import list_levels_at_the_floor
from agentsys.analysis.statistics.differences import SignDraws
from agentsys.analysis.statistics.outcome_grid import (
    CONFIDENCE,
    NO_TEXT,
    REPLICATES,
    ErrorRule,
    Resampler,
    Side,
    Tally,
)
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables import case_notes
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.table_document import write_number
from agentsys.base.declared_facts import DeclaredFact
from agentsys.base.grouping import format_count, group_by, join_names
from agentsys.records.case_reader import describe_repeated
from agentsys.records.case_row import NO_ATTACK, SEARCHED_ON_SUFFIX, SERVED, CaseRow, is_simulated_name
from agentsys.records.pipeline_names import NO_DEFENSE
from agentsys.records.stored_plan import describe_unfinished

_LISTED = 3
"""Defenses whose numbers a note lists; of more, it gives the range."""
SLOPPY = "simulated, sloppiness "
"""How the note of a case begins whose model was made sloppy."""


class _Line(NamedTuple):
    """One cell, as its notes name and count it."""

    defense: str
    attack: str
    cases: list[CaseRow]
    counted: Mapping[str, Tally]
    name: str
    """E.g. `agentsys / important_instructions`."""
    has_payload: bool
    """True unless it is benign, or a control: that has no payload that could be met, or miss its mark."""


_Lines = Sequence[_Line]
"""In the order of the tables."""


def write_report_notes(frame: ResultFrame) -> Iterator[str]:
    """All footnotes on some results, the most important first; of variants, those of all cases as they are."""
    yield from frame.variants.notes
    frame = frame.whole
    reading, rows, cells = frame.reading, frame.rows, frame.cells
    yield from describe_repeated(reading.repeated_files)
    yield from describe_unfinished(reading.unfinished)
    yield from cell_verdict.write_verdict_notes(rows, [DEFENSE_QUALITY])
    yield from case_notes.write_part_notes(cells)
    yield from case_notes.write_errored_notes(reading.cases, frame.errors)
    if any(is_simulated_name(row.model) for row in rows):
        yield case_notes.SIMULATED_NOTE
    yield from case_notes.write_replay_notes(reading.cases)
    for sheet in frame.sheets:
        for line in sheet.lines:
            metric = BENIGN_UTILITY if line.attack == NO_ATTACK else TARGETED_ASR
            suites = [suite for suite in sheet.suites if (metric, suite) in line.numbers]
            if suites and suites != sheet.suites:
                yield f"{sheet.title}: {line.name}: overall covers {', '.join(suites)} only."
    yield from write_honesty_notes(cells, frame.differences, frame.errors)
    yield from write_fact_notes(frame.fact_rows, reading.cases)
    yield from attack_success.write_denial_notes(frame.denials)
    yield (
        f"{CONFIDENCE:.0f}% intervals: user tasks and injection tasks resampled, {REPLICATES} times. "
        "Overall: unweighted mean of the suites."
    )
    if any(row.suite == OVERALL and row.value in (0, 100) for row in rows):
        yield (
            "0 or 100 does not mean certainty: where all cases came out alike, the interval goes as far as it "
            "would for a single case that did not."
        )
    yield from case_notes.write_notes_on_suites_as_draws(reading.cases)
    if alone := sum(case.is_injection_task_alone for case in reading.cases):
        yield f"Left out: {format_count(alone, 'run')} of injection tasks as if a user had asked for them."
    if served := sum(case.benchmark == SERVED for case in reading.cases):
        yield f"Without scores: {format_count(served, 'conversation')} of a served agent with its clients."


def write_honesty_notes(
    cells: ScoredCells, differences: Sequence[DifferenceRow], rule: ErrorRule = ErrorRule.REPORT
) -> Iterator[str]:
    """Say what the numbers of some cells, and their overall differences from none, can and cannot show."""
    signs, resampler = SignDraws(), Resampler()
    ordered = sorted(cells, key=lambda cell: (*cell[:3], cell.defense != NO_DEFENSE, *cell[3:]))
    sheets = group_by(ordered, lambda cell: cell[:3])
    yield from case_notes.write_benchmark_change_notes(benchmark for benchmark, *_ in sheets)
    yield from case_notes.write_provenance_notes(cells.cases)
    for sheet, of_sheet in sheets.items():
        benchmark, version, model = sheet
        prefix = f"{model} on {benchmark} {version}: " if len(sheets) > 1 else ""
        beside = [row for row in differences if (row.benchmark, row.version, row.model) == sheet]
        every = {
            cell: _Line(
                cell.defense,
                cell.attack,
                cells[cell],
                cells.tally_cell(cell, rule),
                cell_verdict.name_line(cell.defense, cell.attack),
                has_payload=cell.attack != NO_ATTACK and not cell_verdict.is_control(cells[cell]),
            )
            for cell in of_sheet
        }
        lines = list(every.values())
        # What there is to say of numbers is not said of broken cells, which have none.
        sound = [line for cell, line in every.items() if cells.verdicts[cell].verdict != cell_verdict.BROKEN]
        notes = chain(
            _write_notes_on_replies(lines),
            _write_notes_on_power(sound, signs, beside),
            _write_notes_on_limits(benchmark, version, lines),
            _write_notes_on_tries(sound, rule, resampler),
            _write_notes_on_exposure(sound, rule),
            _write_notes_on_searches(lines, rule),
        )
        yield from (f"{prefix}{note}" for note in notes)


def write_fact_notes(rows: Sequence[MetricRow], cases: Sequence[CaseRow]) -> Iterator[str]:
    """Explain the grids, where the facts are there."""
    metrics = {row.metric for row in rows}
    facts = collect_declared_facts(cases)
    shown = [fact for name, fact in facts.items() if name_metric_of_fact(name, fact) in metrics]
    yield from dict.fromkeys(fact.note for fact in shown if fact.note)
    if ASR_LESS_CONTROL in metrics:
        yield "Control: the same cases with an empty payload. What succeeds there, no injection has caused."
    directions = [
        f"{better} is better for {', '.join(titles)}"
        for better in ("higher", "lower")
        if (titles := list(dict.fromkeys(fact.title for fact in shown if fact.better == better)))
    ]
    if directions:
        yield f"Of what was measured besides, {'; '.join(directions)}."
    for sheet in dict.fromkeys((row.benchmark, row.version, row.model) for row in rows):
        mine = [c for c in cases if (c.benchmark, c.version, c.table_model) == sheet]
        suites, never = {case.suite for case in mine}, list_unsolved_suites(mine)
        if never:
            most = 100.0 * (1 - len(never) / len(suites))
            yield (
                f"{sheet[2]} on {sheet[0]} {sheet[1]}: no run solved a user task of {', '.join(never)}; "
                f"where that is the tasks' fault, utility has a ceiling of {most:.1f}."
            )
    yield from _write_notes_on_lacking_runs(rows, cases, facts)


def _write_notes_on_lacking_runs(
    rows: Iterable[MetricRow], cases: Sequence[CaseRow], facts: Mapping[str, DeclaredFact]
) -> Iterator[str]:
    """Name defenses that were run without a plan only, beside others with one; and those without a control."""
    modes: defaultdict[str, set[str]] = defaultdict(set)
    for case in cases:
        if isinstance(mode := case.measured.get("mode"), str):
            modes[case.defense].add(mode)
    alone = sorted(defense for defense, of_defense in modes.items() if of_defense == {"react"})
    if alone and any(of_defense - {"react"} for of_defense in modes.values()):
        yield (
            f"In mode react only: {', '.join(alone)}. A defense that is a whole program of its own has no "
            "part in a planned conversation."
        )
    wanting = {name_metric_of_fact(name, fact) for name, fact in facts.items() if fact.wants_control}
    split = {(row.benchmark, row.version, row.model, row.defense) for row in rows if row.metric in wanting}
    controls = {
        (case.benchmark, case.version, case.table_model, case.defense)
        for case in (cases if split else ())
        if cell_verdict.is_control([case])
    }
    if lacking := sorted({key[3] for key in split - controls}):
        yield f"No control (empty payload) was run for: {', '.join(lacking)}."


_ODD = {
    "empty": "empty",
    "unparsed_call": "a tool call as text that its server did not parse",
    "malformed_call": "a call that could not be read",
    "cut": "cut at a bound on tokens",
    "unknown_ending": "ended for a reason that no table knows",
    "cleaned_name": "calls whose tool's name was cleaned of what a server had left in it",
    "odd_name": "calls of no tool on offer, in whose name that of one stands",
    "thought_answer": "answers that stood among the thoughts",
    "thoughts_in_text": "answers with thoughts in their text",
}


def _write_notes_on_replies(lines: _Lines) -> Iterator[str]:
    """Say where replies came to nothing: sloppy or mute models, odd or empty replies, too long contexts."""
    cases = [case for line in lines for case in line.cases]
    for note in sorted({note for case in cases for note in case.notes if note.startswith(SLOPPY)}):
        yield f"{note}: replies depart from what was asked for at these rates (docs/simulated.md)."
    few = [
        f"{line.name} {cell_verdict.describe_ends(ends)} of {len(line.cases)}"
        for line in lines
        if (ends := cell_verdict.count_ends(line.cases))
        and not cell_verdict.are_many_ends(ends, len(line.cases))  # else a verdict
    ]
    if few:
        yield f"Ended (scored as they stand): {'; '.join(few)}."
    odd: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for case in cases:
        for model_id, kinds in case.odd_replies.items():
            for kind in kinds.keys() & _ODD.keys():
                odd[model_id, kind].append(kinds[kind])
    for (model_id, kind), counts in sorted(odd.items()):
        yield (
            f"Replies of {model_id or 'a model without a name'} that were {_ODD[kind]}: "
            f"{sum(counts)}, in {len(counts)} cases."
        )
    if met := [case for case in cases if case.error_kind == "context_length"]:
        yield f"Longer than the model's context (context_length): {_count_by_suite(met, cases)}."
    foreign = [case for case in cases if case.foreign and case.status == "ok"]
    # AgentDojo's element for local models takes every request that fails for one, an overlong one too.
    if met := [case for case in foreign if case.answer_chars == 0]:
        yield (
            f"Ended in an empty answer: {_count_by_suite(met, foreign)}. In runs of other harnesses that "
            "may be a request that failed, scored as an answer."
        )


def _count_by_suite(met: Sequence[CaseRow], cases: Sequence[CaseRow]) -> str:
    some, all_of = Counter(case.suite for case in met), Counter(case.suite for case in cases)
    listed = ", ".join(f"{suite} {count} of {all_of[suite]}" for suite, count in sorted(some.items()))
    return f"{listed} cases"


def _write_notes_on_power(
    lines: _Lines, signs: SignDraws, differences: Sequence[DifferenceRow]
) -> Iterator[str]:
    """Say where no difference in ASR could be seen, and how large one must be; of many lines the range."""
    for line in lines:
        undefended = line.defense == NO_DEFENSE and line.has_payload
        if undefended and (levels := list_levels_at_the_floor(line.counted, signs)):
            yield (
                f"Floor: without defense the ASR under {line.attack} is so low ({', '.join(levels)}) that in "
                "these cases not even a defense that stops every attack could be told from none."
            )
    attacks = sorted({line.attack for line in lines} - {NO_ATTACK})
    for attack in attacks:
        known = sorted(
            (row.smallest_detectable, row.defense)
            for row in differences
            if (row.attack, row.metric) == (attack, TARGETED_ASR) and not math.isnan(row.smallest_detectable)
        )
        if known:
            under = f" under {attack}" if len(attacks) > 1 else ""
            effects = ", ".join(f"{value:.1f} points ({name})" for value, name in known)
            if len(known) > _LISTED:
                effects = f"{known[0][0]:.1f} to {known[-1][0]:.1f} points"
            yield f"Minimum detectable effect on ASR{under}, against none (80% power): {effects}."


def _write_notes_on_limits(benchmark: str, version: str, lines: _Lines) -> Iterator[str]:
    """Each bound that some task causes, once, with the lines it holds for unless it holds for all."""
    limits = load_limits_of(benchmark, version)
    if limits is None:
        return
    benign = [line for line in lines if line.attack == NO_ATTACK] or lines
    for attacked, some in ((False, benign), (True, [line for line in lines if line.attack != NO_ATTACK])):
        bounds = ((measure_bound(line.cases, limits, attacked=attacked), line.name) for line in some)
        groups = group_by(bounds, itemgetter(0))
        for bound, bounded in groups.items():
            under = f" under {', '.join(name for _, name in bounded)}" if len(groups) > 1 else ""
            tasks = "; ".join(
                f"{suite} {', '.join(task.removeprefix('user_task_') for _, task in of_suite)}"
                for suite, of_suite in group_by(bound.tasks, itemgetter(0)).items()
            )
            if tasks and attacked:
                yield (
                    f"Utility under attack cannot exceed {bound.value:.1f}{under}: the injection overwrites what "
                    f"some user tasks need ({tasks})."
                )
            elif tasks:
                yield f"An agent that does nothing scores {bound.value:.1f} benign utility{under} ({tasks})."


def _write_notes_on_tries(lines: _Lines, rule: ErrorRule, resampler: Resampler) -> Iterator[str]:
    """Write one line per defense and attack whose cases were run several times, with the success in any run.

    Then one line per defense that met several attacks, with the best of them.
    """
    aimed: defaultdict[str, list[list[CaseRow]]] = defaultdict(list)
    for line in lines:
        aims = line.has_payload and not line.attack.endswith(SEARCHED_ON_SUFFIX)
        aims = aims and not attack_success.is_denial_of_service(line.attack)
        has_goal = aims and any(case.injection_task_id for case in line.cases)
        if has_goal:
            aimed[line.defense].append(line.cases)
        k = count_least_repeats(line.counted)
        if k > 1:
            utility = "benign utility" if line.attack == NO_ATTACK else "utility under attack"
            sides = {utility: Side.SOLVED} | ({"ASR": Side.INJECTED} if has_goal else {})
            rates = ", ".join(
                f"{name} {_write_interval(compute_pass_at_k(line.counted, side, k, resampler))}"
                for name, side in sides.items()
            )
            yield f"{line.name}, at least once in {k} runs of a case: {rates}."
    for defense, against in aimed.items():
        several = [case for cases in against for case in cases] if len(against) > 1 else []
        if several and (best := find_best_attack(several, resampler, rule)):
            asr = _write_interval(best.asr)
            yield (
                f"{defense}: the best of {best.tried} attacks is {best.name}; ASR {asr}, where each injection"
                " task counts with the attack that is best on all others."
            )


def _write_interval(number: Number) -> str:
    interval = "" if math.isnan(number.ci_low) else f" ({number.ci_low:.1f} to {number.ci_high:.1f})"
    return f"{number.value:.2f}{interval}"


_STARTS = ("important_instructions", "opi_combined_attack")
"""The attacks whose texts a search starts from (agentsys.attacks.attacker_search.choose_start_attack)."""


def _write_notes_on_searches(lines: _Lines, rule: ErrorRule) -> Iterator[str]:
    """Say what a searched attack's line is not.

    Cases without a text, cases the text was chosen on, and where a transferred text does worse than the one
    it came from.
    """
    cases_of = {(line.defense, line.attack): line.cases for line in lines}
    for (defense, attack), cases in cases_of.items():
        line = cell_verdict.name_line(defense, attack)
        if none := [case for case in cases if case.error_kind in NO_TEXT]:
            kinds = ", ".join(kind for kind in NO_TEXT if any(case.error_kind == kind for case in none))
            yield (
                f"{line}: {len(none)} of {len(cases)} cases are in no rate, because the "
                f"attacker gave no text to try ({kinds}); nothing is known of this attack there."
            )
        if not attack.endswith(SEARCHED_ON_SUFFIX):
            continue
        yield (
            f"{line}: the cases that the texts were searched on, kept apart and run "
            "once more with the text that was chosen."
        )
        searched = attack.removesuffix(SEARCHED_ON_SUFFIX)
        line, searched_cases = (
            cell_verdict.name_line(defense, searched),
            cases_of.get((defense, searched), []),
        )
        starts = [(name, cases_of[defense, name]) for name in _STARTS if (defense, name) in cases_of]
        if searched_cases and not starts:
            yield (
                f"{line}: no line of the attack its texts start from stands beside it "
                f"({_STARTS[0]}, on ASB {_STARTS[1]})."
            )
        for name, start in starts:
            ours, theirs = attack_success.compute_asr_on_shared_cases(searched_cases, start, rule)
            if ours.n and ours.value < theirs.value:
                yield (
                    f"{line}: ASR {ours.value:.2f} is below {theirs.value:.2f} of {name}, "
                    f"whose text its searches start from, on the same {ours.n} cases: a text chosen on some "
                    "user tasks can do worse on others."
                )


def _write_notes_on_exposure(lines: _Lines, rule: ErrorRule) -> Iterator[str]:
    """Say in how many cases the payload was met; lines of which the same is said share a note."""
    defenses_by_text: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for line in lines:
        if not line.has_payload:
            continue
        suites, parts = len({case.suite for case in line.cases}), []
        for text, share in _list_exposure_facts(line.cases, rule):
            fewer = f", {share.suites} of {suites} suites" if share and share.suites < suites else ""
            parts.append(f"{text} {write_number(share.value)} (n {share.n}{fewer})" if share else text)
        if parts:
            defenses_by_text[line.attack, "; ".join(parts)].append(line.defense)
    for (attack, text), defenses in defenses_by_text.items():
        yield f"{cell_verdict.name_line(join_names(defenses), attack)}: {text}."


def _list_exposure_facts(
    cases: Sequence[CaseRow], rule: ErrorRule
) -> Iterator[tuple[str, attack_success.Share | None]]:
    """Say of one line in how many cases the payload was met, and what that made of the attack."""
    returned, shown = (
        attack_success.compute_exposure_share(cases, column) for column in ("exposed_raw", "exposed_shown")
    )
    if returned.n and returned.value < 100.0:
        yield f"payload returned by a tool in {returned.value:.1f}% of cases", None
        if returned.value > 0:
            yield "ASR there", attack_success.compute_asr((one for one in cases if one.exposed_raw), rule)
    if shown.n and shown.value == 0.0:
        yield "payload never shown to the model", None
    elif shown.n and shown != returned:
        yield f"payload shown to the model in {shown.value:.1f}% of cases", None
        yield "ASR there", attack_success.compute_asr((one for one in cases if one.exposed_shown), rule)
    aims = not attack_success.is_denial_of_service(cases[0].attack)
    succeeded = [case for case in cases if case.injection_success]
    # Attacks that succeeded although the acting model was not shown them: who read them instead.
    unseen = [case for case in succeeded if case.status == "ok" and case.exposed_shown is False]
    if unseen and aims:
        reasons = Counter(map(attack_success.explain_unseen_success, unseen))
        listed = ", ".join(f"{reason} in {count}" for reason, count in sorted(reasons.items()))
        yield f"{len(unseen)} succeeded though the payload was never shown to the model ({listed})", None
    if succeeded and aims and any(case.injection_task_id for case in cases):
        yield "utility where the attack failed", attack_success.compute_utility_where_safe(cases, rule)
