"""`agentsys run --dry-run` tells how many cases a difference needs."""

from __future__ import annotations

import re
from pathlib import Path

from stored_cases import case_of
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.cli.dry_run import planned_suites, power_lines
from agentsys.records.case import Case


def _cases(users: int, goals: int, epochs: int = 1, **fields: str) -> list[Case]:
    return [
        case_of(
            suite=suite,
            user_task_id=f"user_task_{u}",
            injection_task_id=f"injection_task_{g}",
            epoch=e,
            **fields,
        )
        for suite in ("banking", "slack")
        for u in range(users)
        for g in range(goals)
        for e in range(epochs)
    ]


def test_the_largest_attacked_cell_is_the_plan() -> None:
    benign = [case.model_copy(update={"injection_task_id": None, "attack": "none"}) for case in _cases(30, 1)]
    plan = [*_cases(5, 4, 2), *_cases(2, 2, defense="none"), *benign]
    assert [(suite.users, suite.injections, suite.epochs) for suite in planned_suites(plan)] == [
        (5, 4, 2)
    ] * 2
    assert [(suite.users, suite.injections) for suite in planned_suites(benign)] == [(30, 1)] * 2


def test_rates_below_the_difference_are_not_asked_about() -> None:
    first, second = power_lines(_cases(20, 10), 20.0)
    assert "A true difference of 20 points is found with 80% power by about" in first
    assert "cases from a rate of 30%" in first
    assert "10%" not in first + second
    assert "This plan has 400 per model, defense and attack" in first
    assert "Its own tasks, run again, are enough: 1 epochs from a rate of 30%" in second


def test_tasks_that_are_too_few_are_said_to_be() -> None:
    _, second = power_lines(_cases(3, 2), 5.0)
    assert "From 5%, 10%, 30%, 50% its own tasks are too few, however often they are run." in second


def test_a_plan_of_one_pair_of_tasks_or_none_tells_nothing() -> None:
    assert list(power_lines([], 5.0)) == []
    assert list(power_lines(_cases(1, 1)[:1], 5.0)) == []


def test_documented_numbers_are_those_of_agentdojos_grid() -> None:
    shapes = {"banking": (16, 9), "slack": (21, 5), "travel": (20, 7), "workspace": (40, 14)}
    cases = [
        case_of(suite=suite, user_task_id=f"user_task_{u}", injection_task_id=f"injection_task_{g}")
        for suite, (users, goals) in shapes.items()
        for u in range(users)
        for g in range(goals)
    ]
    first, _ = power_lines(cases, 5.0)
    needed = re.findall(r"([\d,]+)(?: cases)? from (?:a rate of )?(\d+)%", first)
    assert len(needed) == 4
    documented = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text(encoding="utf-8")
    told = " ".join(documented.split("### On published runs")[1].split())
    for count, rate in needed:
        assert f"{count} cases from {rate}%" in told or f"{count} from {rate}%" in told


def test_the_command_takes_the_difference_in_points() -> None:
    chosen = [
        "model=simulated",
        "defense=none",
        "attack=important_instructions",
        "limit=2",
        "benchmark.suites=[banking]",
    ]
    shown = CliRunner().invoke(app, ["run", *chosen, "--dry-run", "--difference", "12.5"]).output
    assert "A true difference of 12.5 points is found with 80% power by about" in shown
