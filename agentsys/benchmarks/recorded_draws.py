"""`recorded_draws`: which codes and numbers a recorded case's tools drew, found in what they returned.

A record says which code the agent typed in, not what the tools are to draw when the case is done again: with
other codes every verification would fail. So the calls are done again with codes of our own; where one of
these stands today, the recorded text has the code that was drawn then. With it the calls get further, to the
next one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment

from agentsys.abilities import DrawsAtRandom
from agentsys.benchmarks.case_random import CaseRandom, drawing
from agentsys.benchmarks.clock import DEFAULT, parsed_clock, reading
from agentsys.contracts import Suite
from agentsys.models.replay.recorded_run import name_today
from agentsys.models.tools import as_executed

Execute = Callable[[], Sequence[str]]
"""Does a record's calls on a fresh environment and gives what each tool returns, as a model reads it."""
_BEFORE = (24, 12, 6)
"""Characters before a number by which its place is found again: fewer, where a clock's stamp stands there."""


def draws(suite: object) -> bool:
    """Whether a suite's tools draw at random."""
    return isinstance(suite, DrawsAtRandom) and suite.draws_at_random


def recorded_draws(execute: Execute, recorded: Sequence[str | None]) -> list[str | None]:
    """The numbers that were drawn, in order; None for one that no recorded text shows.

    Args:
        execute: Does the calls, under whatever generator is in force.
        recorded: What each of these calls returned then; None where the record does not say.
    """
    known: list[str | None] = []
    for _ in range(len(recorded) + 1):
        with reading(parsed_clock(DEFAULT)), drawing(CaseRandom(("recorded",), known)) as generator:
            today = execute()
        told = [_told(number, today, recorded) for number in generator.drawn]
        if told == known:
            break
        known = told
    return known


def results_again(
    suite: Suite, environment: TaskEnvironment, calls: Iterable[tuple[str, Mapping[str, Any]]]
) -> Iterator[tuple[Any, str | None]]:
    """Make recorded calls on an environment, which changes as their values and errors are taken."""
    runtime = FunctionsRuntime(suite.tools)
    for recorded, args in calls:
        function = name_today(recorded, runtime.functions)
        if function in runtime.functions:
            yield runtime.run_function(environment, function, as_executed(args))
        else:  # in the executor's words: such a call never reaches the runtime
            yield "", f"Invalid tool {function} provided."


def _told(number: str, today: Sequence[str], recorded: Sequence[str | None]) -> str | None:
    """What a record has in the place where a number stands today."""
    for length in _BEFORE:
        for now, then in zip(today, recorded, strict=False):
            place = now.find(number)
            if place < 0 or then is None:
                continue
            before = re.escape(now[max(0, place - length) : place])
            number_there = re.compile(rf"(?<={before})\d{{{len(number)}}}(?!\d)", re.DOTALL)
            earlier = len(number_there.findall(now[:place]))
            found = number_there.findall(then)
            if earlier < len(found):
                return str(found[earlier])
    return None
