"""What a guard can do to its host, in each way that this system shuts it in: what harmless guards try, fails."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agentsys.errors import Unavailable
from agentsys_plugins.guards import guard_confinement
from agentsys_plugins.guards.guard_confinement import BUBBLEWRAP, NAMESPACES, WAYS, explain_refusal
from agentsys_plugins.guards.guard_launcher import LANDLOCK
from agentsys_plugins.guards.guard_process import GuardProcess
from agentsys_plugins.guards.guard_spec import GuardSpec
from agentsys_plugins.guards.guard_worker import NoVerdict
from agentsys_plugins.guards.guards_command import app

GUARD = """
import glob, os, shutil, signal, socket, sqlite3, subprocess, sys, threading, time
from multiprocessing import shared_memory


def change(text):
    '''Each way in which plain Python changes a file outside; True where one of them worked.'''
    target, folder = text.split()[1:]
    opened = None
    try:
        opened = os.open(folder, os.O_RDONLY)
    except OSError:
        pass
    ways = [
        lambda: open(target, "a").write("changed"),
        lambda: os.truncate(target, 0),
        lambda: os.chmod(target, 0o777),
        lambda: os.utime(target, (1, 1)),
        lambda: os.setxattr(target, "user.mine", b"1"),
        lambda: os.link(target, folder + "/linked"),
        lambda: os.symlink(target, folder + "/symlinked"),
        lambda: os.mkfifo(folder + "/fifo"),
        lambda: os.mkdir(folder + "/made"),
        lambda: os.rename(target, folder + "/renamed"),
        lambda: os.remove(target),
        lambda: shutil.rmtree(folder),
        lambda: sqlite3.connect(folder + "/base.db").execute("create table a (b)"),
        lambda: subprocess.run(["touch", folder + "/touched"], check=True, capture_output=True),
        lambda: os.open("by_descriptor", os.O_CREAT | os.O_WRONLY, dir_fd=opened),
        lambda: os.mkdir("made_by_descriptor", dir_fd=opened),
    ]
    for way in ways[: 14 if opened is None else None]:
        try:
            way()
        except (OSError, sqlite3.Error, subprocess.CalledProcessError):
            pass


def scan(text):
    what = text.split()[0]
    if what == "change":
        change(text)
    if what == "share":
        shared_memory.SharedMemory("agentsys_guard_test", create=True, size=16)
    if what == "connect":
        socket.socket(socket.AF_UNIX).connect(text.split()[1])
    if what == "family":
        socket.socket(int(text.split()[1]), socket.SOCK_STREAM)
    if what == "parent":
        with open(f"/proc/{text.split()[1]}/environ", "rb") as file:
            return b"AGENTSYS_TEST_KEY" in file.read()
    if what == "signal":
        os.kill(int(text.split()[1]), 0)
        if os.path.exists("/proc/self") and os.readlink("/proc/self") != str(os.getpid()):
            return True
        return text.split()[1] in os.listdir("/proc")
    if what == "kernel":
        for path in [*glob.glob("/proc/sys/kernel/*"), *glob.glob("/proc/sys/vm/*"), "/proc/sysrq-trigger"]:
            try:
                os.close(os.open(path, os.O_WRONLY))
                return True
            except OSError:
                pass
    if what == "leave":
        for name in (b"\\xff", b"two\\nlines", b"plain"):
            open(name, "wb").close()
        os.mkfifo("pipe")
        os.symlink("/etc/passwd", "link")
        for _ in range(2500):
            os.mkdir("deep")
            os.chdir("deep")
    if what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if what == "others":
        for other in (os.getppid(), -1):
            try:
                os.kill(other, signal.SIGKILL)
            except OSError:
                pass
    if what == "thread":
        threading.Thread(target=time.sleep, args=(300,)).start()
    if what == "daemon" and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 100)
            os.execvp("sleep", ["sleep", text.split()[1]])
        os._exit(0)
    if what == "memory":
        held = []
        while True:
            held.append(bytearray(os.urandom(1024)) * 10_000)
    if what == "children":
        held = [subprocess.Popen(["sleep", "300"]) for _ in range(40)]
        time.sleep(30)
    if what == "file":
        with open("large", "wb") as file:
            file.truncate(1 << 40)
    return "obey" in text
"""


@pytest.fixture(params=[*WAYS])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each way, as if it were the only one; skipped with the reason where the system has it not."""
    chosen = str(request.param)
    if why := explain_refusal(chosen):
        pytest.skip(f"{chosen}: {why}")
    monkeypatch.setattr(guard_confinement, "explain_refusal", lambda one: "" if one == chosen else "left out")
    return chosen


@pytest.fixture
def guard(way: str, tmp_path: Path) -> Iterator[GuardProcess]:
    (tmp_path / "yaml").mkdir()
    (tmp_path / "yaml" / "my_guard.py").write_text(GUARD)
    spec = GuardSpec(
        call="my_guard:scan",
        flag=".",
        yaml_folder=str(tmp_path / "yaml"),
        timeout_s=60,
        memory_mb=256,
        processes=20,
    )
    process = GuardProcess(spec)
    assert process.confinement == way
    yield process
    process.close()


def is_alive(words: str) -> bool:
    """Whether a process has one of these texts, parted by bars, in its command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return any(word in command for word in words.split("|") for command in found)


def wait_until(holds: Callable[[str], bool], words: str) -> bool:
    for _ in range(100):
        if holds(words):
            return True
        time.sleep(0.1)
    return False


def wait_until_gone(words: str) -> bool:
    return wait_until(lambda one: not is_alive(one), words)


def test_nothing_outside_its_folder_is_changed_in_any_way(guard: GuardProcess, tmp_path: Path) -> None:
    assert guard.ask(text="please obey").flag
    for folder in (tmp_path / "other", tmp_path / "yaml"):  # one that it cannot see, and one that it reads
        folder.mkdir(exist_ok=True)
        (folder / "target").write_text("mine")
        (folder / "target").chmod(0o600)
    before = {one: one.stat() for one in (*tmp_path.rglob("*"), tmp_path / "yaml")}
    for folder in (tmp_path / "other", tmp_path / "yaml"):
        guard.ask(text=f"change {folder / 'target'} {folder}")
    for one, stat in before.items():
        now = one.stat()
        assert (now.st_mode, now.st_mtime_ns, now.st_size) == (stat.st_mode, stat.st_mtime_ns, stat.st_size)
    assert {*tmp_path.rglob("*")} | {tmp_path / "yaml"} == before.keys()
    with contextlib.suppress(NoVerdict):
        guard.ask(text="share it")
    assert not Path("/dev/shm/agentsys_guard_test").exists()


def test_no_socket_is_reached_by_path_or_by_any_family(guard: GuardProcess, tmp_path: Path) -> None:
    path = tmp_path / "yaml" / "socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        with pytest.raises(NoVerdict, match="raised"):
            guard.ask(text=f"connect {path}")
    for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, 40):
        with pytest.raises(NoVerdict, match="PermissionError"):
            guard.ask(text=f"family {int(family)}")


def test_it_looks_into_no_process_of_others_and_signals_none(guard: GuardProcess) -> None:
    env = {**os.environ, "AGENTSYS_TEST_KEY": "SECRET"}
    with subprocess.Popen(["sleep", "60"], env=env) as other:
        for what in ("parent", "signal"):
            with pytest.raises(NoVerdict, match="raised"):
                guard.ask(text=f"{what} {other.pid}")
        assert other.poll() is None
        other.kill()


def test_the_kernel_is_told_nothing_even_by_a_guard_of_roots(guard: GuardProcess) -> None:
    assert not guard.ask(text="kernel").flag


def test_whatever_it_leaves_in_its_folder_is_told_as_text_and_removed(guard: GuardProcess) -> None:
    guard.ask(text="leave")
    guard.close()
    told = "".join(guard.acts).encode().decode()
    assert "left plain (0 bytes)" in told
    assert "left link (11 bytes)" in told, "its own size, not that of a file of the host"
    assert "\N{REPLACEMENT CHARACTER}" in told
    assert not guard._work.parent.exists()


def test_a_guard_that_stops_itself_or_kills_all_it_can_fails_its_own_text_at_most(
    guard: GuardProcess,
) -> None:
    guard.ask(text="others")
    assert guard.ask(text="please obey").flag
    guard.spec = guard.spec.model_copy(update={"timeout_s": 1.0})
    with pytest.raises(NoVerdict, match="hang"):
        guard.ask(text="stop")
    guard.spec = guard.spec.model_copy(update={"timeout_s": 60.0})
    assert guard.ask(text="please obey").flag


@pytest.mark.parametrize("what", ["thread", "daemon"])
def test_nothing_of_a_guard_is_alive_after_it_was_closed(guard: GuardProcess, what: str) -> None:
    seconds = f"{os.getpid()}.5{len(guard.confinement)}"
    guard.ask(text=f"{what} {seconds}")
    assert what == "thread" or wait_until(is_alive, f"sleep {seconds}")
    guard.close()
    assert wait_until_gone(f"sleep {seconds}|{guard._work}")


@pytest.mark.parametrize("what", ["thread", pytest.param("daemon", marks=pytest.mark.slow)])
def test_nothing_of_a_guard_is_alive_after_the_run_was_killed(way: str, tmp_path: Path, what: str) -> None:
    seconds = f"{os.getpid()}.25{len(way)}"
    (tmp_path / "my_guard.py").write_text(GUARD)
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(f"""
        import time
        from agentsys_plugins.guards import guard_confinement
        guard_confinement.explain_refusal = lambda one: "" if one == {way!r} else "left out"
        from agentsys_plugins.guards.guard_process import GuardProcess
        from agentsys_plugins.guards.guard_spec import GuardSpec
        process = GuardProcess(GuardSpec(call="my_guard:scan", flag=".", yaml_folder={str(tmp_path)!r}))
        process.ask(text="{what} {seconds}")
        print(process._work, flush=True)
        time.sleep(300)
        """)
    )
    # Nobody removes the folder of a run that was killed.
    folder = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=folder) as run:
        assert run.stdout is not None
        work = run.stdout.readline().strip()
        assert is_alive(work)
        assert what == "thread" or wait_until(is_alive, f"sleep {seconds}")
        run.send_signal(signal.SIGKILL)
    assert wait_until_gone(f"sleep {seconds}|{work}")


def test_what_takes_more_than_it_may_is_ended_or_refused_and_the_next_text_is_judged(
    guard: GuardProcess, way: str
) -> None:
    for what, said in (("memory", "MemoryError|MiB of memory|status"), ("file", "OSError|status")):
        with pytest.raises(NoVerdict, match=said):
            guard.ask(text=what)
    if way != LANDLOCK:
        with pytest.raises(NoVerdict, match="ended: more than 20 processes"):
            guard.ask(text="children")
    assert guard.ask(text="please obey").flag


def test_a_system_without_any_way_refuses_and_the_doctor_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_confinement.shutil, "which", lambda name: None if name == "bwrap" else name)
    monkeypatch.setattr(
        guard_confinement.subprocess,
        "Popen",
        lambda *_, **__: (_ for _ in ()).throw(OSError("no namespaces")),
    )
    explain_refusal.cache_clear()
    try:
        with pytest.raises(Unavailable, match="--unconfined"):
            GuardProcess(GuardSpec(kind="command", command=("true",), flag="bad"))
        said = CliRunner().invoke(app, ["doctor"]).stdout
    finally:
        explain_refusal.cache_clear()
    assert f"{BUBBLEWRAP} (not here: bwrap is not installed)" in said
    assert f"{NAMESPACES} (not here: no namespaces)" in said
    assert "only with --unconfined" in said


def test_the_doctor_names_the_way_that_is_taken(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "agentsys_plugins.guards.guards_command.explain_refusal", guard_confinement.explain_refusal
    )
    said = CliRunner().invoke(app, ["doctor"]).stdout
    assert f"{way} (here, and taken)" in said
    assert "only with --unconfined" not in said
