"""Whatever a tool gives, a defense comes to its end: no value is too deep, too large or too odd for a pipeline."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionsRuntime, TaskEnvironment, make_function
from foreign_words import ObedientModel
from odd_values import ODD_VALUES, make_bomb, nest_list
from scripted_for_defense import ToyEnvironment

from agentsys.base.config_catalog import load_config
from agentsys.base.json_values import bound_value, is_deeper_than, read_json_data, to_json_bytes
from agentsys.models.chat import ChatReply, ChatRequest, assistant
from agentsys.models.pipeline_elements import write_tool_value
from agentsys.runs.instantiate import instantiate

DEFENSES = [
    "none",
    "agentsys",
    "agentsys_typed",
    "agentsys_typed_labels",
    "agentsys_no_isolation",
    "fides",
    "fides_basic",
    "camel",
    "camel_strict",
    "spotlighting_encoding",
    "firewall",
    "promptarmor",
    "drift",
    "isolategpt",
    "attriguard",
    "agentsys_middleware",
    "tool_result_parsing_full",
    "keyword_filter",
]


class Obliging(ObedientModel):
    """Says no where it is asked for anything else."""

    def complete(self, request: ChatRequest) -> ChatReply:
        known = hasattr(self, f"_play_{request.role}")
        return super().complete(request) if known else ChatReply(assistant("No"))


def run_defense(name: str, value: Any) -> None:
    def read_note(name: str) -> Any:
        """Reads a note.

        :param name: The note's name.
        """
        return value

    suite = SimpleNamespace(name="nowhere", environment_type=TaskEnvironment, tools=[])
    pipeline = instantiate("defense", load_config("defense", name)).pipeline(Obliging(), suite)
    pipeline.query("Read my note n.", FunctionsRuntime([make_function(read_note)]), ToyEnvironment())


QUICK = [name for name in ODD_VALUES if name != "one list many times over"]


@pytest.mark.slow
@pytest.mark.parametrize("defense", DEFENSES)
def test_every_defense_gets_over_every_odd_value(defense: str) -> None:
    for what in QUICK:
        try:
            run_defense(defense, ODD_VALUES[what]())
        except Exception as error:  # noqa: BLE001 - the test says which value it was
            pytest.fail(f"{what}: {type(error).__name__}: {str(error)[:200]}")


@pytest.mark.parametrize("what", ["brackets in a text", "braces in a text", "cyclic model", "very deep list"])
@pytest.mark.parametrize("defense", ["agentsys_typed", "fides", "camel"])
def test_a_value_nested_without_end_ends_no_case(defense: str, what: str) -> None:
    run_defense(defense, ODD_VALUES[what]())


@pytest.mark.parametrize("what", QUICK)
def test_a_bounded_value_can_be_written_and_stored(what: str) -> None:
    value = bound_value(ODD_VALUES[what]())
    assert isinstance(write_tool_value(value), str) and to_json_bytes(value)
    assert not is_deeper_than(value, 60)


def test_an_ordinary_value_stays_itself_and_a_cut_one_says_so() -> None:
    record = {"a": [1, 2.5, None, ("b", True)], "c": {"d": "é"}}
    assert bound_value(record) is record
    assert "(nested too deeply)" in json.dumps(bound_value(nest_list(900)))
    assert "(too large)" in json.dumps(bound_value(make_bomb()))
    assert bound_value([1j]) == ["1j"]


def test_a_text_is_read_as_json_within_bounds_alone() -> None:
    assert read_json_data(' {"a": [1]} ') == {"a": [1]}
    for text in ("[" * 600 + "]" * 600, "3", '"a"', "{a}", "{" * 100_000, "x [1]", ""):
        assert read_json_data(text) is None
