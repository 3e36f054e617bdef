"""Grids fit the width they are shown in, and nothing of them is cut."""

from __future__ import annotations

import io
import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from agentsys.analysis.tables.document import Document, Grid, GridCell, cells
from agentsys.analysis.tables.fit import fitted, needed, word_lines
from agentsys.analysis.tables.write_terminal import command_lines, terminal_document


def shown(grid: Grid, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(terminal_document(Document([("Numbers", [grid])], ())), crop=False)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def wide(columns: int = 8, rows: int = 3) -> Grid:
    header = ("Model", "Defense", *(f"Share of {number}" for number in range(columns)))
    lines = [
        cells("gpt-4o", f"defense_{row}", *(GridCell(f"{row}{n}.25", "1.5-99.5") for n in range(columns)))
        for row in range(rows)
    ]
    return Grid("numbers", header, lines, names=2)


def test_a_grid_that_fits_stays_as_it_is() -> None:
    assert fitted(wide(), 200) == ((wide(),), False, (), False)


def test_columns_that_say_the_same_in_every_row_go_into_a_line() -> None:
    lines = shown(wide(4), 50)
    assert "In every row: Model gpt-4o." in lines
    assert not any(line.startswith("gpt-4o ") for line in lines)


def test_numbers_stand_in_parts_before_rows_are_written_out() -> None:
    parts = fitted(wide(8), 50)
    assert len(parts.grids) > 1 and not parts.written_out
    assert all(grid.header[0] == "Defense" for grid in parts.grids)
    assert [name for grid in parts.grids for name in grid.header[1:]] == list(wide(8).header[2:])
    assert fitted(wide(8), 25).written_out


def test_columns_a_grid_can_do_without_are_left_out_and_named() -> None:
    header = ("Defense", "ASR", "Tokens")
    rows = [cells(f"a_long_name_of_{n}", f"{n}.0", f"{n}000000000") for n in range(2)]
    lines = shown(Grid("", header, rows, names=1, optional=("Tokens",)), 28)
    assert "Too narrow for: Tokens." in " ".join(lines)
    assert not any("1000000000" in line for line in lines)


@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 9),
    width=st.sampled_from([40, 60, 80, 120, 200]),
    name=st.text("abc_", min_size=1, max_size=30),
)
def test_no_line_is_wider_and_no_number_and_no_name_is_cut(
    rows: int, columns: int, width: int, name: str
) -> None:
    header = ("Defense", *(f"Share of {number}" for number in range(columns)))
    lines = [
        cells(f"{name}{row}", *(GridCell(f"{row}{n}.25", f"1.{n}-99.{row}") for n in range(columns)))
        for row in range(rows)
    ]
    grid = Grid("", header, lines, names=1)
    printed = shown(grid, width)
    assert max(map(cell_len, printed)) <= width
    words = re.findall(r"[^\s()]+", " ".join(printed))
    for row in lines:
        for cell in row:
            assert cell.text in words and (not cell.detail or cell.detail in words)


def test_a_text_is_broken_between_words_alone() -> None:
    path = "results/" + "x" * 60
    assert word_lines(f"see {path} for more", 20) == ["see", path, "for more"]
    assert word_lines("a b\n  c", 80) == ["a b", "  c"]


def test_a_shell_command_is_broken_where_the_shell_allows_it() -> None:
    command = f"agentsys run defense={','.join(['prompt_sandwiching'] * 6)} 'attack=a b' logdir=results/runs"
    lines = command_lines(command, 60)
    assert max(map(len, lines)) <= 60
    joined = "\n".join(lines).replace("\\\n", "")
    assert joined.split() == command.split()


def test_words_of_a_column_that_may_be_broken_stay_whole() -> None:
    grid = Grid(
        "", ("where", "text"), [cells("a", "create_calendar_event.title " * 4)], 2, wraps=frozenset({1})
    )
    assert needed(grid) >= len("create_calendar_event.title")
    assert sum(line.count("create_calendar_event.title") for line in shown(grid, 60)) == 4
    two = Grid(
        "", ("a", "b"), [cells("w" * 14 + " of", "injection_task_12 x " * 3)], 2, wraps=frozenset({0, 1})
    )
    assert sum(line.count("injection_task_12") for line in shown(two, 34)) == 3
