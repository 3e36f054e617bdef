"""However a claimed case ends, its claim is given back, and nothing that it came to is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import records_in

from agentsys.models.budget import RunBudgetReached
from agentsys.runs import executors
from agentsys.runs.claims import Claims
from agentsys.runs.executors import run_and_store
from agentsys.runs.plan import Job
from agentsys.runs.run_case import SearchStopped
from agentsys.runs.run_searches import RunSearches
from agentsys.runs.run_totals import CaseEnd
from agentsys.runs.store import Store, StoreError


def ended(job: Job, folder: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> CaseEnd | None:
    """What comes of a case in which this is raised; its claim is free afterwards."""

    def breaks(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(executors, "run_case", breaks)
    store = Store(folder)
    with Claims(store) as claims:
        assert claims.take(job.case.key)
        try:
            searches = RunSearches(store, lambda _: None, lambda: False, claims)
            return run_and_store(job, store, searches, claims)
        finally:
            assert not claims._held


@pytest.mark.parametrize("error", [RuntimeError("odd"), SystemExit(3)], ids=["a bug", "an exit"])
def test_a_case_whose_record_could_not_be_made_is_stored_as_an_error(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    end = ended(job, tmp_path, error, monkeypatch)
    assert end is not None and str(error) in end.agentdojo["error"]
    (record,) = records_in(tmp_path).values()
    assert (record["agentsys"]["status"], record["agentsys"]["error_kind"]) == ("error", "record")
    assert "breaks" in record["agentsys"]["traceback"]


def test_a_case_that_an_ending_run_gave_up_is_left_to_the_next_one(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended(job, tmp_path, SearchStopped(), monkeypatch) is None
    assert records_in(tmp_path) == {}


@pytest.mark.parametrize("error", [RunBudgetReached("used up"), StoreError("disk full")])
def test_what_ends_the_run_is_no_case_s_error(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    with pytest.raises(type(error), match=str(error)):
        ended(job, tmp_path, error, monkeypatch)
    assert records_in(tmp_path) == {}
