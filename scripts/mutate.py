"""Breaks the main decision of every public function once and says which breaks no test notices.

    .venv/bin/python scripts/mutate.py records rescoring
    .venv/bin/python scripts/mutate.py metrics --only best_attack --seconds 60

One mutant per public function or method: the first of its comparisons turned round, `and` for `or`, a `not`
taken away, a condition negated, a returned constant changed, 1 added where 1 was taken off, an argument left
out, or what it returns replaced by None; whichever of these comes first in this order. Nothing is written to
the sources: a mutant lives in the memory of a forked process, which runs the tests that call its function,
the quickest first, until one fails. Those tests are found by running the room's tests once under a profiler.

Survivors are printed with the line they changed, and the exit code is 1 if there are any. A survivor that is
no other program is listed in scripts/equivalent_mutants.toml with the reason, and not counted. Tests that
start processes of their own see the sources as they are. Needs a system that can fork.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import importlib.machinery
import json
import os
import signal
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
EQUIVALENT = Path(__file__).with_name("equivalent_mutants.toml")
ROOMS = {
    "records": ("agentsys/records", ["tests/records", "tests/analysis/tables/test_provenance.py"]),
    "rescoring": ("agentsys_plugins/audit/rescoring", ["tests/audit/rescoring"]),
    "statistics": ("agentsys/analysis/statistics", ["tests/analysis/statistics", "tests/analysis/metrics"]),
    "metrics": (
        "agentsys/analysis/metrics",
        ["tests/analysis/metrics", "tests/analysis/tables", "tests/test_own_plugins.py"],
    ),
    "defense": ("agentsys/defense", ["tests/defense"]),
}
"""Room -> its folder, and the tests that mirror it."""
PRELOADED = [
    "agentdojo.agent_pipeline",
    "agentdojo.attacks",
    "agentdojo.task_suite.load_suites",
    "hydra",
    "omegaconf",
]
PRELOADED += [
    "hypothesis",
    "pandas",
    "pytest",
    "rich.console",
    "scipy.stats",
    "typer.testing",
]
"""Other people's packages, loaded once; ours are loaded by each mutant, with its change in it."""
NOT_SLOW = ("-p", "no:cacheprovider", "-x", "-q", "-m", "not slow and not live")


class Mutant(NamedTuple):
    """One changed function."""

    path: Path
    function: str
    """Its name in the module, e.g. `Settled.counted`."""
    line: int
    """Line of the function's `def` (of its first decorator), as code objects have it."""
    change: str
    """Before and after, in a line."""
    tree: ast.Module
    """The module with the change."""
    cached: bool
    """Whether the function keeps its answers: only the first test that asks calls it."""

    @property
    def name(self) -> str:
        """What `equivalent_mutants.toml` calls it."""
        module = ".".join(self.path.relative_to(ROOT).with_suffix("").parts)
        return f"{module}.{self.function}"


# --- what is changed -----------------------------------------------------------------------------------

_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def turned_comparison(node: ast.AST) -> ast.AST | None:
    """The opposite of a comparison."""
    if not isinstance(node, ast.Compare):
        return None
    node.ops[0] = _TURNED[type(node.ops[0])]()
    return node


def other_operator(node: ast.AST) -> ast.AST | None:
    """`or` for `and`, and the other way round."""
    if not isinstance(node, ast.BoolOp):
        return None
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    return node


def without_not(node: ast.AST) -> ast.AST | None:
    """`not x` as `x`."""
    return node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) else None


def negated_condition(node: ast.AST) -> ast.AST | None:
    """`if x` as `if not x`, in statements, expressions and comprehensions."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        node.test = ast.UnaryOp(ast.Not(), node.test)
        return node
    if isinstance(node, ast.comprehension) and node.ifs:
        node.ifs[0] = ast.UnaryOp(ast.Not(), node.ifs[0])
        return node
    return None


def other_constant(node: ast.AST) -> ast.AST | None:
    """A returned constant as another one."""
    if not isinstance(node, ast.Return) or not isinstance(node.value, ast.Constant):
        return None
    value = node.value.value
    other = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else None
    node.value = ast.Constant("mutant" if value is None else other)
    return node


def one_more(node: ast.AST) -> ast.AST | None:
    """`+` for `-`, and the other way round."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub):
        return None
    node.op = ast.Sub() if isinstance(node.op, ast.Add) else ast.Add()
    return node


def argument_dropped(node: ast.AST) -> ast.AST | None:
    """A call without its last argument, where it has several."""
    if not isinstance(node, ast.Call) or len(node.args) + len(node.keywords) < 2:
        return None
    (node.keywords or node.args).pop()
    return node


def nothing_returned(node: ast.AST) -> ast.AST | None:
    """None in place of what is returned."""
    if not isinstance(node, ast.Return) or node.value is None:
        return None
    node.value = ast.Constant(None)
    return node


Change = Callable[[ast.AST], "ast.AST | None"]
CHANGES: tuple[Change, ...] = (
    turned_comparison,
    other_operator,
    without_not,
    negated_condition,
    other_constant,
    one_more,
    argument_dropped,
    nothing_returned,
)
"""In the order of preference."""


class _Once(ast.NodeTransformer):
    """Applies one kind of change to the first node that it fits."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.before = self.after = ""

    def visit(self, node: ast.AST) -> ast.AST:
        # An assertion tells mypy what is so; a docstring decides nothing.
        if self.after or isinstance(node, ast.Assert):
            return node
        before = ast.unparse(node)
        changed = self.change(node)
        if changed is None:
            return self.generic_visit(node)
        self.before, self.after = before, ast.unparse(changed)
        return changed


def mutants(path: Path) -> Iterator[Mutant]:
    """One mutant for each public function of a module that has anything to change."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for name, place in _public(tree):
        for change in CHANGES:
            changed = copy.deepcopy(tree)
            function = _at(changed, place)
            once = _Once(change)
            once.visit(function)
            if once.after:
                line = min([function.lineno, *(mark.lineno for mark in function.decorator_list)])
                told = f"{_short(once.before)}  ->  {_short(once.after)}"
                cached = any("cache" in ast.unparse(mark) for mark in function.decorator_list)
                yield Mutant(path, name, line, told, ast.fix_missing_locations(changed), cached)
                break


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _public(tree: ast.Module) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Public functions and methods: name, and place in the tree's bodies."""
    for at, node in enumerate(tree.body):
        if isinstance(node, Function) and not node.name.startswith("_"):
            yield node.name, (at,)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for within, method in enumerate(node.body):
                if isinstance(method, Function) and _is_public_method(method):
                    yield f"{node.name}.{method.name}", (at, within)


def _is_public_method(method: Function) -> bool:
    written = [statement for statement in method.body if not isinstance(statement, ast.Expr | ast.Pass)]
    dunder = method.name.startswith("__") and method.name != "__init__"
    return bool(written) and (dunder or not method.name.startswith("_"))


def _at(tree: ast.Module, place: Sequence[int]) -> Function:
    node: Any = tree
    for at in place:
        node = node.body[at]
    assert isinstance(node, Function)
    return node


def _short(source: str) -> str:
    line = " ".join(source.split())
    return line if len(line) <= 90 else f"{line[:87]}..."


# --- who notices ---------------------------------------------------------------------------------------


class Called:
    """A pytest plugin that keeps which functions of a folder each test calls, and how long it takes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.tests: dict[str, dict[str, float]] = defaultdict(dict)
        self._met: set[CodeType] = set()
        self._keys: dict[CodeType, str | None] = {}

    def pytest_runtest_logstart(self) -> None:
        """Begin to watch a test."""
        self._met = set()
        self._started = time.perf_counter()
        sys.setprofile(self._profile)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Keep what a test called."""
        sys.setprofile(None)
        seconds = time.perf_counter() - self._started
        for code in self._met:
            if (key := self._key(code)) is not None:
                self.tests[key][nodeid] = seconds

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._met.add(frame.f_code)

    def _key(self, code: CodeType) -> str | None:
        if code not in self._keys:
            inside = code.co_filename.startswith(self.folder)
            self._keys[code] = f"{code.co_filename}:{code.co_firstlineno}" if inside else None
        return self._keys[code]


def calls_of_tests(folder: Path, tests: Sequence[str]) -> dict[str, dict[str, float]]:
    """`file:line` of a function -> test that calls it -> seconds, by running the tests once."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as kept:

        def run() -> int:
            called = Called(str(folder))
            code = _pytest([*tests, *NOT_SLOW], [called])
            Path(kept.name).write_text(json.dumps(called.tests), encoding="utf-8")
            return code

        if _forked(run, seconds=3600) != 0:
            raise SystemExit(f"The tests of {folder} fail as they are: {' '.join(tests)}")
        found: dict[str, dict[str, float]] = json.load(kept)
    return found


def tests_of(mutant: Mutant, called: dict[str, dict[str, float]]) -> dict[str, float]:
    """Test -> seconds, of those that call a mutant's function; if that keeps answers, any of its module's."""
    if not mutant.cached:
        return called.get(f"{mutant.path}:{mutant.line}", {})
    near = [tests for key, tests in called.items() if key.rpartition(":")[0] == str(mutant.path)]
    return {test: seconds for tests in near for test, seconds in tests.items()}


def survives(mutant: Mutant, tests: dict[str, float], seconds: float) -> bool:
    """Whether all tests pass on a mutant; one that takes too long does not survive."""
    quickest = sorted(tests, key=lambda test: tests[test])

    def run() -> int:
        _load_changed(mutant)
        return _pytest([*quickest, *NOT_SLOW], [])

    return not tests or _forked(run, seconds) == 0


def _load_changed(mutant: Mutant) -> None:
    """Lets this process import the mutant in place of its module."""
    loader = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: Any, fullname: str) -> CodeType | None:
        if self.path == str(mutant.path):
            return compile(mutant.tree, self.path, "exec", dont_inherit=True)
        return original(self, fullname)

    loader.get_code = get_code  # type: ignore[method-assign]


def _pytest(arguments: Sequence[str], plugins: list[object]) -> int:
    import pytest

    with tempfile.TemporaryDirectory() as place:
        os.environ["XDG_CACHE_HOME"] = f"{place}/cache"
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plugins of other packages take a second to load
        return int(pytest.main([*arguments, f"--basetemp={place}/tests"], plugins))


def _forked(run: Callable[[], int], seconds: float) -> int:
    """The exit code of a function that runs in a process of its own; -1 if it takes too long."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os._exit(_code_of(run))
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


def _code_of(run: Callable[[], int]) -> int:
    try:
        return run()
    except BaseException:  # noqa: BLE001 - a mutant that cannot be loaded has been noticed
        return 99


# --- the command ---------------------------------------------------------------------------------------


def main() -> int:
    wanted = _arguments()
    if os.environ.get("PYTHONHASHSEED") != "0":  # AgentDojo's tools list sets; a mutant must not hide in it
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    os.chdir(ROOT)
    sys.path[:0] = [str(ROOT)]
    for name in PRELOADED:
        importlib.import_module(name)
    excused = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")) if EQUIVALENT.exists() else {}
    alive = sum(_room(room, wanted, excused) for room in wanted.rooms)
    print(f"{alive} surviving mutants")
    return 1 if alive else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rooms", nargs="+", choices=sorted(ROOMS))
    parser.add_argument("--only", nargs="+", default=[""], help="mutants whose name contains one of these")
    parser.add_argument("--seconds", type=float, default=120, help="time limit of a mutant")
    return parser.parse_args()


def _room(room: str, wanted: argparse.Namespace, excused: dict[str, str]) -> int:
    folder, tests = ROOMS[room]
    called = calls_of_tests(ROOT / folder, tests)
    alive = total = 0
    for mutant in (one for path in sorted((ROOT / folder).rglob("*.py")) for one in mutants(path)):
        if not any(part in mutant.name for part in wanted.only):
            continue
        total += 1
        if survives(mutant, tests_of(mutant, called), wanted.seconds):
            alive += mutant.name not in excused
            why = excused.get(mutant.name, "no test notices")
            print(
                f"{mutant.path.relative_to(ROOT)}:{mutant.line} {mutant.function}: {mutant.change}  [{why}]"
            )
            sys.stdout.flush()
    print(f"{room}: {total} mutants, {alive} survive")
    return alive


if __name__ == "__main__":
    raise SystemExit(main())
