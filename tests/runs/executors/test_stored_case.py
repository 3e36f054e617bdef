"""However a claimed case ends, its claim is given back, and nothing that it came to is lost; on threads and on Ray."""

from __future__ import annotations

import importlib.util
import signal
import threading
from asyncio import CancelledError
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_runs import Silent, errors_in, records_in
from worker_model import asked, own_model

from agentsys.errors import ConfigError, Unavailable
from agentsys.models.budget import RunBudgetReached
from agentsys.runs import executors
from agentsys.runs.case_outcome import CaseEnd
from agentsys.runs.cell import Job
from agentsys.runs.claims import Claims
from agentsys.runs.executors import (
    PlainRunner,
    RunContext,
    Workers,
    defer_signals,
    run_and_store,
    run_on_threads,
)
from agentsys.runs.observed_pipeline import PipelineFailed, run_foreign_code
from agentsys.runs.run_session import RunRequest, prepare_session, run_as_node
from agentsys.runs.store import Store, StoreError


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """One of the simulated model, of no attack."""
    logdir = tmp_path_factory.mktemp("planned")
    chosen = ["model=simulated", "benchmark.suites=[slack]", "limit_per_suite=1", f"logdir={logdir}"]
    (found,) = prepare_session(chosen).plan.jobs
    return found


def ended(job: Job, folder: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> CaseEnd | None:
    """What comes of a case in which this is raised; its claim is free afterwards."""

    def breaks(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(executors, "run_case", breaks)
    store = Store(folder)
    with Claims(store) as claims:
        assert claims.take(job.case.key)
        try:
            runner = PlainRunner(RunContext(store, claims, Workers(1)))
            return run_and_store(job, runner, store, claims)
        finally:
            assert not claims._held


class Odd(BaseException):
    """Nobody's exception."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("odd"),
        SystemExit(3),
        KeyboardInterrupt("its own"),
        CancelledError("given up"),
        Odd("base"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_case_whose_record_could_not_be_made_is_stored_as_an_error(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    end = ended(job, tmp_path, error, monkeypatch)
    assert end is not None and str(error) in end.agentdojo["error"]
    (record,) = records_in(tmp_path).values()
    assert (record["agentsys"]["status"], record["agentsys"]["error_kind"]) == ("error", "record")
    assert "breaks" in record["agentsys"]["traceback"]


def test_a_task_that_a_defense_s_own_event_loop_gave_up_is_the_defense_s_error() -> None:
    def work() -> None:
        raise CancelledError

    with pytest.raises(PipelineFailed, match="CancelledError"):
        run_foreign_code(work, PipelineFailed)


def test_a_case_that_an_ending_run_gave_up_is_left_to_the_next_one(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PlainRunner, "run", lambda *_: None)
    assert ended(job, tmp_path, AssertionError(), monkeypatch) is None
    assert records_in(tmp_path) == {}


@pytest.mark.parametrize("error", [RunBudgetReached("used up"), StoreError("disk full")])
def test_what_ends_the_run_is_no_case_s_error(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    with pytest.raises(type(error), match=str(error)):
        ended(job, tmp_path, error, monkeypatch)
    assert records_in(tmp_path) == {}


def test_a_case_that_another_process_gives_back_is_run_after_all(tmp_path: Path) -> None:
    chosen = ["model=simulated", "benchmark.suites=[slack]", "attack=none", "limit_per_suite=1"]
    session = prepare_session([*chosen, f"logdir={tmp_path}"])
    (job,) = session.plan.jobs

    with Claims(Store(tmp_path)) as other:
        assert other.take(job.case.key)

        class GivingBack(Silent):
            released = False

            def on_case_stored(self, record: Any) -> None:
                assert self.released, "it ran while another process had it"

            def on_tick(self) -> None:
                other.release(job.case.key)
                self.released = True

        outcome = session.execute(GivingBack())
    assert (outcome.finished, outcome.errors) == (1, 0)


def test_a_claim_is_held_until_the_record_is_stored(job: Job, tmp_path: Path) -> None:
    held = list[bool]()

    class Watched(Store):
        def write(self, *case: Any) -> Path:
            held.append(job.case.key in claims._held)
            return super().write(*case)

    store = Watched(tmp_path)
    with Claims(store) as claims:
        assert claims.take(job.case.key)
        run_and_store(job, PlainRunner(RunContext(store, claims, Workers(1))), store, claims)
    assert held == [True]


class Hesitant:
    """Runs cases; one is not ready, or given back, until the run has ticked."""

    summary = "hesitated"

    def __init__(self, context: RunContext, gate: threading.Event, gives_back: bool) -> None:
        self.plain, self.gate, self.gives_back = PlainRunner(context), gate, gives_back
        self.runs = list[str]()

    def _must_wait(self, job: Job) -> bool:
        return job.case.user_task_id == "user_task_0" and not self.gate.is_set()

    def is_ready(self, job: Job) -> bool:
        return (self.gives_back and job.case.key not in self.runs) or not self._must_wait(job)

    def run(self, job: Job) -> CaseEnd | None:
        self.runs.append(job.case.key)
        return None if self._must_wait(job) else self.plain.run(job)


@pytest.mark.parametrize("gives_back", [False, True])
@pytest.mark.parametrize("interrupted", [False, True])
def test_a_case_that_has_to_wait_is_run_later_and_not_waited_for_once_the_run_is_ending(
    tmp_path: Path, gives_back: bool, interrupted: bool
) -> None:
    gate = threading.Event()

    class Opening(Silent):
        ticks = 0

        def on_tick(self) -> None:
            self.ticks += 1
            assert self.ticks < 20, "the run waits for a case that nobody will begin"
            if self.records and interrupted:
                raise KeyboardInterrupt
            if self.records and self.ticks > 2:
                gate.set()

    plan = ["model=simulated", *SLACK, "user_tasks=[0,1]", f"logdir={tmp_path}"]
    session, listener, made = prepare_session(plan), Opening(), list[Hesitant]()

    def make(context: RunContext) -> Hesitant:
        made.append(Hesitant(context, gate, gives_back))
        return made[0]

    with Claims(session.store) as claims:
        outcome = run_on_threads(
            session.plan.open_jobs,
            workers=1,
            store=session.store,
            claims=claims,
            listener=listener,
            meter=None,
            make_runner=make,
        )
        assert not claims._held
    assert outcome.interrupted is interrupted and outcome.summary == "hesitated"
    assert outcome.finished == len(records_in(tmp_path)) == len(listener.records) == 2 - interrupted
    twice = [key for key, number in Counter(made[0].runs).items() if number > 1]
    assert len(twice) == int(gives_back and not interrupted)


def test_signals_that_are_held_back_strike_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    struck = list[int]()

    def strike(number: int, _: object) -> None:
        struck.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, strike) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with defer_signals() as heed:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGTERM)
            assert struck == []
            heed()
            assert struck == [signal.SIGTERM] * 2
            signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):  # nobody may ask any more
                signal.raise_signal(signal.SIGINT)
            with pytest.raises(KeyboardInterrupt):
                heed()
            heed()
        assert struck == [signal.SIGTERM] * 2 + [signal.SIGINT] * 2
        assert signal.getsignal(signal.SIGTERM) is strike
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_first_ctrl_c_behind_a_signal_of_the_system_is_held_back_as_any_first_one() -> None:
    struck = list[int]()
    before = {
        number: signal.signal(number, lambda number, _: struck.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        with defer_signals() as heed:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            assert struck == []
            heed()
            assert struck == [signal.SIGTERM, signal.SIGINT]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_on_other_threads_nothing_is_held_back() -> None:
    before, inside = signal.getsignal(signal.SIGINT), list[object]()

    def hold() -> None:
        with defer_signals() as heed:
            heed()
            inside.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=hold)
    thread.start()
    thread.join()
    assert inside == [before]


INSTALLED = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not INSTALLED, reason="the extra `distributed` (ray) is not installed")
RAY = ["executor=ray", "executor.workers=3"]
SLACK = ["benchmark.suites=[slack]", "attack=none"]


@pytest.mark.skipif(INSTALLED, reason="ray is installed")
def test_without_ray_one_line_says_how_to_install_it(tmp_path: Path) -> None:
    with pytest.raises(
        Unavailable, match=r"executor=ray needs ray.*pip install 'agentsys-bench\[distributed\]'"
    ):
        prepare_session(["model=simulated", *RAY, f"logdir={tmp_path}"])


def test_a_node_runs_what_was_asked_for_on_threads(tmp_path: Path) -> None:
    asked_for = ["model=simulated", *SLACK, "limit_per_suite=2", f"logdir={tmp_path}"]
    hashes = frozenset(one.config_hash for one in prepare_session(asked_for).settings)
    request = RunRequest(("executor=ray", "++executor.workers=7", "executor.address=auto", *asked_for))
    outcome = run_as_node(request, 2, hashes)
    assert (outcome.finished, outcome.errors, outcome.fatal) == (2, 0, None)
    assert len(records_in(tmp_path)) == 2


def test_a_node_with_other_versions_runs_nothing(tmp_path: Path) -> None:
    request = RunRequest(("model=simulated", *SLACK, "limit_per_suite=1", f"logdir={tmp_path}"))
    with pytest.raises(ConfigError, match="install the same on every node"):
        run_as_node(request, 2, frozenset(["another"]))
    assert records_in(tmp_path) == {}


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes on loopback, joined by this process."""
    import ray
    from ray.cluster_utils import Cluster

    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.second = made.add_node(num_cpus=1)
    made.wait_for_nodes()
    ray.init(address=made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


@needs_ray
@pytest.mark.slow
def test_two_nodes_leave_the_records_of_threads(cluster: Any, tmp_path: Path) -> None:
    import ray

    plan = ["model=simulated", "defense=none,agentsys", "attack=none,direct", "limit_per_suite=2"]
    listener = Silent()
    outcome = prepare_session([*plan, *RAY, f"logdir={tmp_path / 'ray'}"]).execute(listener)
    assert (outcome.errors, outcome.fatal, outcome.finished) == (0, None, len(listener.records))
    prepare_session([*plan, f"logdir={tmp_path / 'threads'}"]).execute(Silent())
    assert records_in(tmp_path / "ray") == records_in(tmp_path / "threads")
    assert len(listener.records) == len(records_in(tmp_path / "ray"))
    assert ray.is_initialized() and sum(n["Alive"] for n in ray.nodes()) == 2  # a joined cluster stays up


class Removing(Silent):
    """Takes the second node away as soon as some cases are stored."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        super().__init__()
        self.cluster, self.folder, self.stored = cluster, folder, list[str]()

    def on_tick(self) -> None:
        if len(self.records) >= 6 and not self.stored:
            self.stored = sorted(records_in(self.folder / "runs"))
            self.cluster.remove_node(self.cluster.second, allow_graceful=False)


@needs_ray
@pytest.mark.slow
def test_a_lost_node_loses_nothing_and_what_was_stored_is_not_run_again(cluster: Any, tmp_path: Path) -> None:
    conf, plugins = own_model(tmp_path, sleep_s=0.5, together=2)
    plan = ["model=own", *SLACK, f"logdir={tmp_path / 'runs'}"]
    listener = Removing(cluster, tmp_path)
    session = prepare_session([*plan, *RAY], config_dirs=[conf], plugin_paths=[plugins])
    outcome = session.execute(listener)
    assert (outcome.finished, outcome.errors, outcome.fatal) == (21, 0, None)
    records = records_in(tmp_path / "runs")
    assert len(records) == len(listener.records) == 21 and not errors_in(records) and listener.stored
    times = Counter(question for _, question in asked(tmp_path) if "test of the connection" not in question)
    again = [question for question, number in times.items() if number > 1]
    assert len(times) == 21 and max(times.values()) <= 2 and len(again) <= 3  # what it had under way
