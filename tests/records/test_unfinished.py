"""Planned cases without a record are counted and named, whichever part of a log folder is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_cases import case_of, store_own
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.records.case import Case
from agentsys.records.case_reader import read_cases
from agentsys.records.stored_plan import (
    describe_unfinished,
    encode_plan,
    find_unfinished,
)


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
