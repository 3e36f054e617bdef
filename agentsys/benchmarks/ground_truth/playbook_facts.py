"""Finds what later calls and the answer of a ground truth take from tool outputs."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentsys.models.simulated.grounding import leaf_forms, scalar_leaves
from agentsys.models.simulated.playbook import Fact, ScriptedCall
from agentsys.models.simulated.text_matching import fold_text, occurs_in

_PIECE = re.compile(r"\w+(?:['’]\w+)*")
_SHORT_WORD = re.compile(r"[a-z]{1,3}")
"""Articles, prepositions and the like: on their own they are taken from nowhere."""
_LONGEST_FIELD = 41
"""Characters; a defense that has return values declared may refuse longer names, as AgentSys does."""
_JOINT = re.compile(r"[-:./,]\d")
"""Read away from a number: what makes it a part of a longer one."""


@dataclass(frozen=True)
class _ReusedText:
    """A text and where it comes from."""

    text: str
    source: int


def find_facts(
    task: str, prompt: str, calls: Sequence[ScriptedCall], answer: str, outputs: Sequence[str]
) -> tuple[Fact, ...]:
    """The facts of one user task, in order of appearance, each text once.

    Args:
        task: Unique name of the task; fields are named after it.
        prompt: The user's request; what stands in it need not be read.
        calls: Ground-truth calls.
        answer: Ground-truth answer.
        outputs: Clean output of each call, as an agent reads it.
    """
    request = fold_text(prompt)
    read = [fold_text(output) for output in outputs]
    taken: list[_ReusedText] = []
    for index, call in enumerate(calls):
        for leaf in scalar_leaves(call.args):
            taken.extend(_find_in_leaf(leaf, request, read[:index]))
    taken.extend(_find_in_text(answer, request, read))
    return _name_facts(task, taken)


def _name_facts(task: str, taken: Iterable[_ReusedText]) -> tuple[Fact, ...]:
    sources = {found.text: found.source for found in reversed(list(taken))}
    counts: Counter[int] = Counter()
    facts = []
    for text, source in reversed(list(sources.items())):
        facts.append(Fact(_field_name(task, source, counts[source]), text, source))
        counts[source] += 1
    return tuple(facts)


def _field_name(task: str, source: int, number: int) -> str:
    """A field name of a length that return values may have; of a task with a long name, its hash."""
    name = f"{task}_call_{source}_value_{number}"
    if len(name) <= _LONGEST_FIELD:
        return name
    digest = hashlib.blake2b(task.encode(), digest_size=4).hexdigest()
    return f"fact_{digest}_call_{source}_value_{number}"


def _find_in_leaf(leaf: object, request: str, read: Sequence[str]) -> Iterator[_ReusedText]:
    if isinstance(leaf, str):
        yield from _find_in_text(leaf, request, read)
        return
    for form in leaf_forms(leaf):
        if occurs_in(form, request):
            return
        source = _find_source(form, read)
        if source is not None:
            yield _ReusedText(form, source)
            return


def _find_in_text(text: str, request: str, read: Sequence[str]) -> Iterator[_ReusedText]:
    """The longest runs of words that stand in an output and that the request does not supply."""
    pieces = list(_PIECE.finditer(text))
    start = 0
    while start < len(pieces):
        end = _find_longest_run(text, pieces, start, read)
        if end == start:
            start += 1
            continue
        run = text[pieces[start].start() : pieces[end - 1].end()]
        whole = not _is_cut_off(text, pieces[start].start(), pieces[end - 1].end())
        if whole and not _is_in_request(run, request):
            source = _find_source(fold_text(run), read)
            assert source is not None
            yield _ReusedText(run, source)
        start = end


def _find_longest_run(text: str, pieces: Sequence[re.Match[str]], start: int, read: Sequence[str]) -> int:
    """One past the last piece of the longest run from `start` that stands in an output."""
    longest = start
    for end in range(start + 1, len(pieces) + 1):
        run = text[pieces[start].start() : pieces[end - 1].end()]
        if _find_source(fold_text(run), read) is not None:
            longest = end
        elif not run.isdigit():  # `2024` does not stand in `2024-05-21` as a number, yet begins it
            break
    return longest


def _find_source(folded: str, read: Sequence[str]) -> int | None:
    return next((index for index, output in enumerate(read) if occurs_in(folded, output)), None)


def _is_in_request(run: str, request: str) -> bool:
    """Say whether the run can be put together from runs of the user's request and short common words."""
    pieces = list(_PIECE.finditer(run))
    start = 0
    while start < len(pieces):
        end = _find_longest_run(run, pieces, start, [request])
        if end == start and not _SHORT_WORD.fullmatch(pieces[start].group()):
            return False
        start = max(end, start + 1)
    return True


def _is_cut_off(text: str, start: int, end: int) -> bool:
    """Say whether a run is a piece of a longer number, date or time: then it was worked out, not read."""
    before, after = text[max(0, start - 2) : start][::-1], text[end : end + 2]
    return bool(
        (text[start].isdigit() and _JOINT.fullmatch(before))
        or (text[end - 1].isdigit() and _JOINT.fullmatch(after))
    )
