"""Links in a terminal: OSC 8 around the text where there is a terminal, nothing but the text elsewhere."""

from __future__ import annotations

import io
import re

from rich.console import Console

from agentsys.analysis.tables.document import Document, Grid, GridCell
from agentsys.analysis.tables.write_terminal import terminal_document

_LINK = re.compile(r"\x1b\]8;([^;]*);([^\x1b]*)\x1b\\(.*?)\x1b\]8;;\x1b\\", re.DOTALL)


def written(cell: GridCell, *, terminal: bool) -> str:
    grid = Grid("flips", ("Case", "n"), [(cell, GridCell("1"))], names=1)
    text = io.StringIO()
    console = Console(
        file=text, width=80, force_terminal=terminal, color_system="standard" if terminal else None
    )
    console.print(terminal_document(Document([("h", [grid])], ())))
    return text.getvalue()


def test_a_linked_cell_is_a_hyperlink_in_a_terminal_and_plain_text_in_a_file() -> None:
    cell = GridCell("abcdefghij", link="file:///runs/report.html#case=abcdefghij")
    ((_, address, shown),) = _LINK.findall(written(cell, terminal=True))
    assert address == cell.link
    assert "abcdefghij" in shown
    assert "\x1b" not in written(cell, terminal=False)
    assert "abcdefghij" in written(cell, terminal=False)


def test_a_cell_without_a_link_has_none() -> None:
    assert "\x1b]8;" not in written(GridCell("abcdefghij"), terminal=True)


def test_a_name_with_a_link_of_its_own_in_it_makes_no_link() -> None:
    hostile = "\x1b]8;;http://attacker.example\x1b\\click\x1b]8;;\x1b\\"
    for terminal in (True, False):
        found = written(GridCell(hostile), terminal=terminal)
        assert "\x1b]8;" not in found
        assert "click" in found
