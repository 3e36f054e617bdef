"""The plan that is kept with a run: the very cases, small, the union of several, and which lack a record."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_runs import Silent
from stored_cases import case_of, store_own
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.records.case import Case
from agentsys.records.case_reader import read_cases
from agentsys.records.stored_plan import (
    PLANS_FOLDER,
    StoredPlan,
    describe_unfinished,
    encode_plan,
    find_unfinished,
    load_planned_cells,
)
from agentsys.runs.run_session import prepare_session

NAMES = st.sampled_from(["a", "b/c", "d e", "ü", "..", "x__y"])
CASES = st.builds(
    Case,
    benchmark=NAMES,
    version=NAMES,
    suite=NAMES,
    user_task_id=NAMES,
    injection_task_id=st.none() | NAMES,
    attack=NAMES,
    model=NAMES,
    defense=NAMES,
    epoch=st.integers(0, 2),
)


def store(logdir: Path, cases: list[Case]) -> Path:
    path, data = encode_plan(logdir, cases)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def keys(logdir: Path) -> set[str]:
    return {key for cell in load_planned_cells(logdir) for key in cell.keys}


def grid(users: int, injections: int, **fields: str) -> list[Case]:
    plain = {
        "benchmark": "agentdojo",
        "version": "v1.2.2",
        "suite": "slack",
        "attack": "direct",
        "model": "m",
    }
    pairs = product(range(users), range(injections))
    return [
        Case(
            **{**plain, "defense": "none", **fields},  # type: ignore[arg-type]
            user_task_id=f"user_task_{user}",
            injection_task_id=f"injection_task_{injection}",
        )
        for user, injection in pairs
    ]


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # a busy machine is no fault of the plan
@given(st.lists(CASES, max_size=12))
def test_the_keys_of_a_stored_plan_are_those_of_its_cases(cases: list[Case]) -> None:
    again = StoredPlan.model_validate_json(encode_plan(Path(), cases)[1])
    assert {key for cell in again.cells for key in cell.keys} == {case.key for case in cases}


@pytest.mark.slow
def test_a_hundred_thousand_cases_take_two_bytes_each(tmp_path: Path) -> None:
    cases = [case for number in range(10) for case in grid(1000, 10, defense=f"d{number}")]
    assert store(tmp_path, cases).stat().st_size < 200_000
    assert len(keys(tmp_path)) == 100_000


def test_the_same_plan_is_one_file_and_others_add_up(tmp_path: Path) -> None:
    one, other = grid(2, 2), grid(3, 1, defense="agentsys")
    assert store(tmp_path, one) == store(tmp_path, one)
    store(tmp_path, other)
    assert len(list((tmp_path / PLANS_FOLDER).iterdir())) == 2
    assert keys(tmp_path) == {case.key for case in [*one, *other]}


def test_a_damaged_plan_and_no_plan_tell_nothing(tmp_path: Path) -> None:
    assert load_planned_cells(tmp_path) == []
    store(tmp_path, grid(1, 1)).write_bytes(b'{"cells": 3}')
    store(tmp_path, grid(2, 1))
    assert len(keys(tmp_path)) == 2


def test_a_plan_of_an_earlier_version_is_read_whatever_else_stands_in_it(tmp_path: Path) -> None:
    path = store(tmp_path, grid(2, 2))
    before = load_planned_cells(tmp_path)
    path.write_bytes(path.read_bytes()[:-1] + b',"outlooks":[{"kind":"factor","low":10.0,"cases":4}]}')
    assert before and load_planned_cells(tmp_path) == before


def test_every_run_keeps_its_plan(tmp_path: Path) -> None:
    small = ["benchmark.suites=[slack]", f"logdir={tmp_path / 'runs'}"]
    for overrides in (["user_tasks=[0]"], ["user_tasks=[0]"], ["user_tasks=[1]", "epochs=2"]):
        session = prepare_session([*small, *overrides])
        session.execute(Silent())
        assert {job.case.key for job in session.plan.jobs} <= keys(tmp_path / "runs")
    assert len(keys(tmp_path / "runs")) == 3
    assert len(list((tmp_path / "runs" / PLANS_FOLDER).iterdir())) == 2


def test_a_dry_run_keeps_no_plan(tmp_path: Path) -> None:
    prepare_session(["limit_per_suite=1", f"logdir={tmp_path / 'runs'}"], rehearsal=True)
    assert load_planned_cells(tmp_path / "runs") == []


def test_reading_plans_needs_no_benchmark() -> None:
    look = (
        "import sys, agentsys.records.stored_plan; print({'agentdojo', 'hydra', 'pandas'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def planned(logdir: Path, defenses: tuple[str, ...] = ("none", "agentsys")) -> list[Case]:
    """A plan of ten attacked cases per defense, kept in a log folder."""
    cases = [case_of(defense=name, user_task_id=f"user_task_{n}") for name in defenses for n in range(10)]
    path, data = encode_plan(logdir, cases)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return cases


def lines(*paths: Path) -> list[str]:
    return describe_unfinished(read_cases(paths).unfinished)


def test_a_case_that_ended_in_an_error_is_not_missing(tmp_path: Path) -> None:
    for case in planned(tmp_path):
        store_own(tmp_path, case, status="error", error_kind="timeout")
    assert lines(tmp_path) == []


def test_of_a_part_of_a_log_folder_only_that_part_is_told(tmp_path: Path) -> None:
    cases = planned(tmp_path)
    for case in (*cases[:7], *cases[10:12]):
        store_own(tmp_path, case)
    none, agentsys = (tmp_path / case.pipeline for case in (cases[0], cases[10]))
    assert lines(none) == ["unfinished: 3 of 10 missing (none lacks 3)."]
    assert lines(agentsys / "banking") == ["unfinished: 8 of 10 missing (agentsys lacks 8)."]
    assert lines(agentsys / "banking/user_task_0") == []
    assert lines(none, agentsys) == ["unfinished: 11 of 20 missing (agentsys lacks 8; none lacks 3)."]
    (only,) = describe_unfinished(read_cases([tmp_path], only=[agentsys]).unfinished)
    assert only == "unfinished: 8 of 10 missing (agentsys lacks 8)."


def test_log_folders_below_the_one_that_is_read_are_found_and_named(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        cases = planned(tmp_path / name)
        for case in cases[: 20 if name == "c" else 1]:
            store_own(tmp_path / name, case)
    found = lines(tmp_path)
    assert [line.split(": unfinished")[0] for line in found] == [str(tmp_path / "a"), str(tmp_path / "b")]


def test_several_models_are_named_and_a_long_list_is_cut(tmp_path: Path) -> None:
    cases = [case_of(model=model, defense=f"d{n}") for model in ("m1", "m2") for n in range(3)]
    path, data = encode_plan(tmp_path, cases)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    store_own(tmp_path, cases[0])
    (line,) = describe_unfinished(find_unfinished([tmp_path]))
    assert line == (
        "unfinished: 5 of 6 missing (m1 / d1 not begun; m1 / d2 not begun; m2 / d0 not begun; m2 / d1 not"
        " begun; and 1 more)."
    )


def test_a_pipeline_without_a_folder_counts_where_it_is_asked_for(tmp_path: Path) -> None:
    cases = planned(tmp_path)
    (found,) = find_unfinished([tmp_path / cases[10].pipeline])
    assert (found.planned, found.missing) == (10, {("gpt-4o", "agentsys"): (10, 10)})
    store_own(tmp_path, cases[0])
    folders = [tmp_path / cases[at].pipeline for at in (0, 10)]
    (found,) = read_cases([tmp_path], only=folders).unfinished
    assert (found.planned, sum(lacking for lacking, _ in found.missing.values())) == (20, 19)


@pytest.mark.parametrize(
    "command",
    [
        ["results"],
        ["results", "--format", "csv"],
        ["results", "--format", "markdown"],
        ["table", "2"],
        ["table", "2", "--format", "csv"],
        ["compare"],
        ["results", "--by", "cost"],
        ["figure", "3", "--out", "OUT"],
    ],
    ids=" ".join,
)
def test_every_table_says_it_once(tmp_path: Path, command: list[str]) -> None:
    cases = planned(tmp_path / "runs", ("none", "agentsys", "drift"))
    for case in cases[:15]:
        store_own(tmp_path / "runs", case)
        store_own(tmp_path / "runs", case.model_copy(update={"attack": "none", "injection_task_id": None}))
    words = [str(tmp_path / "out") if word == "OUT" else word for word in command]
    shown = CliRunner().invoke(app, [*words, str(tmp_path / "runs")])
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("15 of 30 missing") == 1
