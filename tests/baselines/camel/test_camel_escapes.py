"""CaMeL's language cannot be left, and programs that want too much are refused."""

from __future__ import annotations

import pytest
from camel_escapes import PROGRAMS
from programs_for_camel import machine_with

from baselines.camel.language.interpreter import run_program
from baselines.camel.language.machine import ProgramBounds, ProgramError


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_the_program_is_refused(program: str) -> None:
    machine = machine_with(tool="secret", data={"a": "secret"})
    with pytest.raises(ProgramError) as caught:
        run_program(program, machine)
    error, bounds = caught.value, ProgramBounds()
    assert error.label.is_trusted is False or "secret" not in error.text
    assert machine.spending.kept <= bounds.kept + bounds.parts
    assert machine.spending.built <= bounds.built + bounds.text
    assert all(value.size <= bounds.text and value.depth <= bounds.levels for value in machine.names.values())


def test_there_are_enough_of_them_and_none_is_there_twice() -> None:
    assert len(set(PROGRAMS)) == len(PROGRAMS) > 150


def test_a_program_that_runs_for_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1_000_000, 3))
    monkeypatch.setattr("time.thread_time", lambda: next(now))
    with pytest.raises(ProgramError, match="too much time"):
        run_program("for i in range(2000):\n    pass", machine_with())


def test_what_one_program_has_built_counts_for_the_next_one() -> None:
    machine = machine_with()
    with pytest.raises(ProgramError, match="too much memory"):
        for _ in range(20):
            run_program("x = 'a' * 900000", machine)
