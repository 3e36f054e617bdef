"""Footnotes on the cases themselves: which there are, what answered to which texts, on which data, in whose words."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from operator import itemgetter

from agentsys.analysis.metrics.rates import MeasuredCell, ScoredCells
from agentsys.analysis.metrics.task_tags import describe_fix, load_fixes
from agentsys.analysis.statistics.outcome_grid import ErrorRule, find_outcome
from agentsys.base.grouping import group_by, join_names
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.context_facts import JUDGED_THOUGHTS
from agentsys.records.published_facts import REWORDED_DEFENSES, list_suite_sizes

SIMULATED_NOTE = "simulated: a scripted agent, not a language model; no LLM's numbers."
DIFFERS = "differs from the record"
"""In a case's note about a text that the recorded run did not have (see agentsys.models.replay)."""


def write_provenance_notes(cases: Iterable[CaseRow]) -> list[str]:
    """All of these footnotes, one sentence each; none where there is nothing to say."""
    listed = [case for case in cases if case.is_scored]
    noted = [case for case in listed if case.notes]
    notes = list(_write_notes_on_case_notes(noted) if noted else ())
    # Whatever gateways put before the name of a model.
    other = [
        (asked, replied, case)
        for case in listed
        for replied, asked in case.model_ids.items()
        if asked and asked.rpartition("/")[2] != replied.rpartition("/")[2]
    ]
    for (asked, replied), met in sorted(group_by(other, itemgetter(0, 1)).items()):
        notes.append(f"Asked for {asked}, answered by {replied}: {_name_cells(case for *_, case in met)}.")
    notes += _write_server_notes(listed)
    known = (case for case in listed if case.data_hash)
    suites = group_by(known, lambda case: (case.benchmark, case.version, case.suite))
    for (benchmark, version, suite), of_suite in sorted(suites.items()):
        by_hash = group_by(of_suite, lambda case: str(case.data_hash))
        if len(by_hash) > 1:
            sides = (f"hash {digest[:8]}: {_name_cells(met)}" for digest, met in sorted(by_hash.items()))
            notes.append(
                f"{benchmark} {version} {suite}: these runs had different data, so they are not the same test"
                f" ({'; '.join(sides)})."
            )
    judged = [case for case in noted if JUDGED_THOUGHTS in case.notes]
    if judged and len(judged) < len(listed) and any(not case.foreign for case in listed):
        notes.append(
            f"In {len(judged)} cases of {_name_cells(judged)} {JUDGED_THOUGHTS}, as AgentDojo does; in runs of ours"
            " only the answer is judged."
        )
    if reworded := [case for case in listed if case.foreign and case.defense in REWORDED_DEFENSES]:
        notes.append(
            f"Published runs of {_name_cells(reworded)} were made by other code with prompts of its own: a"
            " line of ours with the same name is another experiment."
        )
    return notes


def _write_server_notes(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Cells in which several servers answered under one model's name."""
    cells = group_by((case for case in cases if case.servers), lambda case: (case.table_model, case.defense))
    for name in ("provider", "system_fingerprint"):
        by_cell = {
            cell: sorted(
                {one.partition(" ")[2] for case in met for one in case.servers if one.startswith(name)}
            )
            for cell, met in cells.items()
        }
        for cell, values in by_cell.items():
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
    roles = [(parts[1], case) for case in cases for parts in map(match, case.notes) if parts]
    for role, met in sorted(group_by(roles, itemgetter(0)).items()):
        yield (
            f"Role '{role}' has no simulated part (`simulated_roles`), so the plain agent answered for it:"
            f" {_name_cells(case for _, case in met)}."
        )
    seen: dict[tuple[str, str], re.Match[str]] = {}
    for case in cases:
        for note in case.notes if case.attack != NO_ATTACK else ():
            if (parts := _READ.fullmatch(note)) and int(parts[1]) < int(parts[2]):
                seen[case.table_model, case.attack] = parts
    for (model, attack), parts in sorted(seen.items()):
        yield (
            f"{model} read {parts[1]} of {parts[2]} harmless sentences in {parts[3]} before the run: what"
            f" {attack} fails at there is not resistance."
        )


def _name_cells(cases: Iterable[CaseRow]) -> str:
    return join_names(f"{case.table_model} / {case.defense}" for case in cases)


def write_benchmark_change_notes(benchmarks: Iterable[str]) -> list[str]:
    """One line for every benchmark whose label names a fix: its cases were run on other texts."""
    notes = []
    for label in dict.fromkeys(benchmarks):
        plain, *parts = label.split("+")
        phrases = [describe_fix(part) for part in parts if part in load_fixes()]
        if phrases:
            notes.append(f"{label}: {'; '.join(phrases)}. Not comparable with {plain}.")
    return notes


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


def write_part_notes(cells: ScoredCells) -> Iterator[str]:
    """Say of which part of AgentDojo an overall number is, where it is of a part alone."""
    named: dict[str, list[str]] = {}
    for cell, cases in cells.items():
        if cell.benchmark.partition("+")[0] == "agentdojo" and (part := _describe_part(cell, cases)):
            named.setdefault(part, []).append(f"{cell.model} / {cell.defense} / {cell.attack}")
    for part, names in named.items():
        yield f"Overall is of a part of AgentDojo: {part}: {'; '.join(names[:2])}{' and others' if names[2:] else ''}."


def _describe_part(cell: MeasuredCell, cases: Sequence[CaseRow]) -> str:
    """E.g. `Travel, 11 of 20 user tasks`; empty where all of the benchmark's version is there."""
    sizes = list_suite_sizes(cell.version)
    by_suite = group_by(cases, lambda case: case.suite)
    if not by_suite.keys() <= sizes.keys():
        return ""  # a fork's
    parts, is_whole = [], by_suite.keys() == sizes.keys()
    for suite, of_suite in sorted(by_suite.items()):
        users, size = {case.user_task_id for case in of_suite}, sizes[suite]
        pairs = {(case.user_task_id, case.injection_task_id) for case in of_suite if case.injection_task_id}
        # Attacks without a goal run each user task once.
        most = len(size.user_tasks) * len(size.injection_tasks)
        of_pairs = bool(pairs) and len({task for _, task in pairs}) > 1
        if len(users) < len(size.user_tasks):
            parts.append(f"{suite.capitalize()}, {len(users)} of {len(size.user_tasks)} user tasks")
        elif of_pairs and len(pairs) < most:
            parts.append(f"{suite.capitalize()}, {len(pairs)} of {most} cases")
        else:
            parts.append(suite.capitalize())
            continue
        is_whole = False
    return "" if is_whole else "; ".join(parts)


_KINDS_BEFORE = {"cut_reply": "cut_reply, which is scored when it is run again"}
"""Error kinds of older records that are none any more."""


def write_errored_notes(cases: Iterable[CaseRow], rule: ErrorRule) -> Iterator[str]:
    """Say how many of some cases errored, why, and what they count as; nothing where none did."""
    scored_cases = [case for case in cases if case.is_scored]
    errored = [case for case in scored_cases if case.status == "error"]
    if not errored:
        return
    kinds = Counter(
        _KINDS_BEFORE.get(case.error_kind or "", case.error_kind or "unknown") for case in errored
    )
    listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    if len({case.table_model for case in scored_cases}) > 1:
        listed += f"; of {join_names(case.table_model for case in errored)}"
    scored = sum(find_outcome(case, rule) is not None for case in errored)
    if rule is ErrorRule.REPORT:
        yield f"Errored cases are left out of the rates: {len(errored)} ({listed})."
    elif rule is ErrorRule.FAILED:
        yield (
            f"Errored cases: {len(errored)} ({listed}). They and all others that are undecided (docs/data.md#verdicts)"
            " are counted as user task failed, attack succeeded."
        )
    else:
        yield (
            f"Errored cases: {len(errored)} ({listed}); {scored} of them counted as AgentDojo does "
            f"(user task failed, attack succeeded), {len(errored) - scored} left out."
        )


def write_notes_on_suites_as_draws(cases: Iterable[CaseRow]) -> Iterator[str]:
    """Say where suites are drawn in the place of user tasks (`rate_estimates`)."""
    tasks: defaultdict[tuple[str, str], defaultdict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for case in cases:
        if case.is_scored:
            tasks[case.benchmark, case.version][case.suite].add(case.user_task_id)
    for (benchmark, version), suites in sorted(tasks.items()):
        if len(suites) > 1 and all(len(users) == 1 for users in suites.values()):
            yield (
                f"{benchmark} {version}: every suite has a single user task, so overall and pooled intervals "
                f"resample the {len(suites)} suites in their place."
            )
