"""A planned case for tests of what becomes of one."""

from __future__ import annotations

import pytest

from agentsys.runs.plan import Job
from agentsys.runs.run_session import prepare_session


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """One of the simulated model, of no attack."""
    logdir = tmp_path_factory.mktemp("planned")
    chosen = ["model=simulated", "benchmark.suites=[slack]", "limit_per_suite=1", f"logdir={logdir}"]
    (found,) = prepare_session(chosen).plan.jobs
    return found
