"""Why a score flips: the version, the clock, the data, or nothing that could be found."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stored_cases import PAY_ATTACKER, PAY_BILL, READ_BILL, attacked, published, stored, turns

import agentsys_plugins.audit.rescoring.score_flips
from agentsys_plugins.audit.rescoring.read_trajectories import read_trajectory
from agentsys_plugins.audit.rescoring.recorded_trajectory import Trajectory, find_suite, find_tasks
from agentsys_plugins.audit.rescoring.reexecution import (
    CheckScores,
    Reexecution,
    collect_todays_results,
    is_same_text,
    reexecute,
    score_with_execution,
)
from agentsys_plugins.audit.rescoring.score_flips import FlipReason, explain_flip, find_recorded_clock


def read(folder: Path, content: dict[str, Any]) -> Trajectory:
    found = read_trajectory(str(stored(folder, content, "one.json")))
    assert found is not None
    return found


def with_todays_texts(trajectory: Trajectory) -> Trajectory:
    suite = find_suite(trajectory, "v1.2.2")
    texts = collect_todays_results(trajectory, find_tasks(trajectory, suite, "v1.2.2"), suite)
    calls = zip(trajectory.executed, texts, strict=True)
    return replace(trajectory, executed=tuple(replace(call, text=text) for call, text in calls))


IDLE = {"user_task_id": "user_task_6", "utility": False, "messages": turns([], "Nothing.")}
"""Banking's user task 6, not done: v1.2.2 accepts the transaction that is there already."""


def test_a_check_that_another_version_has_is_named_with_the_versions_that_agree(tmp_path: Path) -> None:
    idle = read(tmp_path, published(**IDLE))  # type: ignore[arg-type]
    assert score_with_execution(idle, "v1.2.2").scores.utility
    reason, detail = explain_flip(idle, "v1.2.2", "utility")
    assert reason is FlipReason.CHECKER
    assert "v1.2.1" in detail and "v1.2.2" not in detail


def test_where_the_version_is_recorded_only_that_one_is_tried(tmp_path: Path) -> None:
    idle = read(tmp_path, published(**IDLE, benchmark_version="v1.1"))  # type: ignore[arg-type]
    assert explain_flip(idle, "v1.2.2", "utility").detail.startswith("as recorded under v1.1;")
    wrong = replace(with_todays_texts(idle), version="v1.2.2")
    assert explain_flip(wrong, "v1.2.2", "utility").reason is FlipReason.NOT_EXPLAINED


def test_another_text_of_a_tool_is_changed_data_and_names_the_tool(tmp_path: Path) -> None:
    content = attacked([READ_BILL, PAY_ATTACKER], security=False)
    trajectory = read(tmp_path, content)
    assert explain_flip(trajectory, "v1.2.2", "security") == (
        FlipReason.DATA,
        "another text than recorded from read_file, send_money",
    )
    assert (
        explain_flip(with_todays_texts(trajectory), "v1.2.2", "security").reason is FlipReason.NOT_EXPLAINED
    )


def test_a_recorded_hash_decides_about_data(tmp_path: Path) -> None:
    trajectory = replace(read(tmp_path, attacked(security=False)), data_hash="other")
    assert explain_flip(trajectory, "v1.2.2", "security") == (FlipReason.DATA, "the data's hash is another")


def test_without_recorded_injections_texts_are_no_evidence(tmp_path: Path) -> None:
    trajectory = replace(read(tmp_path, attacked(security=False)), injections=None)
    assert explain_flip(trajectory, "v1.2.2", "security").reason is FlipReason.NOT_EXPLAINED


def test_a_check_that_looks_at_the_clock_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail = {
        "function": "send_email",
        "args": {"recipients": ["a@b.c"], "subject": "s", "body": "b"},
        "id": "m",
    }
    sent = turns([mail], results=["timestamp: 2024-07-19 00:34:16.912129"])
    content = published(suite_name="workspace", utility=True, messages=sent)
    trajectory = read(tmp_path, content)

    def sent_in_2024(trajectory: Trajectory, tasks: Any, suite: Any, done: Reexecution) -> CheckScores:
        return CheckScores(
            any(str(m.timestamp).startswith("2024-07-19") for m in done.after.inbox.emails.values()), None
        )

    monkeypatch.setattr(agentsys_plugins.audit.rescoring.score_flips, "ask_checks", sent_in_2024)
    monkeypatch.setattr(agentsys_plugins.audit.rescoring.score_flips, "_score_under", lambda *_: None)
    assert explain_flip(trajectory, "v1.2.2", "utility").reason is FlipReason.CLOCK


def test_our_own_records_are_done_again_on_the_clock_they_were_made_with(tmp_path: Path) -> None:
    mail = {
        "function": "send_email",
        "args": {"recipients": ["a@b.c"], "subject": "s", "body": "b"},
        "id": "m",
    }
    sent = published(suite_name="workspace", utility=True, messages=turns([mail, mail]))
    noon = datetime.datetime(2023, 3, 4, 12)
    for clock, first in ((None, "2025-01-01 12:00:00.500000"), (noon, str(noon))):
        trajectory = replace(read(tmp_path, sent), clock=clock)
        suite = find_suite(trajectory, "v1.2.2")
        tasks = find_tasks(trajectory, suite, "v1.2.2")
        stamps = [str(m.timestamp) for m in reexecute(trajectory, tasks, suite).after.inbox.emails.values()]
        assert stamps[-2] == first
        assert stamps[-2] < stamps[-1], "later is later"
        assert first in collect_todays_results(trajectory, tasks, suite)[0]


def test_the_records_clock_is_its_first_stamp_and_no_date_is_none(tmp_path: Path) -> None:
    texts = ["at 2024-13-40 00:00:00.1", "t: 2024-07-19 00:34:16.912129", "t: 2025-01-01 00:00:00.5"]
    content = published([READ_BILL, PAY_BILL, READ_BILL])
    content["messages"] = turns([READ_BILL, PAY_BILL, READ_BILL], results=texts)
    assert str(find_recorded_clock(read(tmp_path, content))) == "2024-07-19 00:34:16.912129"
    assert find_recorded_clock(read(tmp_path, published())) is None


@pytest.mark.parametrize(
    ("recorded", "today", "same"),
    [
        ("t: 2024-07-19 00:34:16.912129", "t: 2026-01-01 10:00:00.000001", True),
        ("t: 2024-07-19 00:34:16", "t: 2026-01-01 10:00:00", False),
        (
            "see https://errors.pydantic.dev/2.7/v/missing",
            "see https://errors.pydantic.dev/2.14/v/missing",
            True,
        ),
        ("- a\n- b", "- b\n- a", True),
        ("date: 2022-0 3-04", "date: '2022-03-04'", True),
        ("<<two words>>", "two words", True),
        ("one", "two", False),
    ],
)
def test_texts_differ_by_more_than_time_and_chance_or_not(recorded: str, today: str, same: bool) -> None:
    assert is_same_text(recorded, today) is same


def test_denial_of_service_succeeds_where_the_task_is_not_solved(tmp_path: Path) -> None:
    refused = read(tmp_path, {**attacked([]), "attack_type": "dos"})
    solved = read(tmp_path, {**attacked([READ_BILL, PAY_BILL]), "attack_type": "captcha_dos"})
    assert score_with_execution(refused, "v1.2.2").scores == (False, True)
    assert score_with_execution(solved, "v1.2.2").scores == (True, False)


def test_all_of_our_own_records_score_as_they_did(run_cases: Callable[..., Any], tmp_path: Path) -> None:
    run_cases(
        ["defense=none,agentsys", "attack=none,direct", "benchmark.suites=[banking]", "limit_per_suite=6"]
    )
    found = [read_trajectory(str(path)) for path in sorted((tmp_path / "runs").rglob("*task_*.json"))]
    attacked_cases = [one for one in found if one is not None]
    assert len(attacked_cases) == 12 and any(one.security for one in attacked_cases)
    for one in attacked_cases:
        assert score_with_execution(one, str(one.version)).scores == (one.utility, one.security)
