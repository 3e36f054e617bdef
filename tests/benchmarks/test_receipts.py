"""Receipts: a call counts where the tool itself ran, whoever refused it and wherever it ran."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from small_runs import Silent

from agentsys.audit.rescoring.rescore import rescore_records
from agentsys.records.case_reader import read_cases
from agentsys.runs.run_session import prepare_session

SLACK = [
    "model=simulated",
    "attack=important_instructions",
    "benchmark.suites=[slack]",
    "injection_tasks=[5]",
]
TWELVE = [*SLACK, "user_tasks=[0,1,2,3,4,5,6,11,13,15,16,17]"]


@pytest.fixture
def run_gateway(tmp_path: Path) -> Callable[[str, list[str]], list[Any]]:
    """Run cases behind a foreign element that treats calls in one way; returns their rows."""
    folder = tmp_path / "conf"
    (folder / "defense").mkdir(parents=True)

    def run(way: str, cases: list[str]) -> list[Any]:
        target = f"_target_: foreign_gateway.Gateway\nway: {way}\n"
        (folder / "defense" / f"gateway_{way}.yaml").write_text(target)
        overrides = [*cases, f"defense=gateway_{way}", f"logdir={tmp_path / 'runs'}"]
        prepare_session(overrides, config_dirs=[folder]).execute(Silent())
        return list(read_cases([tmp_path / "runs"]).cases)

    return run


def test_refusing_every_call_is_no_success_though_all_of_them_were_proposed(
    run_gateway: Callable[..., list[Any]], tmp_path: Path
) -> None:
    rows = run_gateway("refuse", SLACK)
    assert len(rows) == 21 and all(row.trajectory_length for row in rows)
    assert [row.injection_success for row in rows] == [False] * 21
    assert all(row.exposed_shown and row.receipts < row.trajectory_length for row in rows)
    rescored = rescore_records([tmp_path / "runs"], "v1.2.2").cases
    assert not any(case.flips or case.scores.security for case in rescored)


@pytest.mark.parametrize("way", ["thread", "own", "both"])
def test_calls_that_ran_out_of_our_sight_are_booked_in_their_own_case(
    run_gateway: Callable[..., list[Any]], way: str
) -> None:
    rows = run_gateway(way, [*TWELVE, "executor.workers=2"])
    assert [row.injection_success for row in rows] == [True] * 12
    assert all(row.exposed_raw and row.receipts == sum(row.calls.values()) > 3 for row in rows)


def test_records_without_receipts_keep_their_score_and_the_fix_corrects_it(
    run_gateway: Callable[..., list[Any]], tmp_path: Path
) -> None:
    (row,) = run_gateway("refuse", [*SLACK, "user_tasks=[0]"])
    ours = orjson.loads(Path(row.source).read_bytes())
    block = ours.pop("agentsys")
    older = {**block, "receipts": None, "security": True}
    for name, record in {"older": {**ours, "agentsys": older}, "theirs": ours}.items():
        path = tmp_path / name / "some-model" / "slack" / "user_task_0" / "direct" / "injection_task_5.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(orjson.dumps({**record, "security": True}))
        (case,) = rescore_records([tmp_path / name], "v1.2.2").cases
        assert case.scores.security is True and not case.flips
        assert case.fixed is not None and case.fixed.security is False
        assert case.fixed.changed_by == ("executed_calls",)
