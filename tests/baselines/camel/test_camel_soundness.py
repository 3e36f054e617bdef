"""CaMeL's language: nothing leaves it, and no value that came from a tool is ever trusted or public."""

from __future__ import annotations

import builtins
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from copy import copy
from functools import partial
from typing import Any

import pytest
from programs_for_camel import ToolsOf, machine_with
from random_camel_programs import OTHERS, READERS, RESULTS, Writer

from baselines.camel.language.functions import CLASSES, PROVIDED_FUNCTIONS
from baselines.camel.language.interpreter import run_program
from baselines.camel.language.machine import Machine, ProgramBounds, ProgramError, ToolValue
from baselines.flow.labelled_values import FROM_USER, Dictionary, Series, Value, label_from_tool, to_native

RANDOM_PROGRAMS = int(os.environ.get("AGENTSYS_RANDOM_PROGRAMS", "120"))
"""Programs in each mode. 10,000 take a few minutes."""


def run(program: str, results: Mapping[str, Any], strict: bool) -> dict[str, Value]:
    """The names of a program where its tools return these."""
    told = {name: (raw, label_from_tool(name, (), READERS[name])) for name, raw in results.items()}
    tools = {name: ToolValue(FROM_USER, name, ()) for name in results}
    machine = Machine(ToolsOf(told), {**PROVIDED_FUNCTIONS, **CLASSES, **tools}, strict)
    run_program(program, machine)
    return machine.names


def differing(one: Value, other: Value) -> Iterator[tuple[Value, Value]]:
    """The smallest parts of two values that are not the same."""
    if isinstance(one, Series) and isinstance(other, Series) and len(one.items) == len(other.items):
        for pair in zip(one.items, other.items, strict=True):
            yield from differing(*pair)
    elif (
        isinstance(one, Dictionary)
        and isinstance(other, Dictionary)
        and len(one.entries) == len(other.entries)
    ):
        for entries in zip(one.entries.values(), other.entries.values(), strict=True):
            for pair in zip(*entries, strict=True):
                yield from differing(*pair)
    elif to_native(one) != to_native(other):
        yield one, other


def check(seed: int, strict: bool, seen: Counter[str]) -> None:
    """A program's values are Python's, and what another result of a tool changes is labelled with that tool.

    In one of the two runs: that a branch was not taken leaves no trace on what it would have changed. Where
    branches do not count at all, programs have none.
    """
    program = Writer(seed, branches=strict).program()
    expected: dict[str, Any] = {name: partial(copy, raw) for name, raw in RESULTS.items()}
    try:
        names = run(program, RESULTS, strict)
    except ProgramError as caught:
        seen["failed"] += 1
        if isinstance(kind := getattr(builtins, caught.kind, None), type):
            with pytest.raises(kind):
                exec(program, expected)
        return
    exec(program, expected)
    assert all(to_native(value) == expected[name] for name, value in names.items()), program
    seen["trusted"] += sum(value.full.is_trusted for value in names.values())
    for tool, results in OTHERS.items():
        for result in results:
            try:
                others = run(program, {**RESULTS, tool: result}, strict)
            except ProgramError:
                continue
            for name in names.keys() & others.keys():
                for pair in differing(names[name], others[name]):
                    seen["changed"] += 1
                    labels = [part.full for part in pair if not part.full.is_trusted]
                    assert any(
                        label.readers is not None and label.readers <= set(READERS[tool]) for label in labels
                    ), (program, name, tool)


@pytest.mark.parametrize("strict", [False, True])
def test_whatever_a_tools_result_has_a_part_in_is_labelled_with_the_tool(strict: bool) -> None:
    seen: Counter[str] = Counter()
    for seed in range(RANDOM_PROGRAMS):
        check(seed, strict, seen)
    # The programs are worth something: most run, and both kinds of values are plenty.
    assert seen["failed"] < RANDOM_PROGRAMS / 2
    assert min(seen["changed"], 2 * seen["trusted"]) > RANDOM_PROGRAMS


def test_a_label_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "join", lambda self, value, label: value)
    with pytest.raises(AssertionError):
        for seed in range(RANDOM_PROGRAMS):
            check(seed, False, Counter())


OBJECTS = """
().__class__
().__class__.__bases__[0].__subclasses__()
"".__class__.__mro__[1].__subclasses__()
{}.__class__.__mro__
(1).__class__
True.__class__.__base__
str.__class__
str.__subclasses__()
str.mro()
type("X", (), {})
type.mro(str)
len.__self__.__import__("os")
print.__globals__
tool.__globals__
tool.__code__
tool().__class__
data().get.__self__
[].append(1)
{1}.add(2)
"".__reduce__()
BaseModel.__subclasses__()
BaseModel.parse_file("/etc/passwd")
BaseModel.model_construct(a=1)
BaseModel().__class__
ValueError("x").args
ValueError.__subclasses__()
ValueError.mro()
Enum("X", "a b")
datetime.now()
datetime.utcnow()
datetime(2024, 1, 1).__class__
datetime(2024, 1, 1).__reduce__()
datetime(2024, 1, 1).tzinfo.__class__
FieldInfo(default_factory=print)
""".strip().splitlines()
"""Ways from an object to Python's machinery."""

FORMATS = """
"{0.__class__}".format(1)
"{!r:{}}".format("a", "10")
"{:>1000000000}".format(1)
f"{1:1000000000}"
f"{1:{10**9}}"
f"{'a':{'x' * 500}}"
f"{[1]:>10}"
datetime(2024, 1, 1).strftime("%1000000000d")
datetime.strptime("1" * 100000, "%Y")
datetime.fromisoformat("1" * 100000)
"%s" % "a"
"%(a)s" % {"a": 1}
""".strip().splitlines()
"""Format strings as a way out, or as a bomb."""

BUILTINS = """
eval("1")
exec("1")
open("/etc/passwd")
globals()
getattr("", "upper")
setattr("", "x", 1)
object()
next([1])
breakpoint()
dict(a=1)
__builtins__
__builtins__["eval"]
os.system("id")
print(file=1)
sorted([1], key=open)
max([1], key=print)
""".strip().splitlines()
"""Names that Python has and programs have not."""

STATEMENTS = [
    "import os",
    "from os import system",
    "while True:\n    pass",
    "for x in [1]:\n    break",
    "for x in [1]:\n    continue",
    "for x in [1]:\n    pass\nelse:\n    pass",
    "def f():\n    return 1",
    "async def f():\n    pass",
    "f = lambda: 1",
    "return 1",
    "yield 1",
    "await tool()",
    "try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass",
    "try:\n    1 / 0\nexcept* ValueError:\n    pass",
    "with open('x') as f:\n    pass",
    "assert True",
    "del x",
    "global x",
    "nonlocal x",
    "match 1:\n    case 1:\n        pass",
    "@print\nclass A(BaseModel):\n    a: int",
    "(x for x in [1])",
    "[1, 2, 3][0:2]",
    "1 < 2 < 3",
    "b'bytes'",
    "1j",
    "...",
    "a, *b = [1, 2, 3]",
    "*[1]",
    "1 @ 2",
    "x = 1\nx @= 2",
    "[x async for x in [1]]",
    "tool = print",
    "[tool for tool in [1]]",
    "(len := 1)",
    "len += 1",
    "print.x = 1",
    "data().x = 1",
    "[1][0] = 2",
    "x = 'abc'\nx[0] = 'y'",
    "raise",
    "raise SystemExit",
    "raise 1",
    "raise ValueError('x', 'y')",
    "x: int = y",
]
"""Statements and expressions that the language does not have, and assignments that may not be."""

CLASS_STATEMENTS = [
    "class A(BaseModel):\n    a: int = 1",
    "class A(BaseModel):\n    a: print('x')",
    "class A(BaseModel):\n    a: list[print('x')]",
    "class A(BaseModel):\n    a: dict[str]",
    "class A(BaseModel):\n    a: print",
    "class A(BaseModel):\n    a: object",
    "class A(BaseModel):\n    a: Literal[tool()]",
    "class A(BaseModel):\n    __init__: str",
    "class print(BaseModel):\n    a: int",
    "class A(BaseModel):\n    a: int\nclass A(BaseModel):\n    a: int",
    "class A(BaseModel):\n    a: int\nA(1)",
    "class A(BaseModel):\n    a: int\nA(a='x')",
    "class A(BaseModel):\n    a: int\nA(a=1).__class__",
]
"""Classes as a way to run code: bases, decorators, annotations, fields with a meaning."""

BOMBS = [
    "9 ** 9 ** 9",
    "1 << 1000000000",
    "x = 3\nfor i in range(100):\n    x = x * x",
    "x = 3\nfor i in range(100):\n    x **= 2",
    "int('9' * 100000)",
    "9" * 5000,
    "'a' * 10 ** 9",
    "[1] * 10 ** 9",
    "'a' * 10 ** 6 + 'b'",
    "x = 'a'\nfor i in range(100):\n    x = x + x",
    "x = [1]\nfor i in range(100):\n    x = x + x",
    "x = [1]\nfor i in range(20):\n    x = [x] * 10\nprint(x)",
    "x = {}\nfor i in range(10000):\n    x[i] = x",
    "x = [0]\nfor i in range(10000):\n    x[0] = x",
    "range(10 ** 9)",
    "range(10 ** 400)",
    "[[i for i in range(1000)] for j in range(1000)]",
    "for a in range(1000):\n    for b in range(1000):\n        pass",
    "enumerate('a' * 900000)",
    "list('a' * 900000)",
    "zip('a' * 900000, 'b' * 900000)",
    "reversed('a' * 900000)",
    "('a,' * 400000).split(',')",
    "'a'.ljust(10 ** 9)",
    "'\\t'.expandtabs(10 ** 9)",
    "('a' * 1000).replace('a', 'b' * 10000)",
    "('a' * 10000).join(['b'] * 1000)",
    "'{}{}{}'.format('a' * 500000, 'a' * 500000, 'a' * 500000)",
    "repr('\\n' * 900000)",
    "x = '\\n' * 900000\nprint([x])\nprint([x])\nprint([x])\nprint([x])\nprint([x])\nprint([x])\nprint([x])",
    "for i in range(1000):\n    print('a' * 100000)",
    "timedelta(days=10 ** 18)",
    "datetime(10 ** 9, 1, 1)",
    "datetime(2024, 1, 1) + timedelta(days=10 ** 8)",
    "divmod(1, 0)",
    "1.0 / 0",
    "2.0 ** 100000",
    "(-8) ** 0.5",
    "int('a', 99)",
    "int(float('inf'))",
    "(" * 100 + "1" + ")" * 100 + " +" * 200 + " 1",
    "-" * 5000 + "1",
    "x = [" + "1, " * 30000 + "]",
    "".join(f"class A{n}(BaseModel):\n    a: int\n" for n in range(60)),
    "print(1",
    "x = = 1",
    "\x00",
    "x = 1\n  y = 2",
    "'unterminated",
]
"""Programs that want too much, or are no programs."""

PROGRAMS = [*OBJECTS, *FORMATS, *BUILTINS, *STATEMENTS, *CLASS_STATEMENTS, *BOMBS]


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
