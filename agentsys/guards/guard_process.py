"""`GuardProcess`: a foreign guard at work in a process of its own, without keys, network or a word of ours.

One process serves a run. A guard that crashes, hangs or speaks nonsense has failed on that text: it is started
anew for the next one, and given up when it does nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.base.json_values import to_plain_data
from agentsys.errors import ConfigError, Unavailable
from agentsys.guards import guard_worker
from agentsys.guards.guard_spec import GuardSpec, guard_python
from agentsys.guards.guard_worker import NonsenseReply, read_verdict

_START_S = 120.0
"""Seconds a guard has to load what it needs."""
_TRIES = 5
"""Failures in a row after which a guard is given up: each costs a start, or the whole time limit."""
_LONGEST_LINE = 1 << 24


class NoVerdict(Exception):
    """A guard gave no verdict. `kind` is `crash`, `hang`, `raised`, `nonsense`, `start` or `given_up`."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"the guard gave no verdict ({kind}: {why})")
        self.kind = kind


class GuardVerdict(BaseModel):
    """What a guard said of one text or call."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    flag: bool
    score: float | None
    clean: str | None
    ms: float
    """Milliseconds of the processor; of a command or a service, by the clock."""


@lru_cache(maxsize=1)
def find_namespace() -> tuple[str, ...] | None:
    """The command that starts another one without network; None where the system lets nobody do that."""
    command = ("unshare", "-Urn")
    try:
        run = subprocess.run([*command, "true"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return command if run.returncode == 0 else None


def check_confinement(spec: GuardSpec) -> None:
    """Look whether a guard can be run as it is to be.

    Raises:
        Unavailable: If it would have a network and its YAML does not say that it may.
    """
    if spec.kind != "http" and not spec.unconfined and find_namespace() is None:
        raise Unavailable(
            "A guard runs without network, and this system gives no namespace (unshare -Urn): add --unconfined,"
            " or unconfined: true to its YAML, to run it with yours.",
            needs="unshare -Urn",
        )


class GuardProcess:
    """Asks one guard. May be used from many threads, which take turns."""

    def __init__(self, spec: GuardSpec) -> None:
        check_confinement(spec)
        self.spec = spec
        self.python = guard_python(spec)
        self.acts: list[str] = []
        """What it did to its host, as far as that is seen; each once."""
        self.failures: dict[str, int] = {}
        """Kind of failure -> how often."""
        self._lock = threading.Lock()
        self._work = Path(tempfile.mkdtemp(prefix="agentsys-guard-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._in_a_row = 0
        self._started: list[subprocess.Popen[bytes]] = []
        self._finalizer = weakref.finalize(self, _clean_up, self._work, self._started)
        self._key = os.environ.get(spec.api_key_env or "", "")

    def judge_text(self, text: str, tool: str = "tool", task: str = "") -> GuardVerdict:
        """Ask about a text that a tool returned.

        Raises:
            NoVerdict: If it gave no verdict.
        """
        return self._read(self._ask("check", {"text": text, "tool": tool, "task": task, "args": {}}))

    def begin_task(self, task: str) -> None:
        """Tell a gate that another user's request begins.

        Raises:
            NoVerdict: If it failed.
        """
        self._ask("task", {"task": task})

    def show_result(self, tool: str, text: str) -> None:
        """Show a gate what a tool returned.

        Raises:
            NoVerdict: If it failed.
        """
        self._ask("observe", {"tool": tool, "text": text})

    def rule_on_call(self, tool: str, args: Mapping[str, Any]) -> GuardVerdict:
        """Ask a gate about a call; a flag refuses it.

        Raises:
            NoVerdict: If it gave no verdict.
        """
        return self._read(
            self._ask("check", {"tool": tool, "args": to_plain_data(args), "text": "", "task": ""})
        )

    def close(self) -> None:
        """End the process; what it left in its folder is noted before the folder goes."""
        with self._lock:
            self._stop()
            for path in sorted(self._work.rglob("*"))[:20] if self._work.is_dir() else ():
                if path.is_file() and path.name != "stderr":
                    self._note([f"left {path.relative_to(self._work)} ({path.stat().st_size:,} bytes)"])
            self._finalizer()

    def _read(self, reply: Mapping[str, Any]) -> GuardVerdict:
        try:
            return GuardVerdict.model_validate({key: reply[key] for key in ("flag", "score", "clean", "ms")})
        except (KeyError, ValidationError):
            raise self._fail("nonsense", "a reply that is no verdict") from None

    def _ask(self, what: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        with self._lock:
            if self._in_a_row >= _TRIES:
                raise self._fail("given_up", f"it failed {_TRIES} times in a row")
            reply = self._post(values) if self.spec.kind == "http" else self._exchange(what, values)
            self._in_a_row = 0
            return reply

    def _exchange(self, what: str, values: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._process is None:
            self._start()
        start = time.perf_counter()
        own = self.spec.kind != "command"
        line = {"do": what, "values": values} if own else {"tool": values["tool"], "text": values["text"]}
        self._send(line)
        reply = self._receive(self.spec.timeout_s)
        return self._take_note(reply) if own else self._judge_answer(reply, start)

    def _start(self) -> None:
        inside = () if self.spec.unconfined else find_namespace() or ()
        own = self.spec.kind != "command"
        worker = (str(self.python), "-s", "-P", str(Path(str(guard_worker.__file__)).resolve()))
        env = {
            "PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin",
            **dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(self._work)),
            **{
                "LANG": "C.UTF-8",
                "PYTHONHASHSEED": "0",
                "PYTHONDONTWRITEBYTECODE": "1",
                "HF_HUB_OFFLINE": "1",
            },
        }
        with (self._work / "stderr").open("wb") as errors:
            try:
                self._process = subprocess.Popen(
                    [*inside, *(worker if own else self.spec.command)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=self._work,
                    env=env,
                    start_new_session=True,
                )
            except OSError as error:
                raise self._fail("start", str(error)) from None
        self._started.append(self._process)
        self._buffer = b""
        if own:
            self._send(self.spec.describe_for_worker())
            reply = self._receive(_START_S)
            if "error" in reply:
                self._stop()
                self._note(reply["acts"])
                raise self._fail("start", str(reply.get("why")))
            self._note(reply["acts"])

    def _send(self, line: Mapping[str, Any]) -> None:
        pipe = self._pipe("stdin")
        try:
            pipe.write(json.dumps(line).encode() + b"\n")
            pipe.flush()
        except OSError:
            raise self._crash() from None

    def _receive(self, limit_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        pipe = self._pipe("stdout")
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    self._stop()
                    raise self._fail("hang", f"nothing in {limit_s:g} s")
                piece = os.read(pipe.fileno(), 1 << 16)
                if not piece:
                    raise self._crash()
                self._buffer += piece
                if len(self._buffer) > _LONGEST_LINE:
                    self._stop()
                    raise self._fail("nonsense", "a reply without end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        with contextlib.suppress(ValueError, RecursionError):
            reply = json.loads(line)
            if isinstance(reply, dict):
                return reply
        self._stop()
        raise self._fail("nonsense", "a line that is no JSON object")

    def _take_note(self, reply: dict[str, Any]) -> dict[str, Any]:
        self._note(str(act) for act in reply.pop("acts", ()))
        if "error" in reply:
            raise self._fail(str(reply["error"]), str(reply.get("why")))
        return reply

    def _judge_answer(self, answer: Any, start: float) -> Mapping[str, Any]:
        try:
            verdict = read_verdict(answer, self.spec.describe_for_worker()["verdict"])
        except NonsenseReply as error:
            raise self._fail("nonsense", str(error)) from None
        return {**verdict, "ms": (time.perf_counter() - start) * 1000}

    def _post(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        start = time.perf_counter()
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        body = {"tool": values["tool"], "text": values["text"]}
        try:
            reply = httpx.post(str(self.spec.url), json=body, headers=headers, timeout=self.spec.timeout_s)
            reply.raise_for_status()
            return self._judge_answer(reply.json(), start)
        except httpx.TimeoutException:
            raise self._fail("hang", f"nothing in {self.spec.timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise self._fail("crash", type(error).__name__) from None
        except ValueError:
            raise self._fail("nonsense", "a reply that is no JSON") from None

    def _note(self, acts: Any) -> None:
        self.acts += [act for act in acts if act not in self.acts]

    def _fail(self, kind: str, why: str) -> NoVerdict:
        self.failures[kind] = self.failures.get(kind, 0) + 1
        self._in_a_row = 0 if kind == "raised" else self._in_a_row + 1  # a guard that raises is alive
        return NoVerdict(kind, why)

    def _crash(self) -> NoVerdict:
        process = self._process
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.0)  # so that the status told is its own
        self._stop()
        lines = (self._work / "stderr").read_text(errors="replace")[-2000:].split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return self._fail("crash", f"status {process.returncode if process else None}; {last[:200]}")

    def _stop(self) -> None:
        if self._process is not None:
            _end_process(self._process)
            self._started.clear()
        self._process = None

    def _pipe(self, name: str) -> IO[bytes]:
        if self._process is None:
            raise ConfigError("the guard's process has ended")
        return getattr(self._process, name)  # type: ignore[no-any-return]


def _clean_up(work: Path, started: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in started:
        _end_process(process)
    shutil.rmtree(work, ignore_errors=True)


def _end_process(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)  # with whatever it has started
    process.wait()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if pipe is not None:
                pipe.close()
