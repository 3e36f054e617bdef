"""The template of worker processes, with a worker that only answers lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from agentsys.catalog import node
from agentsys.runs.executors.template import CAN_COPY, Copy, GroupConfig, Template

pytestmark = pytest.mark.skipif(not CAN_COPY, reason="workers are started afresh here")

ANSWERS = """
import os, random, sys, types
sys.modules["agentsys.runs.executors.worker"] = types.ModuleType("worker")  # takes seconds to import
import numpy
from agentsys.runs.executors.template import copied
orders, told = copied(*sys.argv[1:])
with os.fdopen(orders) as heard, os.fdopen(told, "w") as said:
    for line in heard:
        if line.startswith("leave"):
            sys.exit(3)
        print(os.getpid(), os.getsid(0), random.random(), numpy.random.random(), file=said, flush=True)
"""


@dataclass
class Answerer:
    """A copy and our ends of its pipes."""

    copy: Copy
    orders: IO[str]
    told: IO[str]

    def asked(self, line: str = "who") -> list[str]:
        print(line, file=self.orders, flush=True)
        return self.told.readline().split()


def made(template: Template) -> Answerer:
    theirs, ours = os.pipe()
    said, told = os.pipe()
    copy = Copy(template, theirs, told)
    os.close(theirs)
    os.close(told)
    return Answerer(copy, os.fdopen(ours, "w"), os.fdopen(said))


@pytest.fixture(scope="module")
def template() -> Iterator[Template]:
    found = started()
    yield found
    found.end()


def started() -> Template:
    return Template.started([sys.executable, "-c", ANSWERS], {**os.environ}, [])


def test_copies_are_processes_of_another_session_that_draw_each_for_itself(template: Template) -> None:
    one, two = made(template), made(template)
    (pid, session, *drawn), (other, _, *others) = one.asked(), two.asked()
    assert (int(pid), int(other)) == (one.copy.pid, two.copy.pid) and pid != other
    assert int(session) != os.getsid(0)
    assert not set(drawn) & set(others)


def test_a_copy_ends_when_told_or_killed_and_its_status_is_known(template: Template) -> None:
    leaving, killed, left_alone, staying = (made(template) for _ in range(4))
    assert leaving.asked("leave") == []
    left_alone.orders.close()  # as by a driver that is gone
    killed.copy.kill()
    assert [one.copy.wait() for one in (leaving, killed, left_alone)] == [3, -signal.SIGKILL, 0]
    killed.copy.kill()  # nobody's any more: nothing happens
    assert staying.asked()[0] == str(staying.copy.pid)


def test_a_template_passes_over_the_signals_that_its_driver_heeds() -> None:
    template = started()
    made(template)
    os.kill(template._process.pid, signal.SIGTERM)
    assert made(template).asked()
    template.end()


def test_copies_go_on_without_their_template_which_ends_with_its_driver() -> None:
    template = started()
    copy = made(template)
    template._socket.close()
    assert template._process.wait(60) == 0 and template.gone
    assert copy.asked()[0] == str(copy.copy.pid)
    with pytest.raises(OSError):
        copy.copy.wait()
    copy.copy.kill()  # cannot be told any more
    copy.orders.close()
    assert copy.told.readline() == ""


def test_what_cannot_be_started_says_so() -> None:
    template = Template.started([sys.executable, "-c", "raise SystemExit"], {**os.environ}, [])
    with pytest.raises(OSError):
        made(template)
    assert template._process.wait(60) == 0


def test_what_copies_need_is_loaded_before_and_what_is_broken_stops_nothing() -> None:
    """In the order of the configs: a suite, a defense and a model's SDK after a class that is nowhere."""
    benchmark = {
        "_target_": "agentsys.benchmarks.agentdojo.AgentDojo",
        "version": "v1.2.2",
        "suites": ["slack"],
    }
    configs: list[GroupConfig] = [
        ("benchmark", benchmark | {"suites": ["no such"]}),
        ("benchmark", benchmark | {"suites": ["slack"]}),
        ("defense", {"_target_": "baselines.nowhere.Nowhere"}),
        ("defense", {"_target_": "baselines.drift.defense.Drift"}),
        ("model", node("model", "served")),
    ]
    template = Template.started([sys.executable, "-c", TELLS], {**os.environ}, configs)
    copy = made(template)
    found = copy.asked()
    copy.orders.close()
    template.end()
    assert found == ["slack", "True", "True", "True"]


@pytest.mark.parametrize("ends", ["quietly", "killed"])
def test_a_template_split_off_its_driver_has_none_of_its_files_handlers_and_last_acts(
    tmp_path: Path, ends: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SPLITS, str(tmp_path / "acts")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    ) as driver:
        assert driver.stdin is not None and driver.stdout is not None
        told = [driver.stdout.readline().split() for _ in range(3)]
        own, template, copy = ({"pid": int(pid), "session": int(session)} for pid, session, *_ in told)
        assert len({own["pid"], template["pid"], copy["pid"]}) == 3
        assert template["session"] == copy["session"] != own["session"]
        assert told[2][2:] == ["loaded:True", "handler:_pass_over", "files:/dev/null"]
        if ends == "killed":
            driver.kill()
        driver.stdin.close()
        assert driver.wait(60) == (-signal.SIGKILL if ends == "killed" else 0)
    deadline = time.monotonic() + 60
    while any(_runs(one["pid"]) for one in (template, copy)):
        assert time.monotonic() < deadline, "it outlived its driver"
        time.sleep(0.02)
    acts = tmp_path / "acts"
    assert (acts.read_text() if acts.exists() else "") == ("" if ends == "killed" else str(own["pid"]))


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


SPLITS = """
import atexit, os, signal, sys, types
from pathlib import Path
sys.modules["agentsys.runs.executors.worker"] = types.ModuleType("worker")
from agentsys.runs.executors.template import Copy, Template
acts = open(sys.argv[1] + ".open", "w")  # the driver's own
atexit.register(lambda: Path(sys.argv[1]).write_text(str(os.getpid())))
def drivers_handler(*_): pass
signal.signal(signal.SIGTERM, drivers_handler)

def work(orders, told):
    loaded = "baselines.drift.defense" in sys.modules
    handler, file = signal.getsignal(signal.SIGTERM).__name__, os.readlink(f"/proc/self/fd/{acts.fileno()}")
    facts = f"loaded:{loaded}", f"handler:{handler}", f"files:{file}"
    os.write(told, " ".join(map(str, (os.getpid(), os.getsid(0), *facts))).encode())
    os.close(told)
    os.read(orders, 1)
    atexit._run_exitfuncs()
    os._exit(0)

template = Template.split_off([("defense", {"_target_": "baselines.drift.defense.Drift"})], work)
theirs, ours = os.pipe()
said, told = os.pipe()
copy = Copy(template, theirs, told)
os.close(theirs), os.close(told)
print(os.getpid(), os.getsid(0))
print(template._process.pid, os.getsid(template._process.pid))
print(os.read(said, 1000).decode(), flush=True)
sys.stdin.read()
os.close(ours)
assert copy.wait() == 0
template.end()
assert template.gone and template._process.wait() == -signal.SIGKILL
"""

TELLS = """
import gc, os, sys, types
sys.modules["agentsys.runs.executors.worker"] = types.ModuleType("worker")
from agentsys.benchmarks.loading.environment import EnvironmentLoader
loaded = []
EnvironmentLoader.load = lambda self, texts: loaded.append(self._suite.name)
from agentsys.runs.executors.template import copied
orders, told = copied(sys.argv[1])
with os.fdopen(orders) as heard, os.fdopen(told, "w") as said:
    heard.readline()
    wanted = "baselines.drift.defense", "openai"
    print(*loaded, gc.isenabled(), *(name in sys.modules for name in wanted), file=said)
"""
