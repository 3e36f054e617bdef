"""Claims: one owner at a time, freed when it ends, taken over when it died; under many processes and kills, too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from small_runs import Silent, records_in

from agentsys.base.atomic_file import Process
from agentsys.runs.claims import Claims
from agentsys.runs.run_session import prepare_session
from agentsys.runs.store import Store, StoreError

HOLDER = """
import sys, time
from pathlib import Path
from agentsys.runs.claims import Claims
from agentsys.runs.store import Store
with Claims(Store(Path(sys.argv[1]))) as claims:
    print(claims.take("case"), flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / ".agentsys/claims").iterdir())


def test_what_one_holds_another_cannot_take_until_it_is_released(tmp_path: Path) -> None:
    with Claims(Store(tmp_path)) as one, Claims(Store(tmp_path)) as other:
        assert one.take("case")
        assert not one.take("case")
        assert not other.take("case")
        assert other.take("other case")
        assert other.list_other_processes() == [Process.here()]
        one.release("case")
        one.release("never taken")
        assert other.take("case")
        assert not one.take("case")
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_changed_any_more_is_one_line_and_hides_no_other_error(
    tmp_path: Path,
) -> None:
    folder = tmp_path / ".agentsys" / "claims"
    with pytest.raises(StoreError, match="Not a directory"), Claims(Store(tmp_path)) as one:
        assert one.take("case") and one.take("other case")
        folder.rename(tmp_path / "old")
        folder.write_text("")  # Nobody can write below it, root included.
        one.release("case")
        one._store.marker = None
        one.take("third case")


def test_what_an_ended_run_could_not_remove_is_free_for_the_next_run_of_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch, Claims(Store(tmp_path)) as one:
        assert one.take("case")
        patch.setattr(Path, "unlink", refuse)
    assert len(names(tmp_path)) == 2
    with Claims(Store(tmp_path)) as other:
        assert other.take("case")
    assert names(tmp_path) == []


def test_a_folder_that_may_no_longer_be_looked_into_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with Claims(Store(tmp_path)) as one, monkeypatch.context() as patch:
        patch.setattr(Path, "stat", refuse)
        with pytest.raises(StoreError, match="Permission denied"):
            one.take("case")


def test_a_dead_claim_that_cannot_be_removed_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with Claims(Store(tmp_path)) as one:
        assert one.take("case")
        left = next(path for path in one._folder.iterdir() if path.suffix != ".alive")
        (one._folder / f"{left.stem}.0000-1-1-dead").touch()
        one.release("case")
        monkeypatch.setattr(Path, "unlink", refuse)
        with pytest.raises(StoreError, match="Permission denied"):
            one.take("case")


def test_ending_a_run_gives_everything_back(tmp_path: Path) -> None:
    with Claims(Store(tmp_path)) as other:
        with pytest.raises(ZeroDivisionError), Claims(Store(tmp_path)) as one:
            assert one.take("case")
            raise ZeroDivisionError
        assert other.take("case")
        assert other.list_other_processes() == []


def test_what_a_killed_process_held_is_free_at_once_and_its_traces_are_removed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "True\n"
        with Claims(Store(tmp_path)) as claims:
            assert [process.pid for process in claims.list_other_processes()] == [child.pid]
            assert not claims.take("case")
            child.kill()
            child.wait()
            assert claims.take("case")
    (tmp_path / f".x.json.{'0' * 8}-1-1-1.tmp").write_text("")
    with Claims(Store(tmp_path)):
        assert len(names(tmp_path)) == 1, "its own sign of life"
    assert names(tmp_path) == []


def test_what_two_processes_remove_at_once_troubles_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removing = Path.unlink
    away(tmp_path, beats=False)

    def at_once(path: Path, *how: object, **more: bool) -> None:
        removing(path)
        removing(path, *how, **more)  # type: ignore[arg-type]

    left_behind = tmp_path / f".x.json.{Process.here()._replace(pid=2**22 + 1).mark}-1.tmp"
    left_behind.touch()
    monkeypatch.setattr(Path, "unlink", at_once)
    with Claims(Store(tmp_path)) as claims:
        assert names(tmp_path) == [claims._heartbeat.name] and not left_behind.exists()
        away(tmp_path, beats=False)
        assert claims.take("case")
        claims.release("case")


def test_a_heart_beats_as_long_as_its_run_goes_on(tmp_path: Path) -> None:
    with Claims(Store(tmp_path), patience_s=0.06) as claims:
        os.utime(claims._heartbeat, (0, 0))
        end = time.monotonic() + 30
        while claims._heartbeat.stat().st_mtime == 0:
            assert time.monotonic() < end
            time.sleep(0.01)
        beating = claims._ended
    assert beating.is_set()


def away(folder: Path, beats: bool) -> Path:
    """An owner on another machine, with a claim on `case`."""
    import hashlib

    owner = f"{Process.here()._replace(machine='0' * 8).mark}-abcd"
    claims = folder / ".agentsys/claims"
    claims.mkdir(parents=True, exist_ok=True)
    heartbeat = claims / f"{owner}.alive"
    if beats:
        heartbeat.touch()
    (claims / f"{hashlib.sha256(b'case').hexdigest()[:32]}.{owner}").touch()
    return heartbeat


def test_an_owner_elsewhere_lives_as_long_as_its_heart_beats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Claims(Store(tmp_path), patience_s=100) as claims:
        heartbeat = away(tmp_path, beats=True)
        for beat in range(4):
            os.utime(heartbeat, (beat, beat))  # its clock may be wrong by decades: that it changes counts
            monkeypatch.setattr(time, "monotonic", lambda now=60.0 * beat: now)
            assert not claims.take("case")
        for now, alive in ((180.0 + 99, True), (180.0 + 101, False)):
            monkeypatch.setattr(time, "monotonic", lambda now=now: now)
            assert claims.take("case") is not alive


class Hours:
    """A clock that sleeping moves on, and what else happens meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.now, self.meanwhile = 0.0, meanwhile
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr("agentsys.runs.claims.time", clock)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 1000, "it watches for ever"
        self.meanwhile()


def test_whether_somebody_elsewhere_lives_is_watched_where_it_must_be_certain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Claims(Store(tmp_path), patience_s=100) as claims:
        heartbeat = away(tmp_path, beats=True)
        hours = Hours(monkeypatch, lambda: os.utime(heartbeat, (7, 7)))
        assert len(claims.find_living_processes()) == 1
        assert hours.now < 1, "one beat will do"
        hours.meanwhile = lambda: None
        assert claims.find_living_processes() == [] and hours.now > 100
        assert not heartbeat.exists()
        assert claims.list_other_processes() == claims.find_living_processes() == []
    assert caplog.text.count("watching for up to 100 seconds") == 2


def test_a_folder_whose_run_died_with_its_machine_can_be_run_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = ["model=simulated", "benchmark.suites=[slack]", "limit_per_suite=1", f"logdir={tmp_path}"]
    assert prepare_session(plan).execute(Silent()).finished == 1
    Hours(monkeypatch)
    away(tmp_path, beats=True)
    assert prepare_session(plan, again=True).execute(Silent()).finished == 1
    assert names(tmp_path) == []


@pytest.mark.parametrize("days", [0.5, 1.5])
def test_a_heart_that_has_not_beaten_for_a_day_was_of_a_machine_that_went_down(
    days: float, tmp_path: Path
) -> None:
    heartbeat = away(tmp_path, beats=True)
    os.utime(heartbeat, (then := time.time() - days * 86_400, then))
    with Claims(Store(tmp_path)) as claims:
        assert len(claims.list_other_processes()) == (days < 1)
        assert claims.take("case") == (days > 1)


def test_waiting_for_a_claim_ends_when_it_is_free_or_given_up(tmp_path: Path) -> None:
    with Claims(Store(tmp_path)) as one, Claims(Store(tmp_path)) as other:
        assert one.take("search")

        def tired() -> None:
            raise TimeoutError

        with pytest.raises(TimeoutError), other.hold("search", tired):
            raise AssertionError("held by two")
        threading.Timer(0.2, one.release, ["search"]).start()
        with other.hold("search"):
            assert not one.take("search")
        assert one.take("search")


def test_among_many_threads_and_owners_each_thing_has_one_owner_at_a_time(tmp_path: Path) -> None:
    store, holding, most = Store(tmp_path), Counter[str](), Counter[str]()
    guard = threading.Lock()

    def work(claims: Claims) -> int:
        done = 0
        for turn in range(60):
            name = f"case {turn % 3}"
            if claims.take(name):
                with guard:
                    holding[name] += 1
                    most[name] = max(most[name], holding[name])
                time.sleep(0)
                with guard:
                    holding[name] -= 1
                claims.release(name)
                done += 1
        return done

    with Claims(store) as a, Claims(store) as b, Claims(store) as c, ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(work, [a, b, c, a, b, c])) > 0
    assert set(most.values()) == {1}


SUPPORT = Path(__file__).parents[1] / "support"
SMALL = ["model=simulated", "executor.workers=2", "benchmark.suites=[slack,workspace]"]
SEARCHED = ["model=simulated", "executor.workers=2", "benchmark.suites=[slack]", "user_tasks=[1,2,3,4]"]


def together(folder: Path, processes: int, kills: int, *overrides: str) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    program = str(SUPPORT / "processes_for_runs.py")
    command = [sys.executable, program, str(folder), str(processes), str(kills), *overrides]
    path = os.pathsep.join([str(SUPPORT), str(SUPPORT.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert set(summary["ends"]) == {0}, done.stderr
    return summary


def alone(folder: Path, plan: list[str]) -> dict[str, Any]:
    """The records of one process that nobody disturbs."""
    together(folder / "alone", 1, 0, *plan)
    return records_in(folder / "alone/runs")


def left_over(folder: Path) -> list[str]:
    """Temporary files, claims and signs of life."""
    claims = [str(path) for path in (folder / "runs/.agentsys/claims").iterdir()]
    return claims + [str(path) for path in (folder / "runs").rglob(".*.tmp")]


@pytest.mark.slow
def test_a_search_that_several_cases_need_is_made_by_one_process(tmp_path: Path) -> None:
    plan = [*SEARCHED, "attack=pair", "attack.mode=transfer", "injection_tasks=[1,2]"]
    summary = together(tmp_path, 3, 0, *plan)
    assert len(summary["stored"]) == len(set(summary["stored"]))
    assert {line for line in summary["stored"] if ".attempts/" not in line} == set(summary["planned"])
    assert left_over(tmp_path) == []
    assert records_in(tmp_path / "runs") == alone(tmp_path, plan)
    artefact = Path(".agentsys/searches")
    ours, its = (
        {path.name: path.read_bytes() for path in (folder / "runs" / artefact).rglob("*.json")}
        for folder in (tmp_path, tmp_path / "alone")
    )
    assert ours.keys() == its.keys()
    assert all(json.loads(ours[name]) == json.loads(its[name]) for name in ours)


@pytest.mark.parametrize(
    ("processes", "kills", "limit"),
    [
        pytest.param(3, 4, 4, marks=pytest.mark.slow),
        pytest.param(8, 0, 40, marks=pytest.mark.slow),
        pytest.param(8, 60, 40, marks=pytest.mark.slow),
    ],
)
def test_many_processes_and_many_kills_lose_and_double_nothing(
    processes: int, kills: int, limit: int, tmp_path: Path
) -> None:
    plan = [*SMALL, "attack=none,direct", "defense=none,agentsys", f"limit_per_suite={limit}"]
    summary = together(tmp_path, processes, kills, *plan)
    stored = summary["stored"]
    assert summary["joined"] >= 1
    assert len(stored) == len(set(stored)), "a case was stored twice"
    # Who is killed between storing a case and saying so has said nothing; the records tell.
    assert set(stored) <= set(summary["planned"])
    assert len(stored) >= len(summary["planned"]) - kills
    assert kills == 0 or summary["killed under way"] >= kills // 2
    assert left_over(tmp_path) == []
    records = records_in(tmp_path / "runs")
    assert sorted(records) == sorted(summary["planned"])
    assert records == alone(tmp_path, plan)
