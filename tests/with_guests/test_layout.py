"""How the house is kept: sizes; a module and a class are one thing in the whole tree; names that name something."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from parsed_sources import list_nodes, list_product_files, list_test_files, parse_source

ROOT = Path(__file__).parents[2]
MOST_LINES = 450
MOST_FILES = 25
MOST_LINES_OF_A_FUNCTION = 60
OF_A_PLUG_IN = {"__init__", "__main__", "defense", "prompts"}
"""Module names that each plug-in may have once."""
NAMES_NOTHING = {
    *("asked", "books", "border", "common", "crew", "crowd", "desk", "done", "door", "doorkeeper"),
    *("drawn", "either", "filled", "found", "front", "given", "got", "hand", "hands", "heard", "held"),
    *("helper", "helpers", "kept", "known", "left", "looked", "looked_at", "luck", "made", "manners"),
    *("misc", "noted", "oddities", "place", "read_out", "room", "said", "seat", "seats", "seen", "shown"),
    *("staff", "stuff", "taken", "thing", "things", "told", "utils", "written"),
}
"""Bare participles, metaphors of people and buildings, and words that could mean anything."""


PACKAGED = list_product_files()
PRODUCT = [*PACKAGED, *list_product_files(folders=("perf", "examples"))]


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in list_nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


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
    folders = Counter(short(path.parent) for path in PACKAGED)
    assert {name: n for name, n in folders.items() if n > MOST_FILES} == {}


def twice(pairs: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Name -> the files that have it, of names that several files have."""
    homes: dict[str, set[str]] = defaultdict(set)
    for file, name in pairs:
        homes[name].add(file)
    return {name: sorted(files) for name, files in homes.items() if len(files) > 1}


def test_no_module_name_means_two_things() -> None:
    modules = (path for path in PACKAGED if path.stem not in OF_A_PLUG_IN)
    assert twice((short(path), path.stem) for path in modules) == {}


def test_no_public_class_name_means_two_things() -> None:
    classes = (
        (short(path), node.name)
        for path in PACKAGED
        for node in parse_source(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert twice(classes) == {}


def test_nothing_is_named_by_a_word_that_names_nothing() -> None:
    named = [
        f"{short(path)}: {node.name}"
        for path in PACKAGED
        for node in list_nodes(path)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.strip("_").lower() in NAMES_NOTHING
    ]
    files = [*PRODUCT, *list_test_files(), *{path.parent for path in PACKAGED}]
    assert named + [short(path) for path in files if path.stem in NAMES_NOTHING] == []


def test_the_root_of_the_package_holds_eight_modules_at_most() -> None:
    assert len(list((ROOT / "agentsys").glob("*.py"))) <= 8


def test_test_files_have_names_of_their_own() -> None:
    # Without __init__.py two files of one name would be one module to pytest.
    names = [path.name for path in list_test_files() if path.name != "conftest.py"]
    assert sorted({name for name in names if names.count(name) > 1}) == []
