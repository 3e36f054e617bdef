"""Footnotes, one line each, only where they apply: what numbers can and cannot show, and whose they are.

`write_provenance_notes` tell what answered to which texts, on which data, in whose words.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter

from agentsys.analysis.metrics import attack_success
from agentsys.analysis.metrics.best_attack import compute_pass_at_k, count_least_repeats, find_best_attack
from agentsys.analysis.metrics.case_measures import is_control
from agentsys.analysis.metrics.cell_verdict import BROKEN, are_many_ends, count_ends, describe_ends
from agentsys.analysis.metrics.rates import MeasuredCell, Number, ScoredCells, group_scored_cells
from agentsys.analysis.metrics.task_tags import load_limits_of, measure_bound, write_benchmark_change_notes
from agentsys.analysis.statistics.differences import SignDraws
from agentsys.analysis.statistics.outcome_grid import NO_TEXT, ErrorRule, Resampler, Side, Tally
from agentsys.analysis.tables.table_document import write_number
from agentsys.base.grouping import group_by, join_names
from agentsys.records.case_row import NO_ATTACK, SEARCHED_ON_SUFFIX, CaseRow
from agentsys.records.context_facts import JUDGED_THOUGHTS
from agentsys.records.pipeline_names import NO_DEFENSE
from agentsys.records.published_facts import REWORDED_DEFENSES

_LISTED = 3
"""Defenses whose numbers a note lists; of more, it gives the range."""
SLOPPY = "simulated, sloppiness "
"""How the note of a case begins whose model was made sloppy."""
_Line = tuple[str, str]
"""Defense and attack."""
_Lines = Mapping[_Line, list[CaseRow]]
"""Cases of each line, in the order of the tables."""
_Counts = Mapping[_Line, Mapping[str, Tally]]


def write_honesty_notes(
    cases: Iterable[CaseRow] | ScoredCells, rule: ErrorRule = ErrorRule.REPORT
) -> Iterator[str]:
    """All footnotes on some cases, of which injection tasks run as user tasks are left out."""
    signs, resampler = SignDraws(), Resampler()
    cells = group_scored_cells(cases)
    ordered = sorted(cells, key=lambda cell: (*cell[:3], cell.defense != NO_DEFENSE, *cell[3:]))
    sheets = group_by(ordered, lambda cell: cell[:3])
    yield from write_benchmark_change_notes(benchmark for benchmark, *_ in sheets)
    yield from write_provenance_notes(cells.cases)
    for (benchmark, version, model), of_sheet in sheets.items():
        lines = {(cell.defense, cell.attack): cells[cell] for cell in of_sheet}
        prefix = f"{model} on {benchmark} {version}: " if len(sheets) > 1 else ""
        # What there is to say of numbers is not said of broken cells, which have none.
        sound = {
            (cell.defense, cell.attack): cells[cell]
            for cell in of_sheet
            if cells.verdicts[cell].verdict != BROKEN
        }
        counted = {
            line: cells.tally_cell(MeasuredCell(benchmark, version, model, *line), rule) for line in sound
        }
        found = chain(
            _write_notes_on_replies(lines),
            _write_notes_on_power(sound, counted, signs, rule),
            _write_notes_on_limits(benchmark, version, lines),
            _write_notes_on_tries(sound, counted, rule, resampler),
            _write_notes_on_exposure(sound, rule),
            _write_notes_on_searches(lines, rule),
        )
        yield from (f"{prefix}{note}" for note in found)


_ODD = {
    "empty": "empty",
    "unparsed_call": "a tool call as text that its server did not parse",
    "malformed_call": "a call that could not be read",
    "cut": "cut at a bound on tokens",
    "unknown_ending": "ended for a reason that no table knows",
    "cleaned_name": "calls whose tool's name was cleaned of what a server had left in it",
    "thought_answer": "answers that stood among the thoughts",
    "thoughts_in_text": "answers with thoughts in their text",
}


def _write_notes_on_replies(lines: _Lines) -> Iterator[str]:
    """Say where replies came to nothing: sloppy or mute models, odd or empty replies, too long contexts."""
    cases = [case for some in lines.values() for case in some]
    for note in sorted({note for case in cases for note in case.notes if note.startswith(SLOPPY)}):
        yield f"{note}: replies depart from what was asked for at these rates (docs/simulated.md)."
    ended = {line: count_ends(some) for line, some in lines.items()}
    # Of more the verdict tells.
    few = {line: ends for line, ends in ended.items() if ends and not are_many_ends(ends, len(lines[line]))}
    if few:
        told = (
            f"{_name_line(*line)} {describe_ends(ends)} of {len(lines[line])}" for line, ends in few.items()
        )
        yield f"Ended (scored as they stand): {'; '.join(told)}."
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
    lines: _Lines, counted: _Counts, signs: SignDraws, rule: ErrorRule
) -> Iterator[str]:
    """Say where no difference in ASR could be seen, and how large one must be; of many lines the range."""
    attacks = sorted({attack for _, attack in lines} - {NO_ATTACK})
    for (defense, attack), cases in lines.items():
        undefended = defense == NO_DEFENSE and attack != NO_ATTACK and not is_control(cases)
        if undefended and (
            levels := attack_success.list_levels_at_the_floor(counted[defense, attack], signs)
        ):
            yield (
                f"Floor: without defense the ASR under {attack} is so low ({', '.join(levels)}) that in "
                "these cases not even a defense that stops every attack could be told from none."
            )
    for attack in attacks:
        baseline = lines.get((NO_DEFENSE, attack), [])
        points = [
            (attack_success.compute_detectable_asr(baseline, cases, rule), defense)
            for (defense, name), cases in lines.items()
            if name == attack and defense != NO_DEFENSE
        ]
        if known := sorted((value, defense) for value, defense in points if not math.isnan(value)):
            under = f" under {attack}" if len(attacks) > 1 else ""
            told = ", ".join(f"{value:.1f} points ({name})" for value, name in known)
            if len(known) > _LISTED:
                told = f"{known[0][0]:.1f} to {known[-1][0]:.1f} points"
            yield f"Minimum detectable effect on ASR{under}, against none (80% power): {told}."


def _write_notes_on_limits(benchmark: str, version: str, lines: _Lines) -> Iterator[str]:
    """Each bound that some task causes, once, with the lines it holds for unless it holds for all."""
    limits = load_limits_of(benchmark, version)
    if limits is None:
        return
    benign = [line for line in lines if line[1] == NO_ATTACK] or list(lines)
    floors = {line: measure_bound(lines[line], limits, attacked=False) for line in benign}
    caps = {
        line: measure_bound(cases, limits, attacked=True)
        for line, cases in lines.items()
        if line[1] != NO_ATTACK
    }
    for bounds in (floors, caps):
        groups = group_by(bounds, bounds.__getitem__)
        for bound, held in groups.items():
            under = f" under {', '.join(_name_line(*line) for line in held)}" if len(groups) > 1 else ""
            tasks = "; ".join(
                f"{suite} {', '.join(task.removeprefix('user_task_') for _, task in some)}"
                for suite, some in group_by(bound.tasks, itemgetter(0)).items()
            )
            if tasks and bounds is floors:
                yield f"An agent that does nothing scores {bound.value:.1f} benign utility{under} ({tasks})."
            elif tasks:
                yield (
                    f"Utility under attack cannot exceed {bound.value:.1f}{under}: the injection overwrites what "
                    f"some user tasks need ({tasks})."
                )


def _write_notes_on_tries(
    lines: _Lines, counted: _Counts, rule: ErrorRule, resampler: Resampler
) -> Iterator[str]:
    """A line per defense and attack that was run several times, and per defense with several attacks."""
    aimed: defaultdict[str, list[list[CaseRow]]] = defaultdict(list)
    for (defense, attack), cases in lines.items():
        aimless = attack == NO_ATTACK or attack.endswith(SEARCHED_ON_SUFFIX) or is_control(cases)
        aimless = aimless or attack_success.is_denial_of_service(attack)
        has_goal = not aimless and any(case.injection_task_id for case in cases)
        if has_goal:
            aimed[defense].append(cases)
        k = count_least_repeats(counted[defense, attack])
        if k > 1:
            asked = [("benign utility" if attack == NO_ATTACK else "utility under attack", Side.SOLVED)]
            asked += [("ASR", Side.INJECTED)] if has_goal else []
            told = ", ".join(
                f"{name} {_write_interval(compute_pass_at_k(counted[defense, attack], side, k, resampler))}"
                for name, side in asked
            )
            yield f"{_name_line(defense, attack)}, at least once in {k} runs of a case: {told}."
    for defense, against in aimed.items():
        several = [case for cases in against for case in cases] if len(against) > 1 else []
        if several and (best := find_best_attack(several, resampler, rule)):
            asr = _write_interval(best.asr)
            yield (
                f"{defense}: the best of {best.tried} attacks is {best.name}; ASR {asr}, where each injection"
                " task counts with the attack that is best on all others."
            )


def _write_interval(found: Number) -> str:
    interval = "" if math.isnan(found.ci_low) else f" ({found.ci_low:.1f} to {found.ci_high:.1f})"
    return f"{found.value:.2f}{interval}"


_STARTS = ("important_instructions", "opi_combined_attack")
"""The attacks whose texts a search starts from (agentsys.attacks.attacker_search.choose_start_attack)."""


def _write_notes_on_searches(lines: _Lines, rule: ErrorRule) -> Iterator[str]:
    """Say what a searched attack's line is not.

    Cases without a text, cases the text was chosen on, and where a transferred text does worse than the one
    it came from.
    """
    for (defense, attack), cases in lines.items():
        line = _name_line(defense, attack)
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
        line = _name_line(defense, attack.removesuffix(SEARCHED_ON_SUFFIX))
        found = lines.get((defense, attack.removesuffix(SEARCHED_ON_SUFFIX)), [])
        starts = [(name, lines[defense, name]) for name in _STARTS if (defense, name) in lines]
        if found and not starts:
            yield (
                f"{line}: no line of the attack its texts start from stands beside it "
                f"({_STARTS[0]}, on ASB {_STARTS[1]})."
            )
        for name, start in starts:
            ours, theirs = attack_success.compute_asr_on_shared_cases(found, start, rule)
            if ours.n and ours.value < theirs.value:
                yield (
                    f"{line}: ASR {ours.value:.2f} is below {theirs.value:.2f} of {name}, "
                    f"whose text its searches start from, on the same {ours.n} cases: a text chosen on some "
                    "user tasks can do worse on others."
                )


def _write_notes_on_exposure(lines: _Lines, rule: ErrorRule) -> Iterator[str]:
    told: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for (defense, attack), cases in lines.items():
        # A control has no payload that could be met, or miss its mark.
        if attack == NO_ATTACK or is_control(cases):
            continue
        suites, parts = len({case.suite for case in cases}), []
        for said, share in _list_exposure_facts(cases, rule):
            fewer = f", {share.suites} of {suites} suites" if share and share.suites < suites else ""
            parts.append(f"{said} {write_number(share.value)} (n {share.n}{fewer})" if share else said)
        if parts:
            told[attack, "; ".join(parts)].append(defense)
    for (attack, said), defenses in told.items():
        yield f"{_name_line(join_names(defenses), attack)}: {said}."


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


def _name_line(defense: str, attack: str) -> str:
    return defense if attack == NO_ATTACK else f"{defense} / {attack}"


SIMULATED_NOTE = "simulated: a scripted agent, not a language model; no LLM's numbers."
DIFFERS = "differs from the record"
"""In a case's note about a text that the recorded run did not have (see agentsys.models.replay)."""


def write_provenance_notes(cases: Iterable[CaseRow]) -> list[str]:
    """All of these footnotes, one sentence each; none where there is nothing to say."""
    listed = [case for case in cases if case.is_scored]
    noted = [case for case in listed if case.notes]
    told = list(_write_notes_on_case_notes(noted) if noted else ())
    # Whatever gateways put before the name of a model.
    other = [
        (asked, replied, case)
        for case in listed
        for replied, asked in case.model_ids.items()
        if asked and asked.rpartition("/")[2] != replied.rpartition("/")[2]
    ]
    for (asked, replied), met in sorted(group_by(other, itemgetter(0, 1)).items()):
        told.append(f"Asked for {asked}, answered by {replied}: {_name_cells(case for *_, case in met)}.")
    told += _write_server_notes(listed)
    known = (case for case in listed if case.data_hash)
    suites = group_by(known, lambda case: (case.benchmark, case.version, case.suite))
    for (benchmark, version, suite), found in sorted(suites.items()):
        by_hash = group_by(found, lambda case: str(case.data_hash))
        if len(by_hash) > 1:
            sides = (f"hash {digest[:8]}: {_name_cells(met)}" for digest, met in sorted(by_hash.items()))
            told.append(
                f"{benchmark} {version} {suite}: these runs had different data, so they are not the same test"
                f" ({'; '.join(sides)})."
            )
    judged = [case for case in noted if JUDGED_THOUGHTS in case.notes]
    if judged and len(judged) < len(listed) and any(not case.foreign for case in listed):
        told.append(
            f"In {len(judged)} cases of {_name_cells(judged)} {JUDGED_THOUGHTS}, as AgentDojo does; in runs of ours"
            " only the answer is judged."
        )
    if reworded := [case for case in listed if case.foreign and case.defense in REWORDED_DEFENSES]:
        told.append(
            f"Published runs of {_name_cells(reworded)} were made by other code with prompts of its own: a"
            " line of ours with the same name is another experiment."
        )
    return told


def _write_server_notes(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Cells in which several servers answered under one model's name."""
    cells = group_by((case for case in cases if case.servers), lambda case: (case.table_model, case.defense))
    for name in ("provider", "system_fingerprint"):
        told = {
            cell: sorted(
                {one.partition(" ")[2] for case in met for one in case.servers if one.startswith(name)}
            )
            for cell, met in cells.items()
        }
        for cell, values in told.items():
            if len(values) > 1:
                yield (
                    f"Replies name {len(values)} values of {name} ({join_names(values)}), so they may come of several"
                    f" models: {' / '.join(cell)}."
                )


_NO_PART = re.compile(r"role '(.+)' has no simulated part")
"""In a case's note about replies of the simulated model (see agentsys.simulated.simulated_model)."""
_READ = re.compile(r"model read (\d+) of (\d+) sentences in (.+)")
"""A case's note about an attack that has to be read (see agentsys.models.reply_checks)."""


def _write_notes_on_case_notes(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Roles that the simulated model has no script for, and attacks that a model was seen not to read.

    Such numbers are not the defense's, and such failures not its merit.
    """
    match = cache(_NO_PART.match)  # thousands of cases have the same notes
    told = [(found[1], case) for case in cases for found in map(match, case.notes) if found]
    for role, met in sorted(group_by(told, itemgetter(0)).items()):
        yield (
            f"Role '{role}' has no simulated part (`simulated_roles`), so the plain agent answered for it:"
            f" {_name_cells(case for _, case in met)}."
        )
    seen: dict[tuple[str, str], re.Match[str]] = {}
    for case in cases:
        for note in case.notes if case.attack != NO_ATTACK else ():
            if (found := _READ.fullmatch(note)) and int(found[1]) < int(found[2]):
                seen[case.table_model, case.attack] = found
    for (model, attack), found in sorted(seen.items()):
        yield (
            f"{model} read {found[1]} of {found[2]} harmless sentences in {found[3]} before the run: what"
            f" {attack} fails at there is not resistance."
        )


def _name_cells(cases: Iterable[CaseRow]) -> str:
    return join_names(f"{case.table_model} / {case.defense}" for case in cases)


def write_replay_notes(cases: Iterable[CaseRow]) -> list[str]:
    """A line for each replayed agent of which some cases read other texts than were recorded."""
    done = [case for case in cases if case.is_scored and case.status == "ok"]
    differing = [case for case in done if any(DIFFERS in note for note in case.notes)]
    some = Counter((case.table_model, case.defense) for case in differing)
    all_of = Counter((case.table_model, case.defense) for case in done)
    return [
        f"{model} / {defense}: texts differed from the record in {count} of {all_of[model, defense]} cases, whose"
        " answers were given to the recorded texts (the cases' notes name them)."
        for (model, defense), count in sorted(some.items())
    ]
