"""A value that came from a tool is never trusted or public: against an evaluator that follows characters."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from character_taint import TOOLS, Listing, Mapped, Number, Reference, Text, TooLong, Writer, plain
from programs_for_camel import ToolsOf

from baselines.camel.language.functions import CLASSES, PROVIDED_FUNCTIONS
from baselines.camel.language.interpreter import run_program
from baselines.camel.language.machine import Machine, ProgramError, ToolValue
from baselines.flow.labelled_values import FROM_USER, Dictionary, Series, Value, label_from_tool, to_native

PROGRAMS = int(os.environ.get("AGENTSYS_RANDOM_PROGRAMS", "120"))
"""Programs in each mode. 10,000 take a minute."""
PYTHON = (ArithmeticError, LookupError, TypeError, ValueError)


def machine(strict: bool) -> Machine:
    results = {name: (raw, label_from_tool(name, (), readers)) for name, (raw, readers) in TOOLS.items()}
    tools = {name: ToolValue(FROM_USER, name, ()) for name in TOOLS}
    return Machine(ToolsOf(results), {**PROVIDED_FUNCTIONS, **CLASSES, **tools}, strict)


def leaves(value: Value, reference: Any) -> Iterator[tuple[Value, frozenset[str]]]:
    """Each part of a value beside the tags of the same part of the reference's."""
    match reference:
        case Text() | Number():
            yield value, reference.tags
        case Listing():
            assert isinstance(value, Series)
            yield from ((value, frozenset()), (value, reference.whole))
            for held, item in zip(value.items, reference.items, strict=True):
                yield from leaves(held, item)
        case Mapped():
            assert isinstance(value, Dictionary)
            yield value, reference.whole
            for (key, held), (raw_key, item) in zip(
                value.entries.values(), reference.entries.values(), strict=True
            ):
                yield from leaves(key, raw_key)
                yield from leaves(held, item)


def check(seed: int, strict: bool, seen: Counter[str]) -> None:
    program = Writer(seed).program()
    reference = Reference({name: plain(raw, frozenset({name})) for name, (raw, _) in TOOLS.items()}, strict)
    run = machine(strict)
    try:
        expected = reference.run(program)
    except TooLong:
        seen["too long"] += 1
        return
    except PYTHON as error:
        seen["failed"] += 1
        with pytest.raises(ProgramError) as caught:
            run_program(program, run)
        assert caught.value.kind == type(error).__name__, program
        return
    run_program(program, run)
    assert run.names.keys() == expected.keys(), program
    for name, value in run.names.items():
        assert to_native(value) == expected[name].raw, (program, name)
        for part, tags in leaves(value, expected[name]):
            readers = [frozenset(TOOLS[tag][1]) for tag in tags]
            assert not tags or not part.full.is_trusted, (program, name)
            assert not tags or part.full.readers is not None, (program, name)
            assert all(part.full.readers <= allowed for allowed in readers), (program, name)  # type: ignore[operator]
            seen["from a tool" if tags else "the user's"] += 1
            seen["more than needed"] += not tags and not part.full.is_trusted
            seen["trusted"] += part.full.is_trusted


@pytest.mark.parametrize("strict", [False, True])
def test_no_label_is_ever_lower_than_what_had_a_part_in_the_value(strict: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in range(PROGRAMS):
        check(seed, strict, seen)
    # The programs are worth something: most run, and both kinds of values are plenty.
    assert seen["failed"] < PROGRAMS / 2
    assert min(seen["from a tool"], seen["trusted"]) > PROGRAMS
    print(dict(seen))


def test_a_label_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "join", lambda self, value, label: value)
    with pytest.raises(AssertionError):
        for seed in range(PROGRAMS):
            check(seed, False, Counter())
