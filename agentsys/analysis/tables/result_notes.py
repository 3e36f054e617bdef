"""Footnotes, one line each, only where they apply: what numbers can and cannot show, and whose they are.

`provenance_notes` tell what answered to which texts, on which data, in whose words.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter

from agentsys.analysis.metrics.attack_success import (
    Share,
    asr_of,
    asr_on_the_same,
    detectable_asr,
    exposure_share,
    is_denial_of_service,
    levels_at_the_floor,
    unseen_reason,
    utility_where_safe,
    workspace_split,
)
from agentsys.analysis.metrics.best_attack import at_least_once, best_attack, least_repeats
from agentsys.analysis.metrics.case_measures import is_control
from agentsys.analysis.metrics.cell_verdict import BROKEN, MOST_BOUND, count_ends, describe_ends
from agentsys.analysis.metrics.rates import MeasuredCell, Number, ScoredCells, scored_cells
from agentsys.analysis.metrics.task_tags import (
    Bound,
    benchmark_change_notes,
    limits_of,
    measure_bound,
)
from agentsys.analysis.statistics.differences import SignDraws
from agentsys.analysis.statistics.outcome_grid import NO_TEXT, ErrorRule, Resampler, Side, Tally
from agentsys.analysis.tables.table_document import number_text
from agentsys.base.grouping import group_by, join_names
from agentsys.records.case_row import NO_ATTACK, SEARCHED_ON_SUFFIX, CaseRow
from agentsys.records.published_facts import NO_DEFENSE, REWORDED_DEFENSES

_LISTED = 3
"""Defenses whose numbers a note lists; of more, it gives the range."""
SLOPPY = "simulated, sloppiness "
"""How the note of a case begins whose model was made sloppy."""
_Lines = Mapping[tuple[str, str], list[CaseRow]]
"""(defense, attack) -> cases, in the order of the tables."""


def honesty_notes(
    cases: Iterable[CaseRow] | ScoredCells, rule: ErrorRule = ErrorRule.REPORT, *, replicates: int = 2000
) -> Iterator[str]:
    """All footnotes on some cases, of which injection tasks run as user tasks are left out."""
    signs, resampler = SignDraws(), Resampler(replicates)
    cells = scored_cells(cases)
    ordered = sorted(cells, key=lambda cell: (*cell[:3], cell.defense != NO_DEFENSE, *cell[3:]))
    sheets = group_by(ordered, lambda cell: cell[:3])
    yield from benchmark_change_notes(benchmark for benchmark, *_ in sheets)
    yield from provenance_notes(cells.cases)
    for (benchmark, version, model), of_sheet in sheets.items():
        lines = {(cell.defense, cell.attack): cells[cell] for cell in of_sheet}
        prefix = f"{model} on {benchmark} {version}: " if len(sheets) > 1 else ""
        # What there is to say of numbers is not said of broken cells, which have none.
        sound = {
            (cell.defense, cell.attack): cells[cell]
            for cell in of_sheet
            if cells.verdicts[cell].verdict != BROKEN
        }
        counted = {line: cells.tally(MeasuredCell(benchmark, version, model, *line), rule) for line in sound}
        found = chain(
            _notes_on_replies(lines),
            _notes_on_floors(sound, counted, signs),
            _notes_on_power(sound, rule),
            _notes_on_limits(benchmark, version, lines),
            _notes_on_tries(sound, counted, rule, resampler),
            _notes_on_exposure(sound, rule),
            _notes_on_searches(lines, rule),
        )
        yield from (f"{prefix}{note}" for note in found)


_ODD = {"empty": "empty", "unparsed_call": "a tool call as text that its server did not parse"}


def _notes_on_replies(lines: _Lines) -> Iterator[str]:
    """Say where replies came to nothing: sloppy or mute models, odd or empty replies, too long contexts."""
    cases = [case for some in lines.values() for case in some]
    for note in sorted({note for case in cases for note in case.notes if note.startswith(SLOPPY)}):
        yield f"{note}: replies depart from what was asked for at these rates (docs/simulated.md)."
    ended = {line: count_ends(some) for line, some in lines.items()}
    # Of more the verdict tells.
    few = {line: ends for line, ends in ended.items() if 0 < ends.total() <= MOST_BOUND * len(lines[line])}
    if few:
        told = (f"{_name(*line)} {describe_ends(ends)} of {len(lines[line])}" for line, ends in few.items())
        yield f"Ended (scored as they stand): {'; '.join(told)}."
    odd: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for case in cases:
        for model_id, kinds in case.odd_replies.items():
            for kind, count in kinds.items():
                if kind in _ODD:
                    odd[model_id, kind].append(count)
    for (model_id, kind), counts in sorted(odd.items()):
        yield (
            f"Replies of {model_id or 'a model without a name'} that were {_ODD[kind]}: "
            f"{sum(counts)}, in {len(counts)} cases."
        )
    if met := [case for case in cases if case.error_kind == "context_length"]:
        yield f"Longer than the model's context (context_length): {_counts_by_suite(met, cases)}."
    foreign = [case for case in cases if case.foreign and case.status == "ok"]
    # AgentDojo's element for local models takes every request that fails for one, an overlong one too.
    if met := [case for case in foreign if case.answer_chars == 0]:
        yield (
            f"Ended in an empty answer: {_counts_by_suite(met, foreign)}. In runs of other harnesses that "
            "may be a request that failed, scored as an answer."
        )


def _counts_by_suite(met: Sequence[CaseRow], cases: Sequence[CaseRow]) -> str:
    """E.g. `banking 3 of 144, slack 1 of 105 cases`."""
    some, all_of = Counter(case.suite for case in met), Counter(case.suite for case in cases)
    return (
        ", ".join(f"{suite} {count} of {all_of[suite]}" for suite, count in sorted(some.items())) + " cases"
    )


def _notes_on_limits(benchmark: str, version: str, lines: _Lines) -> Iterator[str]:
    limits = limits_of(benchmark, version)
    if limits is None:
        return
    benign = [line for line in lines if line[1] == NO_ATTACK] or list(lines)
    floors = {line: measure_bound(lines[line], limits, attacked=False) for line in benign}
    attacked = {line: cases for line, cases in lines.items() if line[1] != NO_ATTACK}
    caps = {line: measure_bound(cases, limits, attacked=True) for line, cases in attacked.items()}
    for bound, names in _bounds(floors):
        yield f"An agent that does nothing scores {bound.value:.1f} benign utility{names} ({_tasks(bound)})."
    for bound, names in _bounds(caps):
        yield (
            f"Utility under attack cannot exceed {bound.value:.1f}{names}: the injection overwrites what "
            f"some user tasks need ({_tasks(bound)})."
        )


def _bounds(bounds: Mapping[tuple[str, str], Bound]) -> Iterator[tuple[Bound, str]]:
    """Each bound that some task causes, once, with the lines it holds for unless it holds for all."""
    groups = group_by(bounds, bounds.__getitem__)
    for bound, lines in groups.items():
        if bound.tasks:
            yield bound, f" under {', '.join(_name(*line) for line in lines)}" if len(groups) > 1 else ""


def _tasks(bound: Bound) -> str:
    """E.g. `banking 0; slack 7, 9`."""
    by_suite = group_by(bound.tasks, itemgetter(0))
    return "; ".join(
        f"{suite} {', '.join(task.removeprefix('user_task_') for _, task in tasks)}"
        for suite, tasks in by_suite.items()
    )


def _notes_on_floors(
    lines: _Lines, counted: Mapping[tuple[str, str], Mapping[str, Tally]], signs: SignDraws
) -> Iterator[str]:
    for (defense, attack), cases in lines.items():
        if defense != NO_DEFENSE or attack == NO_ATTACK or is_control(cases):
            continue
        if levels := levels_at_the_floor(counted[defense, attack], signs):
            yield (
                f"Floor: without defense the ASR under {attack} is so low ({', '.join(levels)}) that in "
                "these cases not even a defense that stops every attack could be told from none."
            )


def _notes_on_power(lines: _Lines, rule: ErrorRule) -> Iterator[str]:
    """E.g. `20.1 points (melon), 25.7 points (agentsys)`; of many the range (`agentsys compare` has each)."""
    attacks = sorted({attack for _, attack in lines} - {NO_ATTACK})
    for attack in attacks:
        baseline = lines.get((NO_DEFENSE, attack), [])
        points = {
            defense: detectable_asr(baseline, cases, rule)
            for (defense, name), cases in lines.items()
            if name == attack and defense != NO_DEFENSE
        }
        known = sorted((value, name) for name, value in points.items() if not math.isnan(value))
        if known:
            under = f" under {attack}" if len(attacks) > 1 else ""
            told = ", ".join(f"{value:.1f} points ({name})" for value, name in known)
            if len(known) > _LISTED:
                told = f"{known[0][0]:.1f} to {known[-1][0]:.1f} points"
            yield f"Minimum detectable effect on ASR{under}, against none (80% power): {told}."


def _notes_on_tries(
    lines: _Lines,
    counted: Mapping[tuple[str, str], Mapping[str, Tally]],
    rule: ErrorRule,
    resampler: Resampler,
) -> Iterator[str]:
    """A line per defense and attack that was run several times, and per defense with several attacks."""
    for line, cases in lines.items():
        k = least_repeats(counted[line])
        if k > 1:
            benign = line[1] == NO_ATTACK
            asked = [("benign utility" if benign else "utility under attack", Side.SOLVED)]
            if not benign and _has_goal(cases):
                asked.append(("ASR", Side.INJECTED))
            numbers = [(name, at_least_once(counted[line], side, k, resampler)) for name, side in asked]
            told = ", ".join(f"{name} {_interval(number)}" for name, number in numbers)
            yield f"{_name(*line)}, at least once in {k} runs of a case: {told}."
    for defense in dict.fromkeys(defense for defense, _ in lines):
        against = [cases for (one, _), cases in lines.items() if one == defense and _has_goal(cases)]
        several = [case for cases in against for case in cases] if len(against) > 1 else []
        if several and (best := best_attack(several, resampler, rule)):
            asr = _interval(best.asr)
            yield (
                f"{defense}: the best of {best.tried} attacks is {best.name}; ASR {asr}, where each injection"
                " task counts with the attack that is best on all others."
            )


def _has_goal(cases: Sequence[CaseRow]) -> bool:
    """Whether an attack has a goal of its own that could be reached."""
    attack = cases[0].attack
    if (
        attack == NO_ATTACK
        or attack.endswith(SEARCHED_ON_SUFFIX)
        or is_control(cases)
        or is_denial_of_service(attack)
    ):
        return False
    return any(case.injection_task_id for case in cases)


def _interval(found: Number) -> str:
    interval = "" if math.isnan(found.ci_low) else f" ({found.ci_low:.1f} to {found.ci_high:.1f})"
    return f"{found.value:.2f}{interval}"


_STARTS = ("important_instructions", "opi_combined_attack")
"""The attacks whose texts a search starts from (agentsys.attacks.attacker_search.choose_start_attack)."""


def _notes_on_searches(lines: _Lines, rule: ErrorRule) -> Iterator[str]:
    """Say what a searched attack's line is not.

    Cases without a text, cases the text was chosen on, and where a transferred text does worse than the one
    it came from.
    """
    for (defense, attack), cases in lines.items():
        none = [case for case in cases if case.error_kind in NO_TEXT]
        if none:
            kinds = ", ".join(kind for kind in NO_TEXT if any(case.error_kind == kind for case in none))
            yield (
                f"{_name(defense, attack)}: {len(none)} of {len(cases)} cases are in no rate, because the "
                f"attacker gave no text to try ({kinds}); nothing is known of this attack there."
            )
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


def _notes_on_exposure(lines: _Lines, rule: ErrorRule) -> Iterator[str]:
    told: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for (defense, attack), cases in lines.items():
        # A control has no payload that could be met, or miss its mark.
        bare = attack == NO_ATTACK or is_control(cases)
        if parts := "" if bare else "; ".join(_exposure_parts(cases, rule)):
            told[attack, parts].append(defense)
    for (attack, parts), defenses in told.items():
        yield f"{_name(join_names(defenses), attack)}: {parts}."


def _exposure_parts(cases: Sequence[CaseRow], rule: ErrorRule) -> Iterator[str]:
    suites = len({case.suite for case in cases})
    returned, shown = exposure_share(cases, "exposed_raw"), exposure_share(cases, "exposed_shown")
    if returned.n and returned.value < 100.0:
        yield f"payload returned by a tool in {returned.value:.1f}% of cases"
        if returned.value > 0:
            yield f"ASR there {_share(asr_of((one for one in cases if one.exposed_raw), rule), suites)}"
    if shown.n and shown.value == 0.0:
        yield "payload never shown to the model"
    elif shown.n and shown != returned:
        yield f"payload shown to the model in {shown.value:.1f}% of cases"
        yield f"ASR there {_share(asr_of((one for one in cases if one.exposed_shown), rule), suites)}"
    aims = not is_denial_of_service(cases[0].attack)
    succeeded = [case for case in cases if case.injection_success]
    # Attacks that succeeded although the acting model was not shown them: who read them instead.
    unseen = [case for case in succeeded if case.status == "ok" and case.exposed_shown is False]
    if unseen and aims:
        reasons = Counter(map(unseen_reason, unseen))
        listed = ", ".join(f"{reason} in {count}" for reason, count in sorted(reasons.items()))
        yield f"{len(unseen)} succeeded though the payload was never shown to the model ({listed})"
    if succeeded and aims and any(case.injection_task_id for case in cases):
        yield f"utility where the attack failed {_share(utility_where_safe(cases, rule), suites)}"
    if split := workspace_split(cases, rule):
        old, added = (_share(part, 1) for part in split)
        yield f"workspace ASR on injection tasks 0-5 {old}, on those added in v1.2 {added}"


def _share(share: Share, suites: int) -> str:
    """E.g. `34.51 (n 556)`; the number of suites where it is not all of the line's."""
    fewer = f", {share.suites} of {suites} suites" if share.suites < suites else ""
    return f"{number_text(share.value)} (n {share.n}{fewer})"


def _name(defense: str, attack: str) -> str:
    return defense if attack == NO_ATTACK else f"{defense} / {attack}"


SIMULATED_NOTE = "simulated: a scripted agent, not a language model; no LLM's numbers."
DIFFERS = "differs from the record"
"""In a case's note about a text that the recorded run did not have (see agentsys.models.replay)."""


def provenance_notes(cases: Iterable[CaseRow]) -> list[str]:
    """All of these footnotes, one sentence each; none where there is nothing to say."""
    listed = [case for case in cases if case.is_scored]
    noted = [case for case in listed if case.notes]
    return [
        *_notes_on_missing_roles(noted),
        *_notes_on_unread_attacks(noted),
        *_notes_on_other_models(listed),
        *_notes_on_data(listed),
        *_notes_on_other_prompts(listed),
    ]


_NO_PART = re.compile(r"role '(.+)' has no simulated part")
"""In a case's note about replies of the simulated model (see agentsys.simulated.simulated_model)."""


def _notes_on_missing_roles(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Roles of a defense that the simulated model has no script for: its numbers are not the defense's."""
    told = [(found[1], case) for case in cases for found in map(_NO_PART.match, case.notes) if found]
    for role, met in sorted(group_by(told, itemgetter(0)).items()):
        yield (
            f"Role '{role}' has no simulated part (`simulated_roles`), so the plain agent answered for it:"
            f" {_name_cells(case for _, case in met)}."
        )


_READ = re.compile(r"model read (\d+) of (\d+) sentences in (.+)")
"""A case's note about an attack that has to be read (see agentsys.models.reply_checks)."""


def _notes_on_unread_attacks(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Attacks that a model was seen not to read before the run: their failure is not the defense's merit."""
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


def _notes_on_other_models(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Cells whose replies name another model than was asked for."""
    other = [
        (asked, replied, case)
        for case in cases
        for replied, asked in case.model_ids.items()
        if asked and _bare_id(asked) != _bare_id(replied)
    ]
    for (asked, replied), met in sorted(group_by(other, itemgetter(0, 1)).items()):
        yield f"Asked for {asked}, answered by {replied}: {_name_cells(case for *_, case in met)}."


def _bare_id(model_id: str) -> str:
    """Without what gateways put before it, e.g. `openai/`."""
    return model_id.rpartition("/")[2]


def _notes_on_data(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Suites whose data were not the same in all runs of one version of the benchmark."""
    known = (case for case in cases if case.data_hash)
    suites = group_by(known, lambda case: (case.benchmark, case.version, case.suite))
    for (benchmark, version, suite), found in sorted(suites.items()):
        by_hash = group_by(found, lambda case: str(case.data_hash))
        if len(by_hash) > 1:
            told = (f"hash {digest[:8]}: {_name_cells(met)}" for digest, met in sorted(by_hash.items()))
            yield (
                f"{benchmark} {version} {suite}: these runs had different data, so they are not the same test"
                f" ({'; '.join(told)})."
            )


def _notes_on_other_prompts(cases: Sequence[CaseRow]) -> Iterator[str]:
    found = [case for case in cases if case.foreign and case.defense in REWORDED_DEFENSES]
    if found:
        yield (
            f"Published runs of {_name_cells(found)} were made by other code with prompts of its own: a"
            " line of ours with the same name is another experiment."
        )


def _name_cells(cases: Iterable[CaseRow]) -> str:
    """List the models and defenses of some cases."""
    return join_names(f"{case.table_model} / {case.defense}" for case in cases)


def replay_notes(cases: Iterable[CaseRow]) -> list[str]:
    """A line for each replayed agent of which some cases read other texts than were recorded."""
    listed = list(cases)
    if not any(DIFFERS in note for case in listed for note in case.notes):
        return []
    done = [case for case in listed if case.is_scored and case.status == "ok"]
    cells = group_by(done, lambda case: (case.table_model, case.defense))
    return [
        f"{model} / {defense}: texts differed from the record in {differ} of {len(found)} cases, whose"
        " answers were given to the recorded texts (the cases' notes name them)."
        for (model, defense), found in sorted(cells.items())
        if (differ := sum(any(DIFFERS in note for note in case.notes) for case in found))
    ]
