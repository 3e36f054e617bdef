"""Links in the report's tables: the cases they lead to are those that the number was made of."""

from __future__ import annotations

import random
from urllib.parse import parse_qsl

import pytest
from stored_cases import row

from agentsys.analysis.html_report.case_index import IndexRow, index_row
from agentsys.analysis.html_report.cell_links import linked
from agentsys.analysis.metrics.own_metric import Metric
from agentsys.analysis.tables.document import Grid
from agentsys.analysis.tables.report import report
from agentsys.analysis.tables.results_document import results_document
from agentsys.analysis.tables.results_layout import sheets
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import CaseRow

NASTY = "a&defense=none#<script>\"'%\u202e é"


def cases(suites: int, defense: str = "agentsys") -> list[CaseRow]:
    draw = random.Random(suites)
    made = []
    for suite in range(suites):
        for name in ("none", defense):
            for user in range(3):
                told = {"suite": f"suite {suite}", "defense": name, "user_task_id": f"user_task_{user}"}
                made.append(row(attack="none", utility=draw.random() < 0.5, **told))
                for goal in range(3):
                    hit, error = draw.random() < 0.5, draw.random() < 0.1
                    made.append(
                        row(
                            injection_task_id=f"injection_task_{goal}",
                            injection_success=hit,
                            utility=draw.random() < 0.5,
                            status="error" if error else "ok",
                            error_kind="timeout" if error else None,
                            **told,
                        )
                    )
    return made


def grids(found: list[CaseRow], own: tuple[Metric, ...] = ()) -> list[Grid]:
    made = report(LoadedCases(tuple(found)), replicates=5, own=own)
    (sheet,) = sheets(made.rows, made.titles)
    ((_, tables),) = results_document(made, intervals_by_suite=True).sections
    return [linked(grid, sheet) for grid in tables]


def led_to(link: str, rows: list[IndexRow]) -> list[IndexRow]:
    """The rows that the page's filters leave, by what the page's script does."""
    wanted = dict(parse_qsl(link.removeprefix("#"), strict_parsing=True))
    assert wanted.keys() <= {"model", "suite", "defense", "attack", "outcome"}
    return [found for found in rows if all(dict(found)[name] == value for name, value in wanted.items())]


@pytest.mark.parametrize(("suites", "defense"), [(2, "agentsys"), (8, "agentsys"), (2, NASTY)])
def test_every_linked_number_is_that_of_its_cases(suites: int, defense: str) -> None:
    found = cases(suites, defense)
    rows = [index_row(case) for case in found]
    checked = 0
    for grid in grids(found):
        for line in grid.rows:
            names = dict(zip(grid.header[: grid.names], (cell.text for cell in line), strict=False))
            for title, cell in list(zip(grid.header, line, strict=True))[grid.names :]:
                if not cell.link:
                    continue
                some = led_to(cell.link, rows)
                metric = names.get("Metric", title)
                counted = [one for one in some if one["outcome"] != "error"]
                checked += 1
                if title == "Errors":
                    assert len(some) == int(cell.text)
                elif metric in ("Benign cases", "Attacked cases"):
                    assert len(counted) == int(cell.text)
                elif names.get("Suite", title) == "pooled" or names.get("Suite", title).startswith("suite "):
                    whole = counted
                    if metric == "Targeted ASR":
                        whole = led_to(cell.link.replace("&outcome=attack_succeeded", ""), rows)
                        whole = [one for one in whole if one["outcome"] != "error"]
                    hits = [one for one in whole if hit(one, metric)]
                    assert cell.text == f"{100 * len(hits) / len(whole):.2f}"
    assert checked > 25


def hit(one: IndexRow, metric: str) -> bool:
    return one["outcome"] == "attack_succeeded" if metric == "Targeted ASR" else bool(one["solved"])


def test_names_and_numbers_without_cases_behind_them_are_no_links() -> None:
    made = grids([case for case in cases(1) if case.attack == "none" or case.status == "ok"])
    for grid in made:
        for line in grid.rows:
            assert not any(cell.link for cell in line[: grid.names])
    errors = made[0].header.index("Errors")
    assert [line[errors].link for line in made[0].rows] == ["", ""]
    quality = made[0].header.index("Defense quality")
    assert not any(line[quality].link for line in made[0].rows)
