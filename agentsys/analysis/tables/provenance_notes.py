"""Footnotes on whose numbers these are: what answered to which texts, on which data, in whose words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow
from agentsys.records.published_facts import REWORDED_DEFENSES

SIMULATED_NOTE = "simulated: a scripted agent, not a language model; no LLM's numbers."
_NAMED = 4
"""Cells that a note names; of others it gives the number."""
DIFFERS = "differs from the record"
"""In a case's note about a text that the recorded run did not have (see agentsys.models.replay)."""


def provenance_notes(cases: Iterable[CaseRow]) -> list[str]:
    """All of these footnotes, one sentence each; none where there is nothing to say."""
    listed = [case for case in cases if case.is_scored]
    noted = [case for case in listed if case.notes]
    return [
        *_without_a_part(noted),
        *_unread(noted),
        *_replied(listed),
        *_data(listed),
        *_other_words(listed),
    ]


_NO_PART = re.compile(r"role '(.+)' has no simulated part")
"""In a case's note about replies of the simulated model (see agentsys.simulated.simulated_model)."""


def _without_a_part(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Roles of a defense that the simulated model has no script for: its numbers are not the defense's."""
    told = [(found[1], case) for case in cases for found in map(_NO_PART.match, case.notes) if found]
    for role, met in sorted(group_by(told, itemgetter(0)).items()):
        yield (
            f"Role '{role}' has no simulated part (`simulated_roles`), so the plain agent answered for it:"
            f" {_cells(case for _, case in met)}."
        )


_READ = re.compile(r"model read (\d+) of (\d+) sentences in (.+)")
"""A case's note about an attack that has to be read (see agentsys.models.reply_checks)."""


def _unread(cases: Sequence[CaseRow]) -> Iterator[str]:
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


def _replied(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Cells whose replies name another model than was asked for."""
    other = [
        (asked, replied, case)
        for case in cases
        for replied, asked in case.model_ids.items()
        if asked and _id(asked) != _id(replied)
    ]
    for (asked, replied), met in sorted(group_by(other, itemgetter(0, 1)).items()):
        yield f"Asked for {asked}, answered by {replied}: {_cells(case for *_, case in met)}."


def _id(model_id: str) -> str:
    """Without what gateways put before it, e.g. `openai/`."""
    return model_id.rpartition("/")[2]


def _data(cases: Sequence[CaseRow]) -> Iterator[str]:
    """Suites whose data were not the same in all runs of one version of the benchmark."""
    known = (case for case in cases if case.data_hash)
    suites = group_by(known, lambda case: (case.benchmark, case.version, case.suite))
    for (benchmark, version, suite), found in sorted(suites.items()):
        by_hash = group_by(found, lambda case: str(case.data_hash))
        if len(by_hash) > 1:
            told = (f"hash {digest[:8]}: {_cells(met)}" for digest, met in sorted(by_hash.items()))
            yield (
                f"{benchmark} {version} {suite}: these runs had different data, so they are not the same test"
                f" ({'; '.join(told)})."
            )


def _other_words(cases: Sequence[CaseRow]) -> Iterator[str]:
    found = [case for case in cases if case.foreign and case.defense in REWORDED_DEFENSES]
    if found:
        yield (
            f"Published runs of {_cells(found)} were made by other code with prompts of its own: a"
            " line of ours with the same name is another experiment."
        )


def _cells(cases: Iterable[CaseRow]) -> str:
    """The models and defenses of some cases; of many the first."""
    names = list(dict.fromkeys(f"{case.table_model} / {case.defense}" for case in cases))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


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
