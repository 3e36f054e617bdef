"""Write the tables of docs/errors.md from the code: kinds of errors, how replies end; and litellm's in docs/models.md.

`python scripts/errors_page.py` after a change of `ErrorKind`, of a table in `agentsys.models.endings` or of `REWRITES`.
"""

from __future__ import annotations

import ast
import inspect
from enum import Enum
from pathlib import Path

from agentsys.models.chat import Consequence, ErrorKind
from agentsys.models.endings import TABLES, Ending, find_consequence
from agentsys.models.providers.litellm import REWRITES

DOCS = Path(__file__).parents[1] / "docs"
_WORDS = {
    Consequence.RETRY: "asked again",
    Consequence.END_CASE: "the case ends",
    Consequence.END_CELL: "the cell ends",
    Consequence.END_RUN: "the run ends",
}


def read_member_docstrings(kind: type[Enum]) -> dict[str, str]:
    """Name of a member -> what stands below it, on one line."""
    (body,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for member, below in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(member, ast.Assign)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            (target,) = member.targets
            found[ast.unparse(target)] = " ".join(str(below.value.value).split())
    return found


def write_kinds() -> str:
    """The table of kinds of errors."""
    when = read_member_docstrings(ErrorKind)
    rows = [f"| `{kind.value}` | {when[kind.name]} | {_WORDS[kind.consequence]} |" for kind in ErrorKind]
    return "\n".join(["| Kind | When | What follows |", "| --- | --- | --- |", *rows])


def write_endings() -> str:
    """The table of endings, each with the words that servers have for it."""
    meaning = read_member_docstrings(Ending)
    rows = []
    for ending in Ending:
        words = sorted(
            {word for table in TABLES.values() for word, found in table.items() if found is ending}
        )
        said = ", ".join(f"`{word}`" for word in words)
        rows.append(f"| `{ending}` | {meaning[ending.name]} | {said} | {find_consequence(ending).value} |")
    return "\n".join(
        ["| Ending | Meaning | Words of servers | What follows |", "| --- | --- | --- | --- |", *rows]
    )


def write_rewrites() -> str:
    """The table of what litellm changes on the way to a provider."""
    rows = [f"| `{provider}/` | {note} |" for provider, notes in REWRITES.items() for note in notes]
    return "\n".join(["| Provider | What the model reads |", "| --- | --- |", *rows])


PAGES = {
    "errors.md": {"kinds": write_kinds, "endings": write_endings},
    "models.md": {"litellm": write_rewrites},
}
"""Page -> its tables by the names of their marks."""


def fill_page(name_of_page: str) -> str:
    """A page with its tables between their marks."""
    page = (DOCS / name_of_page).read_text(encoding="utf-8")
    for name, write_table in PAGES[name_of_page].items():
        table = write_table()
        before, begun, rest = page.partition(f"<!-- {name} -->\n")
        _, ended, behind = rest.partition(f"<!-- {name} end -->")
        assert begun and ended, f"docs/{name_of_page} has no marks for {name}"
        page = f"{before}{begun}\n{table}\n\n{ended}{behind}"
    return page


if __name__ == "__main__":
    for name_of_page in PAGES:
        (DOCS / name_of_page).write_text(fill_page(name_of_page), encoding="utf-8")
