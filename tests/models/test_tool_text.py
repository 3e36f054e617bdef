"""Tool results read exactly as AgentDojo writes them, seen before or not."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
import yaml
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.strenum import StrEnum
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.models.tool_text import _dump_of_one, safe_dump, tool_text


class Status(StrEnum):
    sent = "sent"
    on = "on"


MOMENTS = st.datetimes() | st.dates()
TEXTS = st.text(max_size=200) | st.text("ab \n\t\\\"'#:-{}[]&*!|>%@`é☃\U0001f600\x00", max_size=200)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | MOMENTS | st.sampled_from(Status)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(PLAIN, max_size=5))
def test_lists_are_dumped_as_yaml_does_the_first_time_and_again(items: list[Any]) -> None:
    expected = yaml.safe_dump(items)
    assert safe_dump(items) == expected
    assert safe_dump(items) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(MOMENTS | TEXTS, max_size=2), min_size=1, max_size=3), st.data())
def test_objects_that_stand_in_several_places_are_referred_to_as_yaml_does(
    pool: list[Any], data: st.DataObject
) -> None:
    one = st.sampled_from([*pool, *(part for inner in pool for part in inner)])
    items = data.draw(st.lists(st.fixed_dictionaries({"a": one, "b": one}) | one, max_size=4))
    assert safe_dump(items) == yaml.safe_dump(items)


def test_values_that_are_equal_in_python_only_are_told_apart() -> None:
    for value in (True, 1, 1.0, 0.0, -0.0, "1", None, "null", Status.on, "on"):
        assert safe_dump([{"a": value}]) == yaml.safe_dump([{"a": value}])


def test_what_yaml_cannot_dump_raises_what_yaml_raises() -> None:
    class Local(StrEnum):
        cannot_be_pickled = "x"

    with pytest.raises(yaml.representer.RepresenterError):
        safe_dump([{"a": object()}])
    assert safe_dump([Local.cannot_be_pickled]) == yaml.safe_dump([Local.cannot_be_pickled])


@pytest.mark.parametrize("name", ["workspace", "travel", "banking", "slack"])
def test_everything_in_a_suites_environment_reads_as_agentdojo_writes_it(name: str) -> None:
    values = list(_parts(AgentDojo("v1.2.2").suite(name).load_and_inject_default_environment({})))
    assert len(values) > 10
    for value in values:
        assert tool_text(value) == tool_result_to_str(value)


def _parts(value: Any) -> Any:
    """Every model and every list of models inside, as tools return them, and dicts' values as lists."""
    inner: list[Any] = []
    if isinstance(value, BaseModel):
        yield value
        inner = list(vars(value).values())
    elif isinstance(value, dict):
        inner = [list(value.values()), *value.values()]
    elif isinstance(value, list) and value and all(isinstance(item, BaseModel) for item in value):
        yield value[:6]
        inner = value[:6]
    for part in inner:
        yield from _parts(part)


def test_one_date_in_two_items_is_referred_to_and_two_equal_dates_are_not() -> None:
    day = datetime.datetime(2024, 5, 15)
    assert "*id001" in safe_dump([{"a": day}, {"b": day}])
    assert "*id001" not in safe_dump([{"a": day}, {"b": datetime.datetime(2024, 5, 15)}])


ASCII = st.characters(min_codepoint=0x20, max_codepoint=0x7E)
WORDS = st.text(ASCII, min_size=1, max_size=30) | st.text("-'\"?:#{[,&*!|>%@`=~<.", min_size=1, max_size=4)
LINES = st.lists(WORDS | st.sampled_from([" ", "  ", "\n", "\n\n", "a b c d e"]), max_size=30).map("".join)
LEAVES = LINES | st.sampled_from(Status) | st.none() | st.booleans() | st.integers() | st.floats() | MOMENTS
LETTERS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(LETTERS, min_size=1, max_size=2) | st.dictionaries(WORDS, LETTERS, min_size=1, max_size=3))
def test_long_lines_are_folded_and_quoted_as_yaml_does(data: Any) -> None:
    assert safe_dump(data) == yaml.safe_dump(data)


LONG = "word " * 30


@pytest.mark.parametrize(
    "odd",
    [
        f"{LONG}é",
        f"{LONG}\t{LONG}",
        f"{LONG}\n {LONG}",
        f"{LONG}\n{LONG}",
        {"k" * 125: 1},
        {"a\nb": 1},
        {"": 1},
    ],
)
@pytest.mark.parametrize("quick", [True, False])
def test_what_libyaml_writes_otherwise_is_left_to_python(
    odd: Any, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not quick:
        monkeypatch.setattr("agentsys.models.tool_text._QUICK", None)
    _dump_of_one.cache_clear()
    assert safe_dump([odd]) == yaml.safe_dump([odd])
    assert safe_dump({"a": odd}) == yaml.safe_dump({"a": odd})
