"""scripts/mutate.py, `make bench`, perf/trace_case.py and `.ci/run`: what they break, measure, count and make."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import bench
import mutate
import pytest
from constant_model import CALLS, constant_model

from agentsys.runs.compose import compose


@pytest.mark.parametrize(
    ("written", "broken"),
    [
        ("return x == 1 and not y", "return x != 1 and (not y)"),
        ("return not x", "return x"),
        ("if x:\n        return 1\n    return 2", "if not x:\n        return 1\n    return 2"),
        ("return [y for y in x if y]", "return [y for y in x if not y]"),
        ("return True", "return False"),
        ("return g(x, y)", "return g(x)"),
        ("return g(x)", "return None"),
        ("assert x is not None\n    return x < 2", "assert x is not None\n    return x >= 2"),
    ],
)
def test_the_main_decision_is_the_first_of_the_preferred_kind(
    tmp_path: Path, written: str, broken: str
) -> None:
    module = tmp_path / "thing.py"
    module.write_text(f"def f(x, y):\n    {written}\n")
    (mutant,) = mutate.mutants(module)
    assert ast.unparse(mutant.tree) == f"def f(x, y):\n    {broken}"


def test_every_public_function_is_broken_once_and_what_does_nothing_is_not(tmp_path: Path) -> None:
    module = tmp_path / "thing.py"
    module.write_text(
        "def f(x):\n    return not x\n"
        "def _hidden(x):\n    return not x\n"
        "class C:\n"
        "    def __init__(self):\n        self.x = 1\n"
        "    def method(self):\n        return self.x == 1\n"
        "    def to_do(self):\n        '''Nothing.'''\n"
        "class _Hidden:\n    def method(self):\n        return True\n"
    )
    found = [(mutant.function, mutant.line) for mutant in mutate.mutants(module)]
    assert found == [("f", 1), ("C.method", 8)]


@pytest.mark.slow
def test_a_mutant_survives_only_tests_that_do_not_look(tmp_path: Path) -> None:
    module = tmp_path / "broken_thing.py"
    module.write_text("def small(x):\n    return x < 3\n")
    tests = tmp_path / "test_broken_thing.py"
    tests.write_text(
        "from broken_thing import small\n"
        "def test_looks():\n    assert small(2)\n"
        "def test_only_calls():\n    small(2)\n"
    )
    called = mutate.calls_of_tests(tmp_path, [str(tests)])
    (met,) = [found for key, found in called.items() if key.endswith("broken_thing.py:1")]
    assert {test.rpartition("::")[2] for test in met} == {"test_looks", "test_only_calls"}
    (mutant,) = mutate.mutants(module)
    assert not mutate.survives(mutant, {f"{tests}::test_looks": 0.1, f"{tests}::test_only_calls": 0.2}, 60)
    assert mutate.survives(mutant, {f"{tests}::test_only_calls": 0.1}, 60)
    assert mutate.survives(mutant, {}, 60)


def test_a_function_that_keeps_its_answers_is_tried_by_all_tests_of_its_module(tmp_path: Path) -> None:
    module = tmp_path / "thing.py"
    module.write_text("@lru_cache\ndef kept():\n    return 1\ndef plain():\n    return kept()\n")
    kept, plain = mutate.mutants(module)
    called = {
        f"{module}:1": {"first": 0.1},
        f"{module}:4": {"first": 0.1, "second": 0.2},
        "else:1": {"x": 1.0},
    }
    assert mutate.tests_of(kept, called) == {"first": 0.1, "second": 0.2}
    assert mutate.tests_of(plain, {}) == {}


TOOLS = [
    {"type": "function", "function": {"name": "pay", "parameters": {"required": ["to"]}}},
    {"type": "function", "function": {"name": "look", "parameters": {"required": []}}},
]


def conversation(turn: int) -> dict[str, Any]:
    """A request after so many turns of the model."""
    return {"model": "any", "tools": TOOLS, "messages": [{"role": "assistant", "content": ""}] * turn}


def test_the_server_waits_and_counts_calls_of_conversations_alone() -> None:
    with constant_model(0.2) as model:
        for asked in (conversation(0), conversation(CALLS), conversation(0) | {"tools": TOOLS[:1]}):
            with urllib.request.urlopen(f"{model.base_url}/chat/completions", json.dumps(asked).encode()):
                pass
        served = model.served()
    assert (served.calls, served.conversations) == (2, 1)
    assert served.seconds >= 0.4


def test_our_command_composes() -> None:
    (found,) = compose(list(bench.ours(64, 256).command[4:-1]))
    assert (found.executor.workers, found.limit_per_suite) == (64, 64)


def test_copied_records_are_further_epochs(tmp_path: Path) -> None:
    record = tmp_path / "model__none" / "slack" / "user_task_0" / "direct" / "injection_task_1.json"
    record.parent.mkdir(parents=True)
    record.write_text('{"epoch": 0}')
    bench.multiply_records(tmp_path, 3)
    assert sorted(path.read_text() for path in tmp_path.rglob("*.json")) == [
        f'{{"epoch": {epoch}}}' for epoch in range(3)
    ]


def test_figures_are_written_between_the_marks_of_the_page_and_nowhere_else(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{bench.BEGIN}\nold\n{bench.END}\nafter\n")
    for text in ("first figures", "second figures"):
        bench.write_tables(text, page)
    assert page.read_text() == f"before\n{bench.BEGIN}\n\nsecond figures\n\n{bench.END}\nafter\n"
    assert all(bench.README.read_text(encoding="utf-8").count(mark) == 1 for mark in (bench.BEGIN, bench.END))


SCRIPT = Path(__file__).parents[1] / ".ci" / "run"


def ci(folder: Path, make: str, budget: int = 600) -> tuple[int, list[str], str]:
    """Exit status, targets made, and output, where `make` is this shell text (`$1`: the target)."""
    program = folder / "make"
    program.write_text(f'#!/bin/sh\necho "$1" >> {folder}/made\n{make}\n')
    program.chmod(0o755)
    done = subprocess.run(
        [str(SCRIPT)],
        env={"PATH": f"{folder}:{os.environ['PATH']}", "CI_BUDGET_S": str(budget)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, (folder / "made").read_text().split(), done.stdout


def test_fast_tests_come_first_then_the_slow_ones_and_what_they_print_is_seen(tmp_path: Path) -> None:
    assert ci(tmp_path, 'echo "7 passed in 1.0s"') == (0, ["test", "test-slow"], "7 passed in 1.0s\n" * 2)


def test_failing_fast_tests_fail_at_once(tmp_path: Path) -> None:
    assert ci(tmp_path, "exit 2")[:2] == (2, ["test"])


def test_failing_slow_tests_fail_too(tmp_path: Path) -> None:
    assert ci(tmp_path, '[ "$1" = test ]')[:2] == (1, ["test", "test-slow"])


def test_without_time_left_the_slow_tests_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    status, made, output = ci(tmp_path, "true", budget=10)
    assert (status, made) == (0, ["test"])
    assert "left out" in output


def test_slow_tests_that_run_out_of_time_are_told_apart_from_failed_ones(tmp_path: Path) -> None:
    status, _, output = ci(tmp_path, 'if [ "$1" = test-slow ]; then exit 124; fi')
    assert status == 0
    assert "out of time" in output


MOST_FILES, MOST_FUNCTIONS = 98, 732


@pytest.mark.slow
def test_one_case_passes_few_files_and_functions(tmp_path: Path) -> None:
    script = Path(__file__).parents[1] / "perf/trace_case.py"
    told = subprocess.run(
        [sys.executable, script, tmp_path / "runs"], capture_output=True, text=True, check=True
    )
    files, functions = re.findall(r"^(\d+) files, (\d+) functions$", told.stdout, re.MULTILINE)[0]
    assert (int(files) <= MOST_FILES, int(functions) <= MOST_FUNCTIONS) == (True, True), told.stdout
