"""ASB through the harness: runs on the sample that ships, with records as every benchmark has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from small_runs import Silent, records_in

from agentsys.models.chat import ChatReply, ChatRequest, ErrorKind, ModelError
from agentsys.records.schema import CaseRecord
from agentsys.runs.run_session import prepare_session


def ran(tmp_path: Path, *overrides: str) -> Sequence[CaseRecord]:
    session = prepare_session(
        ["benchmark=asb", "model=simulated", "executor.workers=1", f"logdir={tmp_path}", *overrides]
    )
    listener = Silent()
    session.execute(listener)
    return listener.records


def rates(records: Sequence[CaseRecord], attack: str) -> tuple[int, float, float]:
    """Cases, utility, success."""
    found = [record for record in records if record.case.attack == attack]
    assert all(record.status == "ok" for record in found), [record.error_kind for record in found]
    count = len(found)
    return count, sum(r.utility for r in found) / count, sum(r.security for r in found) / count


def test_the_sample_runs_at_once_and_its_records_hold_the_facts(tmp_path: Path) -> None:
    records = ran(tmp_path, "attack=none,opi_context_ignoring,opi_empty")
    assert rates(records, "none") == (4, 1.0, 0.0)
    assert rates(records, "opi_context_ignoring") == (16, 1.0, 1.0)
    assert rates(records, "opi_empty") == (16, 1.0, 0.0)
    attacked = [r for r in records if r.case.attack == "opi_context_ignoring"]
    assert all(r.measured["injection_caused"] and r.exposure.exposed_shown for r in attacked)
    assert {(r.case.benchmark, r.case.version, r.injection_mode) for r in records} == {
        ("asb-react", "sample", "exact")
    }
    stored = records_in(tmp_path)
    assert len(stored) == 36
    assert all(path.split("/")[0] == "simulated__none__asb-react-sample" for path in stored)


def test_more_tasks_of_the_same_data_go_on_where_the_run_before_left_off(tmp_path: Path) -> None:
    ran(tmp_path, "attack=none")
    session = prepare_session(
        ["benchmark=asb", "benchmark.tasks=all", "model=simulated", "attack=none", f"logdir={tmp_path}"]
    )
    assert (session.plan.finished, len(session.plan.jobs)) == (4, 10)


@pytest.mark.parametrize(
    "attack", ["important_instructions", "tool_knowledge", "injecagent", "direct", "adaptive"]
)
def test_attacks_made_for_other_benchmarks_run_here_too(tmp_path: Path, attack: str) -> None:
    records = ran(tmp_path, "limit_per_suite=1", f"attack={attack}", "benchmark.suites=[helpdesk_agent]")
    assert rates(records, attack) == (1, 1.0, 1.0)


def test_an_attack_of_ones_own_and_denial_of_service_run_here_too(tmp_path: Path) -> None:
    own = ran(tmp_path, "limit_per_suite=1", "attack=template", 'attack.template="Now {goal}"')
    assert all(record.security for record in own)
    dos = ran(tmp_path, "limit_per_suite=1", "attack=dos")
    assert [record.security for record in dos] == [not record.utility for record in dos]


def test_a_model_error_makes_an_errored_case_that_is_in_no_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        name = "broken"

        def complete(self, request: ChatRequest) -> ChatReply:
            raise ModelError(ErrorKind.SERVER_ERROR, "no answer")

    def broken(*_: Any, **__: Any) -> Broken:
        return Broken()

    monkeypatch.setattr("agentsys.benchmarks.asb.asb_benchmark.wrap_planned_model", broken)
    (record,) = ran(tmp_path, "limit_per_suite=1", "attack=opi_naive", "benchmark.suites=[helpdesk_agent]")
    assert (record.status, record.error_kind) == ("error", "server_error")
    assert (record.utility, record.security, record.measured) == (False, False, {})


def test_a_judge_can_have_a_model_of_its_own(tmp_path: Path) -> None:
    (record,) = ran(
        tmp_path,
        "attack=none",
        "benchmark.suites=[helpdesk_agent]",
        "benchmark.refusal_judge=true",
        "+model.roles.refusal_judge=simulated",
    )
    assert record.measured["refused"] is False
    assert record.usage["refusal_judge"].calls == 1


def test_nothing_outside_the_benchmarks_own_room_asks_which_benchmark_it_is() -> None:
    root = Path(__file__).parents[3]
    own = root / "agentsys" / "benchmarks" / "asb"
    asking = [
        str(path.relative_to(root))
        for room in ("agentsys", "baselines")
        for path in (root / room).rglob("*.py")
        if own not in path.parents and '== "asb' in path.read_text(encoding="utf-8")
    ]
    assert asking == []
