"""How the house is kept: file names, sizes, docstrings."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_LINES = 450
MOST_FILES = 25
MOST_LINES_OF_A_FUNCTION = 60
NAMELESS = {"utils", "util", "common", "helpers", "helper", "misc"}


def sources(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (ROOT / room).rglob("*.py"))


PRODUCT = sources("agentsys", "baselines", "perf", "examples")


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    found = ast.walk(tree_of(path))
    return [node for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def test_files_are_short_enough_to_read() -> None:
    lengths = {short(path): len(path.read_text(encoding="utf-8").splitlines()) for path in PRODUCT}
    assert {name: n for name, n in lengths.items() if n > MOST_LINES} == {}


def test_functions_are_short_enough_to_read() -> None:
    lengths = {
        f"{short(path)}: {function.name}": (function.end_lineno or 0) - function.lineno + 1
        for path in PRODUCT
        for function in functions(path)
    }
    assert {name: n for name, n in lengths.items() if n > MOST_LINES_OF_A_FUNCTION} == {}


def test_a_folder_of_the_package_can_be_read_as_a_list() -> None:
    folders = Counter(short(path.parent) for path in sources("agentsys", "baselines"))
    assert {name: n for name, n in folders.items() if n > MOST_FILES} == {}


def test_a_class_name_stands_for_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in sources("agentsys", "baselines"):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(short(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_no_file_or_folder_has_a_name_that_says_nothing() -> None:
    found = [*sources("agentsys", "baselines", "perf", "examples", "tests"), *(ROOT / "agentsys").rglob("*/")]
    assert [short(path) for path in found if path.stem in NAMELESS] == []


def test_test_files_have_names_of_their_own() -> None:
    # Without __init__.py two files of one name would be one module to pytest.
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert sorted({name for name in names if names.count(name) > 1}) == []
