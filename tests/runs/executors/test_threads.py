"""Cases on threads of this process."""

from __future__ import annotations

from pathlib import Path

from small_runs import Silent

from agentsys.runs.claims import Claims
from agentsys.runs.run_session import prepare_session
from agentsys.runs.store import Store


def test_a_case_that_another_process_gives_back_is_run_after_all(tmp_path: Path) -> None:
    chosen = ["model=simulated", "benchmark.suites=[slack]", "attack=none", "limit_per_suite=1"]
    session = prepare_session([*chosen, f"logdir={tmp_path}"])
    (job,) = session.plan.jobs

    with Claims(Store(tmp_path)) as other:
        assert other.take(job.case.key)

        class GivingBack(Silent):
            def tick(self) -> None:
                other.release(job.case.key)

        outcome = session.execute(GivingBack())
    assert (outcome.finished, outcome.errors) == (1, 0)
