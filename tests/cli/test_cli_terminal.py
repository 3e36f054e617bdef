"""Printed text can only be read: nothing in it steers the terminal."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from agentsys.cli.terminal import as_cell, one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢\n\ttext", "plain é 漢\n\ttext"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwrite", "over\\x0dwrite"),
        ("\u202eesrever", "\\u202eesrever"),
        ("lone \ud800", "lone \\ud800"),
        ("tag \U000e0041", "tag \\U000e0041"),
    ],
)
def test_printable_spells_out_what_steers_a_terminal(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_printable_leaves_no_control_character(text: str) -> None:
    left = {unicodedata.category(char) for char in printable(text) if char not in "\n\t"}
    assert not left & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert len(one_line(text).splitlines()) <= 1


@given(st.text(st.sampled_from("[]/\\bold red=!x")))
def test_markup_in_a_cell_is_shown_and_not_obeyed(text: str) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=1000, highlight=False)
    with console.capture() as capture:
        console.print(as_cell(text))
    assert capture.get() == f"{text}\n"
