"""Threads that parse take turns, whoever asks them to parse."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentsys import parsing_threads
from agentsys.parsing_threads import in_turns, parse_in_turns


def test_one_thread_at_a_time_is_inside() -> None:
    inside, most, gate = 0, 0, threading.Barrier(8)

    def parse(text: str) -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.001)
        inside -= 1
        return text

    def work(number: int) -> str:
        gate.wait()
        return str(in_turns(parse)(str(number)))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [str(number) for number in range(8)]
    assert most == 1


def test_a_mismatch_that_got_through_is_parsed_again_and_other_errors_are_not_hidden() -> None:
    asked: list[str] = []

    def parse(text: str) -> str:
        asked.append(text)
        if len(asked) == 1:
            raise SystemError("AST constructor recursion depth mismatch (before=66, after=63)")
        return text

    assert in_turns(parse)("x") == "x"
    assert asked == ["x", "x"]
    with pytest.raises(SyntaxError):
        in_turns(ast.parse)("(")


def test_it_is_pythons_own_function_that_takes_turns_and_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing_threads, "AFFECTED", True)
    monkeypatch.setattr(ast, "parse", getattr(ast.parse, "__wrapped__", ast.parse))
    plain = ast.parse
    parse_in_turns()
    turned = ast.parse
    parse_in_turns()
    assert ast.parse is turned is not plain
    assert ast.literal_eval("[1, 'a']") == [1, "a"]


def test_a_run_lets_its_threads_take_turns(
    run_cases: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing_threads, "AFFECTED", True)
    monkeypatch.setattr(ast, "parse", getattr(ast.parse, "__wrapped__", ast.parse))
    run_cases(
        ["model=simulated", "defense=none", "attack=none", "benchmark.suites=[banking]", "user_tasks=[0]"]
    )
    assert hasattr(ast.parse, "__wrapped__")


def test_a_mended_python_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing_threads, "AFFECTED", False)
    monkeypatch.setattr(ast, "parse", getattr(ast.parse, "__wrapped__", ast.parse))
    plain = ast.parse
    parse_in_turns()
    assert ast.parse is plain
