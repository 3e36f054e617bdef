"""Plan -> execute -> store on the simulated model: what is planned, skipped, retried, how a run stops."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from faulty_model import write_faulty_config
from small_runs import Silent, records_in
from typer.testing import CliRunner

from agentsys.analysis.metrics.rates import measure
from agentsys.cli import app
from agentsys.errors import ConfigError, StopRequested
from agentsys.models.chat import ErrorKind, ModelError
from agentsys.records.case_reader import read_cases
from agentsys.runs.cell import Cell, JobBlock, JobList, make_job
from agentsys.runs.claims import Claims
from agentsys.runs.plan import drop_duplicates
from agentsys.runs.run_session import prepare_session
from agentsys.runs.store import Store, StoreError

SMALL = ["model=simulated", "benchmark.suites=[slack]", "user_tasks=[0,1,3]"]
Run = Callable[..., dict[str, Any]]


class Broken:
    """A defense whose pipeline cannot be used, in one of several ways."""

    name = "broken"

    def __init__(self, how: str) -> None:
        self.how = how

    def pipeline(self, model: Any, suite: Any) -> Any:
        from agentdojo.agent_pipeline import AgentPipeline, BasePipelineElement

        how = self.how

        class Breaks(BasePipelineElement):
            def query(
                self, query: Any, runtime: Any, env: Any = None, messages: Any = (), extra_args: Any = None
            ) -> Any:
                if how == "bug":
                    raise ZeroDivisionError("a bug")
                if how == "setting":
                    raise ConfigError("set this to that")
                raise ModelError(ErrorKind(how), "as told")

        return AgentPipeline([Breaks()])


def broken(tmp_path: Path, how: str) -> list[str]:
    (tmp_path / "conf/defense").mkdir(parents=True, exist_ok=True)
    (tmp_path / "conf/defense/broken.yaml").write_text(f"_target_: {__name__}.Broken\nhow: {how}\n")
    return ["defense=broken", *SMALL]


def planned(tmp_path: Path, overrides: list[str]) -> Any:
    confs = [tmp_path / "conf"] if (tmp_path / "conf").exists() else []
    return prepare_session([*overrides, f"logdir={tmp_path / 'runs'}"], config_dirs=confs)


def test_a_plan_has_a_case_per_user_task_and_pair(tmp_path: Path) -> None:
    session = planned(tmp_path, [*SMALL, "attack=none,direct,dos", "injection_tasks=[1,2]", "epochs=2"])
    attacks = [job.case.attack for job in session.plan.open_jobs]
    assert (attacks.count("none"), attacks.count("direct"), attacks.count("dos")) == (6, 12, 6)
    assert len({job.case.key for job in session.plan.open_jobs}) == 24


@pytest.mark.parametrize(("limit", "users"), [(7, 7), (25, 16)])
def test_a_limit_meets_many_user_and_injection_tasks_in_every_suite(
    tmp_path: Path, limit: int, users: int
) -> None:
    session = planned(tmp_path, ["attack=direct", f"limit_per_suite={limit}"])
    by_suite: dict[str, list[Any]] = {}
    for job in session.plan.jobs:
        by_suite.setdefault(job.case.suite, []).append(job.case)
    assert {len(cases) for cases in by_suite.values()} == {limit}
    for cases in by_suite.values():
        assert len({case.key for case in cases}) == limit
        assert len({case.user_task_id for case in cases}) >= users
        assert len({case.injection_task_id for case in cases}) >= 5


def test_finished_cases_are_not_run_again(run_cases: Run, tmp_path: Path) -> None:
    first = run_cases(SMALL)
    stamps = {path: (tmp_path / "runs" / path).stat().st_mtime_ns for path in first}
    assert planned(tmp_path, SMALL).plan.open_jobs.blocks == ()
    (tmp_path / "runs" / next(iter(first))).write_text("{")
    again = planned(tmp_path, SMALL)
    assert (len(again.plan.open_jobs), len(again.plan.corrupt)) == (1, 1)
    again.execute(Silent())
    changed = [p for p, stamp in stamps.items() if (tmp_path / "runs" / p).stat().st_mtime_ns != stamp]
    assert changed == [next(iter(first))]
    assert records_in(tmp_path / "runs") == first


def test_errors_are_stored_and_tried_again(tmp_path: Path) -> None:
    session = planned(tmp_path, broken(tmp_path, "bug"))
    outcome = session.execute(Silent())
    assert (outcome.finished, outcome.errors, outcome.fatal) == (3, 3, None)
    assert len(outcome.tracebacks) == 1
    for record in records_in(tmp_path / "runs").values():
        assert record["agentsys"]["status"] == "error"
        assert record["agentsys"]["error_kind"] == "defense"
        assert "ZeroDivisionError: a bug" in record["error"]
        assert "ZeroDivisionError: a bug" in record["agentsys"]["traceback"]
        assert len(record["messages"]) >= 2
    again = planned(tmp_path, broken(tmp_path, "bug"))
    assert (len(again.plan.open_jobs), again.plan.failed_before) == (3, 3)


def test_a_bad_key_stops_the_run(tmp_path: Path) -> None:
    outcome = planned(tmp_path, [*broken(tmp_path, "bad_key"), "executor.workers=1"]).execute(Silent())
    assert outcome.fatal is not None
    assert outcome.fatal.startswith("bad_key")
    assert outcome.finished == 1


def test_what_only_the_user_can_mend_gives_up_its_cell_with_its_own_line(tmp_path: Path) -> None:
    outcome = planned(tmp_path, [*broken(tmp_path, "setting"), "executor.workers=1"]).execute(Silent())
    assert (outcome.fatal, outcome.finished) == (None, 1)
    assert [(cell.why, cell.left) for cell in outcome.ended_cells] == [("set this to that", 2)]


def test_a_full_disk_stops_the_run_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = planned(tmp_path, [*SMALL, "executor.workers=1"])
    write = session.store.write
    stored: list[Path] = []

    def fills_up(record: Any, agentdojo: Any) -> Path:
        if stored:
            raise StoreError("Cannot write x: No space left on device.")
        stored.append(write(record, agentdojo))
        return stored[0]

    monkeypatch.setattr(session.store, "write", fills_up)
    outcome = session.execute(Silent())
    assert outcome.fatal == "Cannot write x: No space left on device."
    assert len(records_in(tmp_path / "runs")) == 1


def test_a_removed_log_folder_stops_the_run_with_one_line(tmp_path: Path) -> None:
    class Removes(Silent):
        def on_case_stored(self, record: Any) -> None:
            super().on_case_stored(record)
            shutil.rmtree(tmp_path / "runs")

    listener = Removes()
    outcome = planned(tmp_path, [*SMALL, "executor.workers=1"]).execute(listener)
    assert outcome.fatal is not None
    assert "was removed while this run was writing" in outcome.fatal
    assert "\n" not in outcome.fatal
    assert len(listener.records) == 1


def test_asked_to_end_by_the_system_cases_are_finished_however_often_it_asks(tmp_path: Path) -> None:
    class Batch(Silent):
        def on_case_stored(self, record: Any) -> None:
            super().on_case_stored(record)
            raise StopRequested(15)

        def on_tick(self) -> None:
            if self.records:
                raise StopRequested(15)

    listener = Batch()
    outcome = planned(tmp_path, [*SMALL, "executor.workers=2"]).execute(listener)
    assert (outcome.interrupted, outcome.signal) == (True, 15)
    assert 1 <= len(records_in(tmp_path / "runs")) <= 2
    assert list((tmp_path / "runs/.agentsys/claims").iterdir()) == []


def test_what_another_process_stores_meanwhile_is_not_run_again(tmp_path: Path, run_cases: Run) -> None:
    late = planned(tmp_path, SMALL)
    records = run_cases(SMALL)
    outcome = late.execute(listener := Silent())
    assert (outcome.finished, outcome.elsewhere, listener.records) == (0, 3, [])
    assert records_in(tmp_path / "runs") == records


def test_running_all_anew_wants_the_folder_for_itself(tmp_path: Path, run_cases: Run) -> None:
    run_cases(SMALL)
    again = prepare_session([*SMALL, f"logdir={tmp_path / 'runs'}"], again=True)
    with Claims(Store(tmp_path / "runs")), pytest.raises(ConfigError, match="--again would set its records"):
        again.execute(Silent())
    assert again.execute(Silent()).finished == 3


def test_ctrl_c_finishes_what_is_under_way_and_starts_nothing_more(tmp_path: Path) -> None:
    class Impatient(Silent):
        def on_case_stored(self, record: Any) -> None:
            super().on_case_stored(record)
            if len(self.records) == 1:
                raise KeyboardInterrupt

    listener = Impatient()
    outcome = planned(tmp_path, [*SMALL, "executor.workers=1"]).execute(listener)
    assert outcome.interrupted
    assert len(records_in(tmp_path / "runs")) == len(listener.records) < 3


def test_a_second_ctrl_c_does_not_wait_for_cases_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Impatient(Silent):
        def on_tick(self) -> None:
            raise KeyboardInterrupt

    release, ended = threading.Event(), list[bool]()
    finish = "agentsys.runs.executors.run_case"
    monkeypatch.setattr(finish, lambda *_: ended.append(release.wait(60)))
    try:
        with pytest.raises(KeyboardInterrupt):
            planned(tmp_path, [*SMALL, "executor.workers=2"]).execute(Impatient())
        assert ended == [], "the run waited for its cases"
    finally:
        release.set()


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("user_tasks=[99]", "Unknown user task 'user_task_99'"),
        ("benchmark.suites=[bankin]", "Did you mean banking"),
        ("benchmark.version=v9", "Unknown version of agentdojo 'v9'"),
        ("benchmark.injection=raw", "exact"),
    ],
)
def test_unknown_tasks_and_suites_are_one_line(tmp_path: Path, override: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        planned(tmp_path, [override])
    assert "\n" not in str(caught.value)


def cell(defense: str = "none", config_hash: str = "a") -> Cell:
    labels = {"model": "m", "defense": defense, "attack": "direct"}
    settings = SimpleNamespace(labels=labels, identity={"seed": 0}, seed=0)
    benchmark = SimpleNamespace(name="agentdojo", version="v1")
    return cast(Cell, SimpleNamespace(settings=settings, config_hash=config_hash, benchmark=benchmark))


def test_a_job_names_its_cell_and_its_folder() -> None:
    old, new = cell(), cell("melon")
    jobs = [make_job(one, "slack", ("user_task_0", None), epoch) for one in (old, new) for epoch in (0, 1)]
    listed = JobList(
        JobBlock(one, "slack", epoch, [("user_task_0", None)]) for one in (old, new) for epoch in (0, 1)
    )
    assert listed.cells == [old, new]
    assert [*listed] == [listed[at] for at in range(4)] == listed[:] == jobs
    assert [job.labels for job in jobs[1:3]] == [("m", "none", "direct"), ("m", "melon", "direct")]
    assert [job.case.pipeline[-6:] for job in jobs[:2]] == ["ojo-v1", "epoch1"]


def test_cases_that_would_share_a_record_are_planned_once() -> None:
    one, twin = cell(), cell()
    wanted = product((one, twin), range(2), [("my task", "other"), ("my_task", "last")])
    blocks = [
        JobBlock(some, "slack", epoch, [(user, "g") for user in users]) for some, epoch, users in wanted
    ]
    assert [(job.case.user_task_id, job.case.epoch) for job in JobList(drop_duplicates(blocks))] == [
        (user, epoch) for epoch in range(2) for user in ("my task", "other", "last")
    ]
    other = JobBlock(cell(config_hash="b"), "slack", 0, [("new", "g"), ("last", "g")])
    with pytest.raises(ConfigError, match="Two cells of this run"):
        list(drop_duplicates([*blocks, other]))


def test_a_plan_holds_its_pairs_of_tasks_and_no_cases(tmp_path: Path) -> None:
    chosen = ["defense=none,agentsys", "attack=none,important_instructions"]
    few, many = (planned(tmp_path, [*chosen, f"epochs={epochs}"]).plan for epochs in (1, 300))
    assert len(many.jobs) == 300 * len(few.jobs) > 300_000
    assert {id(block.pairs) for block in many.jobs.blocks} == {id(b.pairs) for b in many.open_jobs.blocks}
    assert len({id(block.pairs) for block in many.jobs.blocks}) == len(few.jobs.blocks)
    assert (
        many.jobs[-1].case.epoch == 299
        and many.jobs[len(few.jobs) * 7].case == many.jobs[-len(few.jobs) * 293].case
    )


SUITE = ["defense=none", "attack=none", "benchmark.suites=[banking]", "limit_per_suite=8"]


@pytest.mark.parametrize(("fault", "ended"), [("ramble", "cut"), ("loop", "rounds")])
def test_a_case_that_ends_at_a_bound_is_scored_and_counted_beside(
    fault: str, ended: str, tmp_path: Path
) -> None:
    chosen = [*write_faulty_config(tmp_path / "conf"), f"model.fault={fault}", *SUITE]
    ran = CliRunner().invoke(app, ["run", *chosen, f"logdir={tmp_path / 'runs'}"], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    cases = read_cases([tmp_path / "runs"]).cases
    assert [(case.status, case.ended) for case in cases] == [("ok", ended)] * 8
    if fault == "ramble":
        assert all(case.odd_replies == {"simulated": {"cut": 1}} for case in cases)
    told = CliRunner().invoke(app, ["results", str(tmp_path / "runs"), "--full"]).output
    reason = {
        "cut": "undecided cases (8 of 8: cut replies 8",
        "rounds": "ended at a bound (rounds 8, of 8 cases",
    }
    assert reason[ended] in " ".join(told.split())
    assert {row.n for row in measure(cases)} == {8}
