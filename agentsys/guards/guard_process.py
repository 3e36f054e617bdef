"""`GuardProcess`: a foreign guard at work in a process of its own, without keys, network or a word of ours.

One process serves a run. A guard that crashes, hangs or speaks nonsense has failed on that text: it is started
anew for the next one, and given up when it does nothing else.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import weakref
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from agentsys.base.json_values import to_plain_data
from agentsys.errors import Unavailable
from agentsys.guards import guard_worker
from agentsys.guards.guard_spec import GuardSpec, find_guard_python
from agentsys.guards.guard_worker import NoVerdict, add_act, read_verdict

_START_S = 120.0
"""Seconds a guard has to load what it needs."""
_TRIES = 5
"""Failures in a row after which a guard is given up: each costs a start, or the whole time limit."""
_LONGEST_LINE = 1 << 24


class GuardVerdict(BaseModel):
    """What a guard said of one text or call."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    flag: bool
    score: float | None = None
    clean: str | None = None
    ms: float = 0.0
    """Milliseconds of the processor; of a command or a service, by the clock."""
    failed: bool = False
    """Whether it said nothing, and this is what its YAML has follow then."""


@lru_cache(maxsize=1)
def find_namespace() -> tuple[str, ...] | None:
    """The command that starts another one without network; None where the system lets nobody do that."""
    command = ("unshare", "-Urn")
    try:
        run = subprocess.run([*command, "true"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return command if run.returncode == 0 else None


class GuardProcess:
    """Asks one guard. May be used from many threads, which take turns.

    Raises:
        Unavailable: If it is not installed, or would have a network and its YAML does not say that it may.
    """

    def __init__(self, spec: GuardSpec) -> None:
        if spec.kind != "http" and not spec.unconfined and find_namespace() is None:
            raise Unavailable(
                "A guard runs without network, and this system gives no namespace (unshare -Urn): add"
                " --unconfined, or unconfined: true to its YAML, to run it with yours.",
                needs="unshare",
            )
        self.spec, self.python = spec, find_guard_python(spec)
        self.acts: list[str] = []
        """What it did to its host, as far as that is seen; each once."""
        self.failures: Counter[str] = Counter()
        """Kind of failure -> how often."""
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="agentsys-guard-", ignore_cleanup_errors=True)
        self._work, self._errors = Path(self._folder.name) / "work", Path(self._folder.name) / "stderr"
        self._work.mkdir()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Any = None
        self._in_a_row = 0
        self._key = os.environ.get(spec.api_key_env or "", "")

    def ask(
        self,
        what: Literal["check", "task", "observe"] = "check",
        *,
        text: str = "",
        tool: str = "tool",
        task: str = "",
        args: Mapping[str, Any] | None = None,
    ) -> GuardVerdict:
        """Put a question, `check`, about a text that a tool returned or a call that is to run.

        A gate is told of a user's request that begins (`task`) and of a tool's result (`observe`) besides.

        Raises:
            NoVerdict: If the guard fails and its YAML wants the case errored then.
        """
        values = {"text": text, "tool": tool, "task": task, "args": to_plain_data(args or {})}
        with self._lock:
            try:
                if self._in_a_row >= _TRIES:
                    raise NoVerdict("given_up", f"it failed {_TRIES} times in a row")
                verdict = self._read_verdict(what, values)
            except NoVerdict as error:
                self.failures[error.kind] += 1
                # A guard that raises is alive.
                self._in_a_row = 0 if error.kind == "raised" else self._in_a_row + 1
                if self.spec.on_error == "error":
                    raise
                return GuardVerdict(flag=self.spec.on_error == "fail_closed", failed=True)
            self._in_a_row = 0
            return verdict

    def describe_acts(self) -> dict[str, Any]:
        """What it did until now, for the record of a case."""
        return {"acts": list(self.acts)} if self.acts else {}

    def close(self) -> None:
        """End the process; what it left in its folder is noted before the folder goes."""
        with self._lock:
            self._stop()
            # What it has started may have outlived it, and be at work there.
            with contextlib.suppress(OSError):
                for path in sorted(self._work.rglob("*")):
                    if path.is_file():
                        size = f"{path.stat().st_size:,} bytes"
                        add_act(self.acts, f"left {path.relative_to(self._work)} ({size})")
            self._folder.cleanup()

    def _read_verdict(self, what: str, values: Mapping[str, Any]) -> GuardVerdict:
        try:
            if self._has_worker:
                return GuardVerdict.model_validate(self._ask_worker({"do": what, "values": values}))
            start, asked = time.perf_counter(), {"tool": values["tool"], "text": values["text"]}
            reply = self._post(asked) if self.spec.kind == "http" else self._exchange(asked)
            verdict = read_verdict(reply, self.spec.describe_for_worker()["verdict"])
            return GuardVerdict(**verdict, ms=(time.perf_counter() - start) * 1000)
        except ValidationError:
            raise NoVerdict("nonsense", "a reply that is no verdict") from None

    @property
    def _has_worker(self) -> bool:
        """Whether a program of ours is asked, which calls the guard's package."""
        return self.spec.kind not in ("command", "http")

    def _ask_worker(self, line: Mapping[str, Any], limit_s: float | None = None) -> Mapping[str, Any]:
        reply = self._exchange(line, limit_s)
        acts = reply.pop("acts", None)
        for act in acts if isinstance(acts, list) else ():
            add_act(self.acts, str(act)[:200])
        if "error" in reply:
            raise NoVerdict(str(reply["error"]), str(reply.get("why")))
        return reply

    def _exchange(self, line: Mapping[str, Any], limit_s: float | None = None) -> dict[str, Any]:
        """Send a line and read one; a process that does not answer with one is ended."""
        process, limit_s = self._process or self._start(), limit_s or self.spec.timeout_s
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(limit_s, _kill_group, [process])
        start = time.monotonic()
        timer.start()
        try:
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()
            written = process.stdout.readline(_LONGEST_LINE)
        except OSError:  # it has ended
            written = b""
        finally:
            timer.cancel()
        late = time.monotonic() - start >= limit_s
        with contextlib.suppress(ValueError, RecursionError):
            reply = json.loads(written)
            if isinstance(reply, dict) and not late:
                return reply
        if late:
            error = NoVerdict("hang", f"nothing in {limit_s:g} s")
        elif written:
            error = NoVerdict("nonsense", "a line that is no JSON object")
        else:
            error = NoVerdict("crash", self._read_last_words(process))
        self._stop()
        raise error

    def _start(self) -> subprocess.Popen[bytes]:
        worker = (str(self.python), "-s", "-P", str(Path(str(guard_worker.__file__)).resolve()))
        env = {
            "PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin",
            **dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(self._work)),
            **{"LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"},
            "HF_HUB_OFFLINE": "1",
        }
        try:
            with self._errors.open("wb") as errors:
                process = subprocess.Popen(
                    [*(find_namespace() or ()), *(worker if self._has_worker else self.spec.command)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    cwd=self._work,
                    env=env,
                    start_new_session=True,
                )
            self._process, self._end = process, weakref.finalize(self, _end_process, process)
            if self._has_worker:
                self._ask_worker(self.spec.describe_for_worker(), _START_S)
        except (OSError, NoVerdict) as error:
            self._stop()
            raise NoVerdict("start", getattr(error, "why", str(error))) from None
        return process

    def _read_last_words(self, process: subprocess.Popen[bytes]) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)  # so that the status told is its own
        lines = self._errors.read_text(errors="replace")[-2000:].split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"status {process.returncode}; {last[:200]}"

    def _post(self, asked: Mapping[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        limit_s = self.spec.timeout_s
        try:
            reply = httpx.post(str(self.spec.url), json=asked, headers=headers, timeout=limit_s)
            return reply.raise_for_status().json()
        except httpx.TimeoutException:
            raise NoVerdict("hang", f"nothing in {limit_s:g} s") from None
        except httpx.HTTPError as error:
            raise NoVerdict("crash", type(error).__name__) from None
        except (ValueError, RecursionError):
            raise NoVerdict("nonsense", "a reply that is no JSON") from None

    def _stop(self) -> None:
        if self._process is not None:
            self._end()
        self._process = None


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)  # with whatever it has started


def _end_process(process: subprocess.Popen[bytes]) -> None:
    _kill_group(process)
    with contextlib.suppress(OSError), process:  # waits, and closes its pipes
        pass
