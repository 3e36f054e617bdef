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
from agentsys.benchmarks.case_random import CaseRandom, use_case_random
from agentsys.benchmarks.clock import DEFAULT_CLOCK, parse_clock, use_case_clock
from agentsys.contracts import Suite
from agentsys.models.replay.recorded_run import current_tool_name
from agentsys.models.tools import normalize_arguments

CallRunner = Callable[[], Sequence[str]]
"""Does a record's calls on a fresh environment and gives what each tool returns, as a model reads it."""
_CONTEXT_LENGTHS = (24, 12, 6)
"""Characters before a number by which its place is found again: fewer, where a clock's stamp stands there."""


def has_random_draws(suite: object) -> bool:
    """Whether a suite's tools draw at random."""
    return isinstance(suite, DrawsAtRandom) and suite.draws_at_random


def find_recorded_draws(execute: CallRunner, recorded: Sequence[str | None]) -> list[str | None]:
    """The numbers that were drawn, in order; None for one that no recorded text shows.

    Args:
        execute: Does the calls, under whatever generator is in force.
        recorded: What each of these calls returned then; None where the record does not say.
    """
    known: list[str | None] = []
    for _ in range(len(recorded) + 1):
        with use_case_clock(parse_clock(DEFAULT_CLOCK)), use_case_random(CaseRandom(("recorded",), known)) as generator:
            today = execute()
        told = [_find_recorded_number(number, today, recorded) for number in generator.drawn_numbers]
        if told == known:
            break
        known = told
    return known


def repeat_calls(
    suite: Suite, environment: TaskEnvironment, calls: Iterable[tuple[str, Mapping[str, Any]]]
) -> Iterator[tuple[Any, str | None]]:
    """Make recorded calls on an environment, which changes as their values and errors are taken."""
    runtime = FunctionsRuntime(suite.tools)
    for recorded, args in calls:
        function = current_tool_name(recorded, runtime.functions)
        if function in runtime.functions:
            yield runtime.run_function(environment, function, normalize_arguments(args))
        else:  # in the executor's words: such a call never reaches the runtime
            yield "", f"Invalid tool {function} provided."


def _find_recorded_number(number: str, today: Sequence[str], recorded: Sequence[str | None]) -> str | None:
    """What a record has in the place where a number stands today."""
    for length in _CONTEXT_LENGTHS:
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
