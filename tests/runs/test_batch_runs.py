"""Runs whose requests go out in batches: the direct run's records at half the price, nothing paid twice."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from batch_servers import QUICK, USD, Counting, cost, model_for, plan, played
from paid_server import fails, paid_model, paid_server
from small_runs import Silent, records_in

from agentsys.errors import ConfigError
from agentsys.ledger import read_ledger, spent
from agentsys.models.batches.journal import BatchJournal
from agentsys.models.providers.anthropic_batches import AnthropicBatches
from agentsys.models.providers.openai_batches import OpenAIBatches
from agentsys.models.serving import Faults, serve
from agentsys.models.serving.faults import FaultPlan
from agentsys.runs.estimate import estimate
from agentsys.runs.session import prepare

NOTE = "answered in a batch, at 50% of the price"


def without_batch(value: Any) -> Any:
    """A record less what tells that it was made in batches: prices and the note."""
    if isinstance(value, dict):
        return {key: without_batch(inner) for key, inner in value.items() if key != "cost_usd"}
    if isinstance(value, list):
        return [without_batch(inner) for inner in value if inner != NOTE]
    return value


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
def test_a_batch_run_has_the_direct_runs_records_for_half_the_price(vendor: str, tmp_path: Path) -> None:
    with serve(Counting(), batch_delay_s=0.05) as server:
        direct = played(tmp_path / "direct", model_for(tmp_path, server, vendor))
        single = server.requests
        batched = played(tmp_path / "batch", model_for(tmp_path, server, vendor, batch=QUICK))
    assert len(batched) == 4 and {record.status for record in batched} == {"ok"}
    assert cost(batched) == cost(direct) / 2 == len(direct) * 3 * USD / 2
    assert {note for record in batched for note in record.notes} == {NOTE}
    assert without_batch(records_in(tmp_path / "batch")) == without_batch(records_in(tmp_path / "direct"))
    assert single == 12, "the direct run did not ask one by one"
    told = spent([tmp_path / "batch"])
    assert (told.requests, told.cost_usd) == (12, 12 * USD / 2)
    assert not list((tmp_path / "batch" / ".agentsys" / "batches").glob("*/*")), "a settled batch is noted"


def test_a_batch_holds_the_requests_of_all_cases_under_way(tmp_path: Path) -> None:
    with serve(Counting(), batch_delay_s=0.05, capture=True) as server:
        # A machine may be slow: the cases wait for each other long enough to be sure of it.
        patient = {**QUICK, "quiet_s": 3, "requests": 4}
        played(tmp_path / "runs", model_for(tmp_path, server, "anthropic", batch=patient))
        sent = [one.body.count(b'"custom_id"') for one in server.captured if one.body]
    assert sent == [4, 4, 4]


def test_reasoning_items_go_back_through_batches(tmp_path: Path) -> None:
    with serve(Counting(), batch_delay_s=0.05) as server:
        conf = model_for(tmp_path, server, "responses", batch=QUICK, reasoning_effort="low")
        records = played(tmp_path / "runs", conf)
    # The server refuses a reasoning item without what it led to.
    assert [record.status for record in records] == ["ok"] * 4


def test_with_a_cache_equal_requests_of_several_cases_are_one(tmp_path: Path) -> None:
    model = Counting()
    attacked = ["attack=important_instructions", "injection_tasks=[1,2]", "user_tasks=[0,1]"]
    with serve(model, batch_delay_s=0.05) as server:
        conf = model_for(tmp_path, server, "openai", cache=True, batch=QUICK)
        records = played(tmp_path / "runs", conf, *attacked)
    assert len(records) == 4
    # What a user's request begins with is the same under both injections, and paid for once.
    assert {number for name, number in model.asked.items() if name.startswith("0: ")} == {1}
    assert cost(records) == model.total * USD / 2


FAULTS = ["429", "500", "timeout", "reset", "truncated", "invalid_json", "bad_arguments", "empty_reply"]


@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
def test_failed_expired_missing_and_spoilt_lines_are_asked_for_again(vendor: str, tmp_path: Path) -> None:
    model = Counting()
    faults = Faults(rate=0.4, kinds=tuple(FAULTS), seed=5, retry_after_s=0.0, hold_s=0.0)
    with serve(model, batch_delay_s=0.02, faults=faults) as server:
        # Which request meets which fault is a matter of order: attempts enough that none meets only faults.
        patient = {"attempts": 20, "base_s": 0.01}
        records = played(tmp_path / "runs", model_for(tmp_path, server, vendor, batch=QUICK, retry=patient))
        served = {kind.value for kind in server.faults}
    assert {record.status for record in records} == {"ok"}
    assert len(served) >= 4
    entries = list(read_ledger(tmp_path / "runs" / ".agentsys" / "ledger.jsonl"))
    failed = {entry.error for entry in entries} - {None}
    assert failed <= {"rate_limited", "server_error", "timeout", "malformed_reply", "connection"} and failed


@pytest.mark.slow
@pytest.mark.parametrize("vendor", ["openai", "anthropic"])
def test_answers_about_batches_may_be_lost_and_nothing_is_paid_twice(vendor: str, tmp_path: Path) -> None:
    model = Counting()
    lossy = Faults(rate=0.5, kinds=("reset", "truncated", "invalid_json", "503"), seed=3)
    with serve(model, batch_delay_s=0.05) as server:
        server._listener.batches._plan = plan_of_faults = FaultPlan(lossy)
        records = played(tmp_path / "runs", model_for(tmp_path, server, vendor, batch=QUICK))
        lost = sum(plan_of_faults.counts().values())
    assert [record.status for record in records] == ["ok"] * 4 and lost >= 4
    assert set(model.asked.values()) == {1}, f"paid more than once: {model.asked.most_common(3)}"


def test_a_server_without_batches_is_named_in_one_line(tmp_path: Path) -> None:
    with paid_server(lambda _, __: fails(404)) as server:
        conf = paid_model(tmp_path, server.url, batch=QUICK)
        (record,) = played(tmp_path / "runs", conf, "user_tasks=[0]")
    assert record.error_kind == "config"
    assert "takes no batches (" in str(record_error(tmp_path / "runs"))


def record_error(folder: Path) -> Any:
    return next(iter(records_in(folder).values()))["error"]


def test_a_model_without_batches_is_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Model 'served-google' has no batches.*model.batch=null"):
        prepare(["model=served-google", "+model.batch=true", f"logdir={tmp_path}"])


def test_a_dry_run_halves_the_cost(tmp_path: Path) -> None:
    def usd(*more: str) -> float:
        chosen = ["model=gpt-4o-mini", *plan(tmp_path / "runs")[1:], *more]
        session = prepare(chosen, rehearsal=True)
        (found,) = estimate(session.plan.todo, {}).values()
        assert found.cost_usd is not None
        return found.cost_usd

    assert usd("model.batch=true") == pytest.approx(usd() / 2)
    assert usd("model.batch={price: 0.25, poll_s: 60}") == pytest.approx(usd() / 4)


def test_a_case_whose_request_is_refused_ends_and_the_others_go_on(tmp_path: Path) -> None:
    faults = Faults(rate=0.3, kinds=("context_length",), seed=2)
    with serve(Counting(), batch_delay_s=0.02, faults=faults) as server:
        records = played(tmp_path / "runs", model_for(tmp_path, server, "openai", batch=QUICK))
    kinds = [record.error_kind for record in records]
    assert set(kinds) == {None, "context_length"}


MOMENTS: tuple[tuple[type | None, str, int, str], ...] = (
    (BatchJournal, "intend", 1, "after"),
    (None, "submit", 1, "after"),
    (BatchJournal, "sent", 2, "after"),
    (None, "collect", 1, "before"),
    (BatchJournal, "took", 3, "after"),
    (None, "submit", 1, "after"),
    (None, "collect", 2, "after"),
)
"""Where a run is killed: at the n-th call of a method, before or after it; None is the door to the vendor.
After `submit` the vendor has the batch, and nothing but the intention is on disk."""


@pytest.mark.slow
@pytest.mark.parametrize(("vendor", "cache"), [("openai", False), ("anthropic", True)])
def test_a_batch_run_killed_at_every_moment_pays_for_each_request_once(
    vendor: str, cache: bool, tmp_path: Path
) -> None:
    model = Counting()
    with serve(model, batch_delay_s=0.2) as server:
        conf = model_for(tmp_path, server, vendor, cache=cache, batch=QUICK)
        for place, method, number, when in MOMENTS:
            owner = place or DOORS[vendor]
            _killed_at(owner, method, number, when, plan(tmp_path / "cut"), conf)
        records = played(tmp_path / "cut", conf)
        assert {record.status for record in records} == {"ok"} and len(records_in(tmp_path / "cut")) == 4
        assert set(model.asked.values()) == {1}, f"paid more than once: {model.asked.most_common(3)}"
        played(tmp_path / "whole", model_for(tmp_path / "direct", server, vendor))
    assert _less_costs(tmp_path / "cut") == _less_costs(tmp_path / "whole")
    assert not list((tmp_path / "cut" / ".agentsys" / "batches").glob("*/*"))


DOORS: dict[str, type] = {"openai": OpenAIBatches, "anthropic": AnthropicBatches}


def _less_costs(folder: Path) -> Any:
    """Outcomes and conversations; which of a case's replies came from before a kill is left out."""
    kept = ("messages", "utility", "security", "error", "user_task_id")
    return {path: {key: record[key] for key in kept} for path, record in records_in(folder).items()}


def _killed_at(owner: type, method: str, number: int, when: str, overrides: list[str], conf: Path) -> None:
    """Run in a forked child (everything is imported already) that kills itself at a given moment."""
    child = os.fork()
    if child == 0:
        try:
            setattr(owner, method, _deadly(getattr(owner, method), number, when))
            prepare(overrides, config_dirs=[conf]).execute(Silent())
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the run ended before call {number} of {method}"


def _deadly(method: Callable[..., Any], number: int, when: str) -> Callable[..., Any]:
    calls = itertools.count(1)

    def called(*args: Any) -> Any:
        mine = next(calls) == number
        if mine and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        found = method(*args)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return called
