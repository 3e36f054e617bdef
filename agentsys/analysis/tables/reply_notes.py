"""Footnotes on replies that came to nothing: they look like a weak and very safe model, and are none."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from agentsys.records.case_row import NO_ATTACK, CaseRow

_Lines = Mapping[tuple[str, str], Sequence[CaseRow]]
"""(defense, attack) -> cases of one model."""


def reply_notes(lines: _Lines) -> Iterator[str]:
    """All of them, about one model on one benchmark."""
    yield from _mute(lines)
    yield from _odd_replies(lines)
    yield from _too_long(lines)
    yield from _silent(lines)


def _mute(lines: _Lines) -> Iterator[str]:
    """Say of a cell that no tool was called in it: its numbers are those of a model that only talks."""
    for (defense, attack), cases in lines.items():
        ran = [case for case in cases if case.status == "ok" and case.trajectory_length is not None]
        if ran and not any(case.calls or case.trajectory_length for case in ran):
            name = defense if attack == NO_ATTACK else f"{defense} / {attack}"
            yield (
                f"{name}: no tool was called in any of {len(ran)} cases. Does the model's server "
                "parse tool calls (docs/models.md)?"
            )


_ODD = {"empty": "empty", "unparsed_call": "a tool call as text that its server did not parse"}


def _odd_replies(lines: _Lines) -> Iterator[str]:
    """Count, per model that replied, the replies that came to nothing."""
    found: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for cases in lines.values():
        for case in cases:
            for model_id, kinds in case.odd_replies.items():
                for kind, count in kinds.items():
                    found[model_id, kind].append(count)
    for (model_id, kind), counts in sorted(found.items()):
        yield (
            f"Replies of {model_id or 'a model without a name'} that were {_ODD.get(kind, kind)}: "
            f"{sum(counts)}, in {len(counts)} cases."
        )


def _too_long(lines: _Lines) -> Iterator[str]:
    """Count by suite the cases that did not fit into the model's context: the suites are not alike in that."""
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
            f"Ended in an empty answer: {_by_suite(met, cases)}. In runs of other harnesses that may be a request "
            "that failed, scored as an answer."
        )


def _by_suite(met: Sequence[CaseRow], cases: Sequence[CaseRow]) -> str:
    """E.g. `banking 3 of 144, slack 1 of 105 cases`."""
    some, all_of = Counter(case.suite for case in met), Counter(case.suite for case in cases)
    listed = ", ".join(f"{suite} {count} of {all_of[suite]}" for suite, count in sorted(some.items()))
    return f"{listed} cases"
