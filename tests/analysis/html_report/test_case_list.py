"""Links in the report's tables: the cases they lead to are those that the number was made of."""

from __future__ import annotations

import random
from itertools import product
from urllib.parse import parse_qsl

import pytest
from stored_cases import row

from agentsys.analysis.html_report.case_list import link_to_cases, make_list_row
from agentsys.analysis.html_report.case_views import View
from agentsys.analysis.tables.results_document import results_document
from agentsys.analysis.tables.results_report import build_report
from agentsys.analysis.tables.table_document import Grid
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import CaseRow

NASTY = "a&defense=none#<script>\"'%\u202e é"


def cases(suites: int, defense: str = "agentsys") -> list[CaseRow]:
    draw = random.Random(suites)
    made = []
    for suite, name, user in product(range(suites), ("none", defense), range(3)):
        fields = {"suite": f"suite {suite}", "defense": name, "user_task_id": f"user_task_{user}"}
        made.append(row(attack="none", utility=draw.random() < 0.5, **fields))
        for goal in range(3):
            hit, solved = draw.random() < 0.5, draw.random() < 0.5
            fields |= {"injection_task_id": f"injection_task_{goal}"}
            if draw.random() < 0.1:
                made.append(row(status="error", error_kind="timeout", **fields))
            else:
                made.append(row(injection_success=hit, utility=solved, **fields))
    return made


def grids(found: list[CaseRow]) -> list[Grid]:
    made = build_report(LoadedCases(tuple(found)), replicates=5)
    ((_, tables),) = results_document(made, link_to_cases).sections
    return list(tables)


def led_to(link: str, rows: list[View]) -> list[View]:
    """The rows that the page's filters leave, by what the page's script does."""
    wanted = dict(parse_qsl(link.removeprefix("#"), strict_parsing=True))
    assert wanted.keys() <= {"model", "suite", "defense", "attack", "outcome"}
    return [found for found in rows if all(dict(found)[name] == value for name, value in wanted.items())]


@pytest.mark.parametrize(("suites", "defense"), [(2, "agentsys"), (8, "agentsys"), (2, NASTY)])
def test_every_linked_number_is_that_of_its_cases(suites: int, defense: str) -> None:
    found = cases(suites, defense)
    rows = [make_list_row(case) for case in found]
    checked = 0
    for grid in grids(found):
        for line in grid.rows:
            names = dict(zip(grid.header[: grid.names], (cell.text for cell in line), strict=False))
            for title, cell in zip(grid.header[grid.names :], line[grid.names :], strict=True):
                metric, suite = names.get("Metric", title), names.get("Suite", title)
                if not cell.link:
                    continue
                checked += 1
                if title == "Errors":
                    assert len(led_to(cell.link, rows)) == int(cell.text)
                    continue
                key = "outcome" if metric == "Targeted ASR" else "solved"
                whole = led_to(cell.link.replace("&outcome=attack_succeeded", ""), rows)
                values = [one[key] for one in whole if one["outcome"] != "error"]
                if metric in ("Benign cases", "Attacked cases"):
                    assert len(values) == int(cell.text)
                elif suite.startswith(("pooled", "suite ")):
                    hits = sum(value in (True, "attack_succeeded") for value in values)
                    assert cell.text == f"{100 * hits / len(values):.2f}"
    assert checked > 25


def test_names_and_numbers_without_cases_behind_them_are_no_links() -> None:
    made = grids([case for case in cases(1) if case.attack == "none" or case.status == "ok"])
    for grid in made:
        for line in grid.rows:
            assert not any(cell.link for cell in line[: grid.names])
    errors = made[0].header.index("Errors")
    assert [line[errors].link for line in made[0].rows] == ["", ""]
    quality = made[0].header.index("Defense quality")
    assert not any(line[quality].link for line in made[0].rows)
