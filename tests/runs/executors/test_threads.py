"""Cases on threads of this process."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
from small_runs import Silent

from agentsys.records.schema import CaseRecord
from agentsys.runs.claims import Claims
from agentsys.runs.session import prepare
from agentsys.runs.store import Store


class Counting(Silent):
    """Notes how many objects collections pass over while cases end, and may fail then."""

    def __init__(self, failing: bool) -> None:
        super().__init__()
        self.failing, self.passed_over = failing, 0

    def finished(self, record: CaseRecord) -> None:
        self.passed_over = gc.get_freeze_count()
        if self.failing:
            raise RuntimeError("of the listener")


@pytest.mark.parametrize("failing", [False, True])
def test_collections_pass_over_what_was_there_before_a_run_and_no_longer(
    tmp_path: Path, failing: bool
) -> None:
    plan = ["model=simulated", "benchmark.suites=[slack]", "attack=none", "user_tasks=[0]"]
    session, listener = prepare([*plan, f"logdir={tmp_path}"]), Counting(failing)
    if failing:
        with pytest.raises(RuntimeError, match="of the listener"):
            session.execute(listener)
    else:
        assert session.execute(listener).finished == 1
    assert listener.passed_over > 10_000
    assert gc.get_freeze_count() == 0


def test_a_case_that_another_process_gives_back_is_run_after_all(tmp_path: Path) -> None:
    chosen = ["model=simulated", "benchmark.suites=[slack]", "attack=none", "limit=1"]
    session = prepare([*chosen, f"logdir={tmp_path}"])
    (job,) = session.plan.jobs

    with Claims(Store(tmp_path)) as other:
        assert other.take(job.case.key)

        class GivingBack(Silent):
            def tick(self) -> None:
                other.release(job.case.key)

        outcome = session.execute(GivingBack())
    assert (outcome.finished, outcome.errors) == (1, 0)
