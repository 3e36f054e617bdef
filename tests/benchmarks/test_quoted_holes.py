"""Texts for which the shortcut is not proven are left to AgentDojo's own loading."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agentsys.benchmarks.environment_text import _parse_quoted, parse_holed_text


def test_only_the_texts_with_a_replaced_placeholder_change() -> None:
    text = '"a":\n- "x {v} {w}"\n- "{w}"\n"b": "{{not}} one"\n"c": 5\n'
    holed = parse_holed_text(text, {"v": "V", "w": "W"})
    assert holed is not None
    assert [hole.path for hole in holed.holes] == [("a", 0), ("a", 1)]
    document = holed.fill({"v": "1\n\n2", "w": "W"}, frozenset({"v"}))
    assert document == yaml.safe_load(text.format(v="1\n\n2", w="W"))


@pytest.mark.parametrize(
    "text",
    [
        '"{v}": "a key"\n',
        "'single {v}'\n",
        '"a": {v}\n',
        '"a": &x "{v}"\n"b": *x\n',
        '"a": "{v}"\n"a": "again"\n',
        '"a": "{v.real}"\n',
        '"a": "{v!r}"\n',
        '"a": "{v:>9}"\n',
        '"a": "{}"\n',
        '"a": !!int "{v}"\n',
        'plain: "{v}"\n',
        '"a": "{unknown}"\n',
        '"a": "{v}\n',
        '"a": "\\x4{v}"\n',
    ],
)
def test_a_text_that_is_not_provable_is_not_taken(text: str) -> None:
    assert parse_holed_text(text, {"v": "1"}) is None


def test_a_default_that_leaves_its_quotes_is_not_taken() -> None:
    assert parse_holed_text('"a": "{v}"\n', {"v": 'x", "b": "'}) is None


PIECES = r"a,b c, ,  ,\n,\\,\",\ ,\t,\N,\L,\0,\/,\x41,\ud800,---,--- ,...,# x,: ,- ,{,%YAML,',&a,*b,é"
BREAKS = ["\n", "\n\n", "\\\n", "\t", "\x85"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([*PIECES.split(","), *BREAKS]), max_size=14).map("".join))
def test_a_quoted_text_is_read_as_pyyaml_reads_it(inner: str) -> None:
    quoted = f'"{inner}"'
    try:
        expected = yaml.safe_load(quoted)
    except yaml.YAMLError:
        with pytest.raises(yaml.YAMLError):
            _parse_quoted(quoted)
    else:
        assert _parse_quoted(quoted) == expected
