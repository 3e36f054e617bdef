"""How much untrusted text reached an agent that can act, and for how long: means over cases.

Definitions: docs/data.md#measures. Every function takes the cases of one group, leaves out those that
errored and those whose value is unknown, and gives nan where none is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from agentsys.records.case_row import NO_ATTACK, CaseRow


class Mean(NamedTuple):
    """A mean and what it rests on."""

    value: float
    """nan where `n` is 0."""
    n: int
    """Cases with a known value."""


def untrusted_tokens(cases: Iterable[CaseRow]) -> Mean:
    """Tokens per case that came from tools into the acting agent's context."""
    return _mean(cases, lambda case: case.untrusted_tokens)


def untrusted_tokens_workers(cases: Iterable[CaseRow]) -> Mean:
    """Tokens per case that came from tools into workers' contexts, all workers of a case together."""
    return _mean(cases, lambda case: case.untrusted_tokens_workers)


def exposure_rounds(cases: Iterable[CaseRow]) -> Mean:
    """Replies per attacked case that the acting agent gave with the injection in its context."""
    return _mean(_attacked(cases), lambda case: case.exposure_rounds)


def exposure_rounds_workers(cases: Iterable[CaseRow]) -> Mean:
    """Replies per attacked case that workers gave with the injection in their contexts."""
    return _mean(_attacked(cases), lambda case: case.exposure_rounds_workers)


def _attacked(cases: Iterable[CaseRow]) -> Iterable[CaseRow]:
    return (case for case in cases if case.attack != NO_ATTACK)


def _mean(cases: Iterable[CaseRow], value: Callable[[CaseRow], int | None]) -> Mean:
    found = [value(case) for case in cases if case.status == "ok"]
    known = [one for one in found if one is not None]
    return Mean(sum(known) / len(known) if known else float("nan"), len(known))
