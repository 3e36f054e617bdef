"""scripts/mutate.py: what it breaks, and that a break which a test notices does not survive."""

from __future__ import annotations

import ast
from pathlib import Path

import mutate
import pytest


@pytest.mark.parametrize(
    ("written", "broken"),
    [
        ("return x == 1 and not y", "return x != 1 and (not y)"),
        ("return x and y", "return x or y"),
        ("return not x", "return x"),
        ("if x:\n        return 1\n    return 2", "if not x:\n        return 1\n    return 2"),
        ("return [y for y in x if y]", "return [y for y in x if not y]"),
        ("return True", "return False"),
        ("return None", "return 'mutant'"),
        ("return x + 1", "return x - 1"),
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
    assert found == [
        ("f", 1),
        ("C.method", 8),
    ]


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
