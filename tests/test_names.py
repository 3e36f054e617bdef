"""Names: a module and a class are one thing in the whole tree, and no name is a word that names nothing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = sorted(path for package in ("agentsys", "baselines") for path in (ROOT / package).rglob("*.py"))
OF_A_PLUG_IN = {"__init__", "__main__", "defense", "prompts"}
"""Module names that each plug-in may have once."""
NAMES_NOTHING = {
    "asked",
    "books",
    "border",
    "common",
    "crew",
    "crowd",
    "desk",
    "done",
    "door",
    "doorkeeper",
    "drawn",
    "either",
    "filled",
    "found",
    "front",
    "given",
    "got",
    "hand",
    "hands",
    "heard",
    "held",
    "helper",
    "helpers",
    "kept",
    "known",
    "left",
    "looked",
    "looked_at",
    "luck",
    "made",
    "manners",
    "misc",
    "noted",
    "oddities",
    "place",
    "read_out",
    "room",
    "said",
    "seat",
    "seats",
    "seen",
    "shown",
    "staff",
    "stuff",
    "taken",
    "thing",
    "things",
    "told",
    "utils",
    "written",
}
"""Bare participles, metaphors of people and buildings, and words that could mean anything."""


def definitions() -> Iterator[tuple[str, str]]:
    """(file, name) of every class, function and method."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield path.relative_to(ROOT).as_posix(), node.name


def twice(pairs: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """Name -> the files that have it, of names that several files have."""
    homes: dict[str, set[str]] = defaultdict(set)
    for file, name in pairs:
        homes[name].add(file)
    return {name: sorted(files) for name, files in homes.items() if len(files) > 1}


def test_no_module_name_means_two_things() -> None:
    assert twice((p.as_posix(), p.stem) for p in FILES if p.stem not in OF_A_PLUG_IN) == {}


def test_no_public_class_name_means_two_things() -> None:
    classes = (
        (path.as_posix(), node.name)
        for path in FILES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert twice(classes) == {}


def test_nothing_is_named_by_a_word_that_names_nothing() -> None:
    named = {(file, name) for file, name in definitions() if name.strip("_").lower() in NAMES_NOTHING}
    named |= {(path.name, path.stem) for path in FILES if path.stem in NAMES_NOTHING}
    assert sorted(named) == []


def test_the_root_of_the_package_holds_eight_modules_at_most() -> None:
    assert len(list((ROOT / "agentsys").glob("*.py"))) <= 8
