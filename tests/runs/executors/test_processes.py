"""Cases in worker processes: the same records as on threads; nothing lost or doubled when one is killed."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from paid_server import USD, paid_model, paid_server, says
from small_runs import Silent, errors_in, records_in
from typer.testing import CliRunner
from worker_model import asked, own_model

from agentsys import api
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.runs import session
from agentsys.runs.executors import processes
from agentsys.runs.executors.collector import look_as_cases_run, look_seldom
from agentsys.runs.session import prepare
from agentsys.runs.store import Store, StoreError

TWO = ["executor=processes", "executor.processes=2", "executor.workers=6"]
FOUR = ["executor=processes", "executor.processes=4", "executor.workers=8"]
SLACK = ["benchmark.suites=[slack]", "attack=none"]


def ran(folder: Path, *overrides: str, listener: Any = None, **places: Any) -> tuple[Any, Silent]:
    listener = listener or Silent()
    outcome = prepare([*overrides, f"logdir={folder}"], **places).execute(listener)
    return outcome, listener


@pytest.mark.slow
def test_records_do_not_depend_on_threads_or_processes(tmp_path: Path) -> None:
    plan = ["model=simulated", "defense=none,agentsys", "attack=none,direct", "limit=2"]
    found = []
    for number, chosen in enumerate(
        (
            ["executor.workers=1"],
            ["executor.workers=8"],
            ["executor.workers=32"],
            FOUR,
            TWO,
        )
    ):
        logdir = tmp_path / str(number)
        outcome, listener = ran(logdir, *plan, *chosen)
        assert (outcome.errors, outcome.fatal) == (0, None)
        assert outcome.finished == len(listener.records) == 32
        found.append(records_in(logdir))
    assert len(found[0]) == 32
    assert all(one == found[0] for one in found[1:])


@pytest.mark.slow
@pytest.mark.skipif(not processes.CAN_COPY, reason="workers are started afresh here")
def test_workers_that_are_copies_of_a_command_store_what_threads_do(tmp_path: Path) -> None:
    plan = ["model=simulated", "defense=none,agentsys", "attack=none,direct", "limit=1"]
    command = [sys.executable, "-m", "agentsys", "run", *plan, *TWO, f"logdir={tmp_path / 'copies'}"]
    env = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    imported = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines()]
    assert imported.count("agentsys.runs.executors.template") == 1, "a process was started afresh"
    assert ran(tmp_path / "threads", *plan)[0].finished == 16
    assert records_in(tmp_path / "copies") == records_in(tmp_path / "threads")


@pytest.mark.slow
def test_workers_are_started_afresh_where_no_copies_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "CAN_COPY", False)
    one = ["executor=processes", "executor.processes=1", "executor.workers=2"]
    outcome, _ = ran(tmp_path, "model=simulated", *SLACK, *one, "limit=2")
    assert (outcome.errors, outcome.fatal, outcome.finished) == (0, None, 2)


class Killing(Silent):
    """Kills the process that asked first, as soon as some cases are stored."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.killed = folder, 0
        self.stored: list[str] = []

    def tick(self) -> None:
        if len(self.records) >= 4 and not self.killed:
            self.stored = sorted(records_in(self.folder / "runs"))
            self.killed = asked(self.folder)[0][0]
            os.kill(self.killed, signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_worker_loses_nothing_and_what_it_stored_is_not_run_again(tmp_path: Path) -> None:
    conf, plugins = own_model(tmp_path, sleep_s=0.3, together=2)
    places = {"config_dirs": [conf], "plugin_paths": [plugins]}
    listener = Killing(tmp_path)
    outcome, _ = ran(tmp_path / "runs", "model=own", *SLACK, *TWO, listener=listener, **places)
    assert listener.killed and (outcome.errors, outcome.fatal, outcome.finished) == (0, None, 21)
    assert sorted(record.case.key for record in listener.records) == sorted(records_in(tmp_path / "runs"))
    times = Counter(question for _, question in asked(tmp_path))
    first = {question: process for process, question in reversed(asked(tmp_path))}
    again = [question for question, number in times.items() if number > 1]
    assert len(times) == 21 and all(first[question] == listener.killed for question in again)
    assert len(again) <= 3 and max(times.values()) <= 2  # its threads had three cases under way
    records = records_in(tmp_path / "runs")
    assert len(records) == 21 and not errors_in(records) and set(listener.stored) <= set(records)
    assert not list((tmp_path / "runs/.agentsys/claims").iterdir())


@pytest.mark.slow
def test_a_worker_that_ends_does_what_a_users_module_wants_done_then(tmp_path: Path) -> None:
    conf, plugins = own_model(tmp_path, together=2)
    with (plugins / "model_of_ones_own.py").open("a") as source:
        source.write(
            f"import atexit\natexit.register(lambda: open({str(tmp_path / 'ends')!r}, 'a').write('.'))\n"
        )
    places = {"config_dirs": [conf], "plugin_paths": [plugins]}
    outcome, _ = ran(tmp_path / "runs", "model=own", *SLACK, *TWO, **places)
    assert (outcome.finished, outcome.fatal) == (21, None)
    assert (tmp_path / "ends").read_text() == ".."


@pytest.mark.slow
def test_workers_look_for_garbage_as_seldom_as_a_command_that_runs_cases(tmp_path: Path) -> None:
    """And no more seldom: one that has only planned the run would let them fill the memory."""
    conf, plugins = own_model(tmp_path)
    with (plugins / "model_of_ones_own.py").open("a") as source:
        source.write("import gc, os\nlooks = f'{os.getpid()} {gc.isenabled()} {gc.get_threshold()}'\n")
        source.write(f"open({str(tmp_path / 'looks')!r}, 'a').write(looks + '\\n')\n")
    places = {"config_dirs": [conf], "plugin_paths": [plugins]}
    planning = gc.get_threshold()
    try:
        look_seldom(["run"])
        ran(tmp_path / "runs", "model=own", *SLACK, *TWO, "limit=1", **places)
        looks = (tmp_path / "looks").read_text().splitlines()
        look_as_cases_run()
        of_workers = {look.split(" ", 1)[1] for look in looks if not look.startswith(f"{os.getpid()} ")}
        assert of_workers == {f"True {gc.get_threshold()}"}
    finally:
        gc.set_threshold(*planning)


@pytest.mark.slow
def test_a_case_that_ends_two_workers_becomes_an_error_and_the_others_are_run(tmp_path: Path) -> None:
    conf, plugins = own_model(tmp_path, deadly="Alice")
    places = {"config_dirs": [conf], "plugin_paths": [plugins]}
    one = ["executor=processes", "executor.processes=1", "executor.workers=2"]
    outcome, listener = ran(tmp_path / "runs", "model=own", *SLACK, *one, "user_tasks=[0,1,2,3]", **places)
    deadly = Counter(q for _, q in asked(tmp_path) if "Alice" in q)
    assert set(deadly.values()) == {2} and outcome.fatal is None
    errors = errors_in(records_in(tmp_path / "runs"))
    assert len(errors) == len(deadly) == outcome.errors > 0
    assert all(text.startswith("worker_died: Two workers ended") for text in errors.values())
    assert all("was killed by signal 9" in text for text in errors.values())
    assert outcome.finished == len(listener.records) == 4
    assert {trouble.kind for trouble in outcome.troubles} == {"worker_died"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("temperature", "expected"), [(0.0, 4), (None, 16)], ids=["shared draws", "each case its own"]
)
def test_paid_requests_do_not_depend_on_workers(
    tmp_path: Path, temperature: float | None, expected: int
) -> None:
    """All cases of a user task begin with the same request; the server never says the same twice."""
    plan = ["model=paid", "benchmark.suites=[slack]", "attack=direct", "user_tasks=[0,1]", "limit=8"]

    def answer(number: int, body: dict[str, Any]) -> Any:
        time.sleep(0.02)
        call = {"id": "c1", "type": "function", "function": {"name": "get_channels", "arguments": "{}"}}
        return says(f"{number} {random.random()}", [call] if len(body["messages"]) < 4 else None)

    for name, executor in (("one", ["executor.workers=1"]), ("32", ["executor.workers=32"]), ("two", TWO)):
        with paid_server(answer) as server:
            conf = paid_model(tmp_path / name, server.url, temperature=temperature)
            outcome, _ = ran(tmp_path / name, *plan, *executor, config_dirs=[conf])
        assert (outcome.errors, outcome.finished) == (0, 8)
        assert server.billed == expected, name


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "workers"), [(TWO, 6), (FOUR, 8)])
def test_a_budget_holds_for_all_processes_together(
    processes: list[str], workers: int, tmp_path: Path
) -> None:
    plan = ["model=paid", *SLACK, *processes]
    with paid_server(lambda *_: says()) as server:
        conf = paid_model(tmp_path, server.url)
        outcome, listener = ran(tmp_path / "runs", *plan, "budget.usd=12", config_dirs=[conf])
        assert outcome.budget is not None and "budget.usd=12" in outcome.budget
        assert 12 - USD <= server.billed * USD <= 12 + workers * USD
        assert (outcome.errors, len(listener.records)) == (0, server.billed)
        outcome, rest = ran(tmp_path / "runs", "model=paid", *SLACK, config_dirs=[conf])
    assert (outcome.budget, len(listener.records) + len(rest.records)) == (None, 21)


def _alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_once_finishes_what_runs_and_twice_ends_the_workers(tmp_path: Path, presses: int) -> None:
    conf, plugins = own_model(tmp_path, sleep_s=2.0 if presses == 1 else 600.0)
    command = [sys.executable, "-m", "agentsys", "run", "model=own", *SLACK, *TWO]
    own = ["--config-dir", str(conf), "--plugin-path", str(plugins), f"logdir={tmp_path / 'runs'}"]
    with subprocess.Popen(
        [*command, *own, "preflight=false"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Tests that were started in the background ignore it, and so would what they start.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        deadline = time.monotonic() + 240
        while len(asked(tmp_path)) < 4:  # so both workers are at it
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        if presses == 2:
            time.sleep(1.0)
            process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=240)
    assert process.returncode == 130, said + complained
    assert "Traceback" not in complained
    questions = len(asked(tmp_path))
    assert questions < 21
    assert len(records_in(tmp_path / "runs")) == (questions if presses == 1 else 0)
    deadline = time.monotonic() + 60
    while any(_alive(pid) for pid, _ in asked(tmp_path)):
        assert time.monotonic() < deadline, "a worker outlived its run"
        time.sleep(0.1)


def test_a_finished_run_starts_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = "model=simulated", *SLACK, "limit=1"
    assert ran(tmp_path, *plan)[0].finished == 1
    monkeypatch.setattr(processes.Template, "started", _never)
    monkeypatch.setattr(processes, "_started_afresh", _never)
    outcome, _ = ran(tmp_path, *plan, *TWO)
    assert (outcome.finished, outcome.fatal) == (0, None)
    with pytest.raises(AssertionError, match="a process was started"):
        ran(tmp_path / "new", *plan, *TWO)


def _never(*_: object) -> None:
    raise AssertionError("a process was started")


class Noted:
    """Stands in for a template and runs nothing."""

    gone = False
    events: list[str]

    @classmethod
    def started(cls, command: object, environment: object, configs: Any) -> Noted:
        cls.events.append("begun with " + " ".join(sorted(group for group, _ in configs)))
        return cls()

    @classmethod
    def split_off(cls, configs: Any, work: object) -> Noted:
        cls.events.append("split off with " + " ".join(sorted(group for group, _ in configs)))
        return cls()

    def end(self) -> None:
        self.events.append("ended")


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a template, which is none here, and the run that it is for have come to."""
    if not processes.CAN_COPY:
        pytest.skip("workers are started afresh here")
    monkeypatch.setattr(Noted, "events", [], raising=False)
    monkeypatch.setattr(processes, "Template", Noted)
    return Noted.events


def test_the_template_begins_first_and_is_ended_where_the_run_cannot_begin(
    tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        events.append("plan kept")
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "remember_plan", full)
    with pytest.raises(StoreError):
        ran(tmp_path, "model=served", "preflight=false", "defense=none,drift", *SLACK, *TWO)
    assert events == ["begun with attack benchmark defense defense model", "plan kept", "ended"]


def test_a_command_calls_its_template_up_before_it_asks_the_models(
    tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object) -> tuple[list[Any], list[str]]:
        events.append("models asked")
        raise ConfigError("the model does not answer")

    monkeypatch.setattr(session, "unreachable", asked)
    monkeypatch.setattr(processes.threading, "active_count", lambda: 1)
    run = ["run", "model=simulated", *SLACK, *TWO, "limit=1", f"logdir={tmp_path}"]
    assert CliRunner().invoke(app, [*run, "--dry-run"]).exit_code == 0
    assert events == []
    assert isinstance(CliRunner().invoke(app, run).exception, ConfigError)
    with pytest.raises(ConfigError):
        api.run(run[1:])
    of_ours = ["split off with attack benchmark defense", "models asked", "ended"]
    of_a_script = ["begun with attack benchmark defense", "models asked", "ended"]
    assert events == of_ours + of_a_script


_OF_ONES_OWN = "from agentsys.models.simulated.model import SimulatedModel\nclass Own(SimulatedModel): pass\n"


@pytest.mark.parametrize(
    "other", ["no command", "a thread", "a folder of plug-ins", "a folder of configs", "a model of one's own"]
)
def test_a_template_is_split_off_a_command_that_holds_nothing_but_ours(
    tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    conf, plugins = own_model(tmp_path)
    (plugins / "a_simulated_one.py").write_text(_OF_ONES_OWN)
    monkeypatch.setattr(processes.threading, "active_count", lambda: 2 if other == "a thread" else 1)
    monkeypatch.syspath_prepend(plugins)
    chosen = ["model=simulated", *SLACK, *TWO, "limit=1", f"logdir={tmp_path}"]
    planned = prepare(
        [*chosen, *(["model._target_=a_simulated_one.Own"] if other == "a model of one's own" else [])],
        config_dirs=[conf] if other == "a folder of configs" else [],
        plugin_paths=[plugins] if other == "a folder of plug-ins" else [],
    )
    with planned.called_up(in_command=other != "no command"):
        pass
    assert events == ["begun with attack benchmark defense", "ended"]


def test_a_session_that_was_called_up_runs_in_the_workers_it_has(
    tmp_path: Path, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin(jobs: object, settings: object, staff: object, **_: object) -> None:
        events.append(f"run in its own: {staff is called.staff is not None}")

    monkeypatch.setattr(session, "start_run", begin)
    planned = prepare(["model=simulated", *SLACK, *TWO, "limit=1", f"logdir={tmp_path}"])
    with planned.called_up() as called:
        called.execute(Silent())
    assert events[1:] == ["run in its own: True", "ended"] and planned.staff is None
