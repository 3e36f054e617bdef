"""`dump_yaml` writes what `yaml.safe_dump` writes: of every tool's value in AgentDojo, and of odd data."""

from __future__ import annotations

import enum
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsys.base.yaml_dump import dump_yaml

PIECES = [
    *(
        "the",
        "it's",
        "-",
        "- ",
        "#",
        "# ",
        ":",
        ": ",
        "'",
        '"',
        "%",
        "&",
        "*",
        "!",
        "|",
        ">",
        "{",
        "}",
        "[",
        "]",
    ),
    *(
        ",",
        "?",
        "? ",
        "...",
        "---",
        "\n",
        "\n\n",
        " ",
        "  ",
        "\t",
        "true",
        "null",
        "1.5",
        "2024-05-15",
        "10:00",
    ),
    *(
        "~",
        "=",
        "<<",
        "@",
        "`",
        "\\",
        "\\n",
        "é",
        "\u2019",
        "\U0001f600",
        "\x85",
        "\u2028",
        "\r",
        "\x07",
        "x" * 90,
    ),
]
texts = st.lists(st.sampled_from(PIECES), max_size=40).flatmap(
    lambda words: st.sampled_from(["", " "]).map(lambda joint: joint.join(words))
)
leaves = texts | st.none() | st.booleans() | st.integers() | st.floats() | st.dates() | st.datetimes()
data = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts | st.integers(), inner, max_size=4),
)


@settings(max_examples=600)
@given(data)
def test_data_are_written_as_pyyaml_writes_them(value: Any) -> None:
    assert dump_yaml(value) == yaml.safe_dump(value)


def test_what_stands_twice_and_types_that_packages_taught_are_written_alike() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    twice = ["a", {"b": 1}]
    value: dict[str, Any] = {"first": twice, "again": twice}
    assert dump_yaml(value) == yaml.safe_dump(value)
    with pytest.raises(yaml.YAMLError):
        dump_yaml({"colour": Colour.RED})
    yaml.SafeDumper.add_multi_representer(Colour, yaml.representer.SafeRepresenter.represent_str)
    assert dump_yaml({"colour": Colour.RED}) == yaml.safe_dump({"colour": Colour.RED}) == "colour: red\n"


def test_plain_data_need_not_be_written_by_pyyaml_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "safe_dump", pytest.fail)
    assert dump_yaml([{"id_": 1, "body": "Two\nlines, it's  all."}]).startswith("- body: 'Two")
