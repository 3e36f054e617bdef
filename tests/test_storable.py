"""What is stored can be written and read, whatever models and tools came up with."""

from __future__ import annotations

import json
from datetime import datetime
from enum import Enum
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentsys.base.json_values import MAX_DEPTH, to_json_bytes, to_plain_data


class Colour(Enum):
    RED = "\udc80"


class Item(BaseModel):
    name: str
    inner: Any = None


class Mute:
    def __str__(self) -> str:
        raise ZeroDivisionError


def nested(depth: int) -> Any:
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats()
    | st.text(st.characters())
    | st.builds(Item, name=st.text(), inner=st.integers(2**63, 2**80))
    | st.sampled_from([Colour.RED, Mute(), datetime(2024, 5, 15, 12), {1, 2}, b"\xff", 2**3000, nested(900)]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner),
    max_leaves=12,
)


@given(ODD)
def test_anything_is_written_and_read_by_both_readers(value: Any) -> None:
    for indent in (False, True):
        written = to_json_bytes(value, indent=indent)
        orjson.loads(written)
        json.loads(written)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (10**30, 10**30),
        (-(2**80), -(2**80)),
        pytest.param(10**5000, "(a whole number of 16610 bits)", id="5000 digits"),
        ("a\udc80b\ud83d", "a\\udc80b\\ud83d"),
        (dict.fromkeys(("\ud800", "\udfff"), 1), {"\\ud800": 1, "\\udfff": 1}),
        ([float("nan"), float("inf"), 2**70], [None, None, 2**70]),
        ([Mute(), 2**70], ["(Mute without a text)", 2**70]),
        (
            Item(name="x", inner=Item(name="y", inner=2**70)),
            {"name": "x", "inner": {"name": "y", "inner": 2**70}},
        ),
    ],
)
def test_what_json_has_no_form_for_is_replaced_and_the_rest_kept(value: Any, kept: Any) -> None:
    assert json.loads(to_json_bytes(value)) == kept


def test_ordinary_data_is_written_as_orjson_writes_it() -> None:
    value = {"text": "Grüße", "n": 2**63, "f": 1.5, "when": datetime(2024, 5, 15), "list": [None, True]}
    assert to_json_bytes(value) == orjson.dumps(value)
    assert to_plain_data(value) == {**value, "when": "2024-05-15T00:00:00"}


def test_nesting_ends_where_readers_could_fail_and_says_so() -> None:
    kept, depth = json.loads(to_json_bytes(nested(5000))), 0
    while isinstance(kept, list):
        kept, depth = kept[0], depth + 1
    assert (depth, kept) == (MAX_DEPTH, "(nested too deeply to be stored)")


def test_a_value_that_contains_itself_is_written() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert b"nested too deeply" in to_json_bytes(loop)


def test_controls_that_steer_a_terminal_are_escaped_and_come_back() -> None:
    text = "\x9b31mred\x1b[0m\x85 é \xa0 漢"
    data = to_json_bytes({text: [text]})
    assert not any(mark in data for mark in (b"\x1b", "\x9b".encode(), "\x85".encode()))
    assert json.loads(data) == {text: [text]}
    assert "é \xa0 漢".encode() in data
