"""Threads that parse at once get what each would get alone, in our code and in the executor of calls."""

from __future__ import annotations

import ast
import gc
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, make_function
from parsed_sources import list_product_files

from agentsys.base.python_parser import literal_eval, parse_expression, parse_module
from agentsys.models.chat import assistant
from agentsys.models.pipeline_elements import ToolsElement

ROOT = Path(__file__).parents[1]
TEXT = "[" * 40 + "1" + "]" * 40
ROUNDS = 20


@pytest.fixture
def others_run_while_a_tree_is_built() -> Iterator[None]:
    """Each of Python's many collections lets another thread run, which in a run one may do now and then."""

    def let_others(*_: object) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(let_others)
    gc.set_threshold(5, 1_000, 1_000)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(let_others)


def at_once(work: Callable[[], object]) -> set[str]:
    """What eight threads get, each many times."""
    gate = threading.Barrier(8)

    def many() -> set[str]:
        gate.wait(60)
        return {str(work()) for _ in range(ROUNDS)}

    with ThreadPoolExecutor(8) as pool:
        return set().union(*(done.result() for done in [pool.submit(many) for _ in range(8)]))


def note() -> str:
    """Note nothing."""
    return "noted"


RUNTIME = FunctionsRuntime([make_function(note)])


def run_tool() -> object:
    """What the executor makes of a call, of which it parses every argument."""
    call = FunctionCall(function="note", args={f"text_{number}": TEXT for number in range(8)}, id="1")
    messages = ToolsElement().query("", RUNTIME, messages=[assistant(None, [call])])[3]
    return messages[-1]["content"][0]["content"]


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (lambda: literal_eval(TEXT), TEXT),
        (lambda: ast.unparse(parse_module(TEXT)), TEXT),
        (lambda: ast.unparse(parse_expression(TEXT)), TEXT),
        (run_tool, "noted"),
    ],
)
def test_threads_at_once_read_what_one_reads(
    others_run_while_a_tree_is_built: None, work: Callable[[], object], expected: str
) -> None:
    assert at_once(work) == {expected}


def test_a_tool_and_a_formatter_that_take_long_keep_nobody_from_parsing() -> None:
    met = threading.Barrier(2)

    def wait(seconds: int) -> str:
        """Wait.

        :param seconds: How long.
        """
        met.wait(10)
        return "done"

    def written(value: object) -> str:
        met.wait(10)
        return str(value)

    call = FunctionCall(function="wait", args={"seconds": 1}, id="1")
    element, runtime = ToolsElement(written), FunctionsRuntime([make_function(wait)])

    def run() -> str:
        messages = element.query("", runtime, messages=[assistant(None, [call])])[3]
        return str(messages[-1]["content"][0]["content"])

    with ThreadPoolExecutor(2) as pool:  # each waits in its tool, then in its formatter, for the other
        assert [done.result() for done in (pool.submit(run), pool.submit(run))] == ["done"] * 2


def test_an_argument_that_takes_an_age_to_parse_stays_a_text() -> None:
    seen: list[object] = []

    def pay(to: str) -> str:
        """Pay.

        :param to: Whom.
        """
        seen.append(to)
        return "paid"

    hostile = "[" + "1," * 3_000_000 + "]"
    calls = [FunctionCall(function="pay", args={"to": text}, id="1") for text in (hostile, "[1")]
    started = time.perf_counter()
    results = ToolsElement().query(
        "", FunctionsRuntime([make_function(pay)]), messages=[assistant(None, calls)]
    )
    assert time.perf_counter() - started < 5  # 20 s where it is parsed.
    assert seen == [hostile, "[1"] and len(results[3]) == 3


def test_nobody_of_ours_parses_past_the_lock() -> None:
    parses = re.compile(r"\bast\.(?:parse|literal_eval)\b|\bfrom ast import|import .*\bis_string_list\b")
    past = [
        str(path.relative_to(ROOT))
        for path in list_product_files()
        if path.name != "python_parser.py" and parses.search(path.read_text(encoding="utf-8"))
    ]
    assert past == ["agentsys/models/prompted_tools.py"], "which evaluates a tree that was parsed before"
