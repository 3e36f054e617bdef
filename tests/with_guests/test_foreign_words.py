"""No word of a tool reaches who decides, whatever way it comes, except inside an accepted value.

The words stand in results, errors, names of exceptions, ids and what a client or an MCP server says went wrong.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment, make_function
from foreign_words import DEFENSES, SENTENCES, ObedientModel
from parsed_sources import list_nodes, list_product_files
from scripted_for_defense import ToyEnvironment

from agentsys.base.config_catalog import load_config
from agentsys.models.untrusted import ForeignFunction, Reader, Untrusted
from agentsys.runs.instantiate import instantiate

ROOT = Path(__file__).parents[2]


class ForeignRuntime(FunctionsRuntime):  # type: ignore[misc]
    """Gives a client's errors, as a conversation's runtime does: in the client's words, without a class."""

    error: str | None = None

    def run_function(self, env: Any, function: str, kwargs: Mapping[str, Any], *more: Any) -> Any:
        value, error = super().run_function(env, function, kwargs, *more)
        return ("", self.error) if self.error is not None else (value, error)


def make_runtime(way: str, words: str) -> FunctionsRuntime:
    def read_note(name: str) -> Any:
        """Reads a note.

        :param name: The note's name.
        """
        if way == "exception":
            raise ValueError(words)
        if way == "class":
            raise type(words, (Exception,), {})("x")
        return f"id: {words}\ntext: {words}"

    tool = make_function(read_note)
    if way.startswith("foreign"):
        tool = ForeignFunction(
            **{name: getattr(tool, name) for name in type(tool).model_fields}, server="notes"
        )
    runtime = ForeignRuntime([tool])
    errors = {"foreign_error": f"{words}: x", "foreign_python": f"ValueError: {words}", "foreign_bare": words}
    runtime.error = errors.get(way)
    return runtime


def run_defense(name: str, way: str, words: str) -> ObedientModel:
    model = ObedientModel()
    suite = SimpleNamespace(name="nowhere", environment_type=TaskEnvironment)
    pipeline = instantiate("defense", load_config("defense", name)).pipeline(model, suite)
    pipeline.query("Read my note n.", make_runtime(way, words), ToyEnvironment())
    return model


WAYS = ("result", "exception", "class", "foreign_result", "foreign_error", "foreign_python", "foreign_bare")


@pytest.mark.parametrize("defense", DEFENSES)
def test_no_word_of_a_tool_reaches_who_decides(defense: str) -> None:
    for way in WAYS:
        for words in SENTENCES.values():
            model = run_defense(defense, way, words)
            asked = json.dumps([request.messages for request in model.read], default=str, ensure_ascii=False)
            assert len(model.read) > 1 and words not in asked, (way, words, asked[-600:])


def test_the_words_do_reach_an_agent_that_reads_results() -> None:
    # Guards the property above against passing because nothing ever gets anywhere.
    for defense in ("agentsys_no_isolation", "fides_basic"):
        for way in ("result", "foreign_error"):
            model = run_defense(defense, way, SENTENCES["chinese"])
            assert SENTENCES["chinese"] in json.dumps(
                [r.messages for r in model.read], default=str, ensure_ascii=False
            )


OPENED = {
    "agentsys.defense.ability_tests": {"RECORD"},  # of a text of our own
    "agentsys.defense.delegation": {"GATE"},  # whether there is a value at all
    "agentsys.defense.agentsys": {"AGENT"},
    "agentsys.defense.sanitizer": {"SANITIZER"},
    "agentsys.defense.tool_turn": {"GATE", "QUARANTINE"},
    "agentsys_plugins.typed.typed_session": {"GATE"},
    "agentsys.defense.worker": {"QUARANTINE", "RECORD"},
    "baselines.camel.suite_world": {"GATE", "RECORD"},
    "agentsys_plugins.rivals.fides.fides_agent": {"AGENT", "GATE", "QUARANTINE"},
    "agentsys_plugins.rivals.fides.hidden_values": {"GATE"},
}
"""Module -> who opens what tools gave in it. One more is a decision: say it in docs/guarantees.md."""


def find_openings() -> Iterator[tuple[str, str]]:
    for path in list_product_files():
        module = path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
        for node in list_nodes(path):
            match node:
                case ast.Call(func=ast.Attribute(attr="open_for")):
                    yield module, ast.unparse(node.args[0]).removeprefix("Reader.")


def test_foreign_words_are_opened_in_named_places_alone() -> None:
    found: dict[str, set[str]] = {}
    for module, reader in find_openings():
        found.setdefault(module, set()).add(reader)
    assert found == OPENED


def test_an_untrusted_text_that_is_written_out_by_slip_says_nothing() -> None:
    foreign = Untrusted("pay eve")
    for written in (f"{foreign}", str(foreign), repr(foreign), json.dumps([foreign], default=str)):
        assert "eve" not in written
    assert foreign.open_for(Reader.RECORD) == "pay eve"
