"""Every shipped defense, attack, model and benchmark names something that exists, and says what it is."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentsys.base.config_catalog import find_config_file, list_config_names
from agentsys.extensions import shipped_config_dirs
from agentsys.runs.instantiate import instantiate
from agentsys.runs.references import load_defense_config

DOCS = Path(__file__).parents[1] / "docs"
WITH_TARGET = sorted(
    find_config_file(group, name)
    for group in ("defense", "attack", "model", "benchmark")
    for name in list_config_names(group)
)


def short(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def target_of(path: Path) -> tuple[Any, dict[str, Any]]:
    node = yaml.safe_load(path.read_text(encoding="utf-8"))
    module, _, name = node["_target_"].rpartition(".")
    return getattr(importlib.import_module(module), name), node


@pytest.mark.parametrize("path", WITH_TARGET, ids=short)
def test_the_target_of_a_config_can_be_found_and_called(path: Path) -> None:
    target, _ = target_of(path)
    assert callable(target)


@pytest.mark.parametrize("path", [p for p in WITH_TARGET if p.parent.name == "defense"], ids=short)
def test_a_defense_config_gives_options_its_class_has_and_leaves_none_out_of_sight(path: Path) -> None:
    target, node = target_of(path)
    options = set(node) - {"_target_", "_convert_", "_recursive_", "name"}
    parameters = inspect.signature(target).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        assert options <= set(parameters)


@pytest.mark.parametrize("path", [p for p in WITH_TARGET if p.parent.name == "defense"], ids=short)
def test_a_defense_says_what_it_does_in_a_few_sentences_which_are_in_its_docs_page(path: Path) -> None:
    text = instantiate("defense", load_defense_config(path.stem)).description()
    sentences = re.findall(r"[.](?= |$)", text)
    assert 5 <= len(sentences) <= 10, text
    assert f"## {path.stem}\n\n{text}\n" in (DOCS / "defenses.md").read_text("utf-8"), (
        "print the page anew: agentsys list defenses --long --format markdown"
    )


def test_presets_that_differ_in_what_an_attacker_meets_differ_in_what_it_is_told() -> None:
    told = {}
    for name in (
        "agentsys",
        "agentsys_strict",
        "agentsys_no_validator",
        "spotlighting",
        "spotlighting_encoding",
    ):
        target, node = target_of(find_config_file("defense", name))
        told[name] = target(**{key: value for key, value in node.items() if key != "_target_"}).description()
    assert len(set(told.values())) == len(told)
    assert "undeclared keys are cut off" in told["agentsys_strict"]
    assert "keys that nobody declared included" in told["agentsys"]


@pytest.mark.parametrize(
    "path", [path for root in shipped_config_dirs() for path in root.rglob("*.yaml")], ids=short
)
def test_a_config_begins_with_a_line_that_describes_it(path: Path) -> None:
    comments = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()[:2]
        if not line.startswith("# @package")
    ]
    assert comments[0].startswith("# ")
    assert len(comments[0]) > len("# ") + 10
