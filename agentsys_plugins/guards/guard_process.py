"""`GuardProcess`: a foreign guard at work in a process of its own, shut in, without keys or a word of ours.

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
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentsys.base.json_values import to_plain_data
from agentsys.errors import Unavailable
from agentsys.models.chat import ErrorKind, ModelError
from agentsys.models.providers.bounded_http import ExchangeLimits, make_bounded_client
from agentsys.models.providers.wire_parts import parse_json
from agentsys_plugins.guards.guard_channel import AnswerChannel, LateAnswer
from agentsys_plugins.guards.guard_confinement import (
    SERVICE,
    UNCONFINED,
    WORKER,
    require_confinement,
    start_shut_in,
)
from agentsys_plugins.guards.guard_spec import GuardSpec, find_guard_python, list_readable_paths
from agentsys_plugins.guards.guard_worker import NoVerdict, read_verdict

_START_S = 120.0
"""Seconds a guard has to load what it needs."""
_TRIES = 5
"""Failures in a row after which a guard is given up: each costs a start, or the whole time limit."""
_MOST_ACTS = 40
_SERVICE_BYTES = 1 << 22
"""Most bytes of a service's answer."""
_SETTLE_S = 0.002
"""Seconds in which a command may still contradict its answer; what our own worker writes, it writes once."""
_ALIVE = ("raised", "cannot_tell")
"""Failures of a guard that goes on."""
_OF_THE_WORKER = (*_ALIVE, "nonsense")
"""Failures that the worker tells of."""


class GuardVerdict(BaseModel):
    """A guard's verdict on one text or call."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    flag: bool
    score: float | None = Field(default=None, allow_inf_nan=False)
    clean: str | None = None
    read: tuple[int, int] | None = None
    """The part of the text that it says it has read: first character, and behind the last."""
    ms: float = 0.0
    """Milliseconds of the processor; of a command or a service, by the clock."""
    failed: bool = False
    """Whether it said nothing, and this is what its YAML has follow then."""
    id: str = ""
    """The question's number, where its answer may yet turn out to have a second one."""


class GuardProcess:
    """Asks one guard. May be used from many threads, which take turns.

    Raises:
        Unavailable: If it is not installed, has no key, or this system cannot shut it in and its YAML does not say
            that it may run all the same.
    """

    def __init__(self, spec: GuardSpec) -> None:
        self.spec, self.python = spec, find_guard_python(spec)
        self._way = None if spec.kind == "http" else require_confinement(unconfined=spec.unconfined)
        self.confinement = SERVICE if spec.kind == "http" else self._way or UNCONFINED
        """How it is shut in."""
        self.acts: list[str] = []
        """What it left in its folder, and what it wrote in place of answers; each once."""
        self.failures: Counter[str] = Counter()
        """Kind of failure -> how often."""
        self.last_words = ""
        """Last line of what it wrote to standard error, as far as it has ended; else of what it gave as a reason."""
        self.contradicted: set[str] = set()
        """Numbers of questions whose answers turned out to have a second one when others were put."""
        self._lock = threading.Lock()
        self._folder = tempfile.TemporaryDirectory(prefix="agentsys-guard-", ignore_cleanup_errors=True)
        self._work, self._errors = Path(self._folder.name) / "work", Path(self._folder.name) / "stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: AnswerChannel | None = None
        self._end: Any = None
        self._in_a_row = 0
        self._key = os.environ.get(spec.api_key_env or "", "").strip()
        if spec.api_key_env and not self._key:
            why = f"The guard at {spec.url} needs the variable {spec.api_key_env}: export {spec.api_key_env}=..."
            raise Unavailable(why, needs=spec.api_key_env)
        self._where = spec.describe_for_worker()["verdict"]

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
                self.last_words = self.last_words or error.why
                self._in_a_row = 0 if error.kind in _ALIVE else self._in_a_row + 1
                if self.spec.on_error == "error":
                    raise
                return GuardVerdict(flag=self.spec.on_error == "fail_closed", failed=True)
            self._in_a_row = 0
            return verdict

    def describe_acts(self) -> dict[str, Any]:
        """Describe the process so far, for the record of a case."""
        facts = {"acts": list(self.acts), "stderr": self._read_last_line()}
        if self.confinement == UNCONFINED:
            facts["confinement"] = UNCONFINED
        return {name: value for name, value in facts.items() if value}

    def close(self) -> None:
        """End the process; what it left in its folder is noted before the folder goes."""
        with self._lock:
            self._stop()
            if "_client" in vars(self):
                self._client.close()
            self._note_what_it_left()
            try:
                self._folder.cleanup()
            except RecursionError:  # folders in folders, more than a thousand
                subprocess.run(["rm", "-rf", self._folder.name], check=False)

    def _note_what_it_left(self) -> None:
        folders = [str(self._work)]
        while folders and len(self.acts) < _MOST_ACTS:
            with contextlib.suppress(OSError), os.scandir(folders.pop(0)) as entries:
                for entry in sorted(entries, key=lambda one: one.name)[:_MOST_ACTS]:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                        continue
                    name = os.fsencode(os.path.relpath(entry.path, self._work)).decode(errors="replace")
                    self._add_act(f"left {name} ({entry.stat(follow_symlinks=False).st_size:,} bytes)")

    def _add_act(self, act: str) -> None:
        if act not in self.acts and len(self.acts) < _MOST_ACTS:
            self.acts.append(act)

    def _read_verdict(self, what: str, values: Mapping[str, Any]) -> GuardVerdict:
        start, spec, asked = time.perf_counter(), self.spec, {key: values[key] for key in ("tool", "text")}
        if self._channel is not None and self._channel.is_closed:  # after its answer: no fault of this text
            self._stop()
        try:
            if spec.kind in ("text", "call"):
                said = self._ask_worker({"do": what, "values": values}, spec.timeout_s)
            else:
                reply = self._post(asked) if spec.kind == "http" else self._exchange(asked, spec.timeout_s)
                said = read_verdict(reply, self._where) | {"ms": (time.perf_counter() - start) * 1000}
                said["id"] = str(reply.get("id", "")) if spec.kind == "command" else ""
            return GuardVerdict.model_validate_json(json.dumps(said))
        except ValidationError:
            raise NoVerdict("nonsense", "a reply that is no verdict") from None

    def _ask_worker(self, line: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        reply = self._exchange(line, limit_s)
        if "error" in reply:
            kind = reply["error"] if reply["error"] in _OF_THE_WORKER else "nonsense"
            raise NoVerdict(kind, str(reply.get("why")))
        return reply

    def _exchange(self, line: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Put a question to the process; one that does not answer it once is ended, and so is one asked only once."""
        once = self.spec.kind == "command" and self.spec.lives == "text"
        while True:  # of a process started anew no answer is late
            channel = self._channel or self._start()
            try:
                return channel.ask(line, limit_s, self._is_answer if once else None)
            except LateAnswer as late:
                # Who asked that question has its answer, which nobody can take back now; this one is put anew.
                self.contradicted.add(str(late))
                self.failures["doubled"] += 1
                self._stop()
            except NoVerdict as error:
                ended = error.kind == "crash"
                words = (
                    [f"status {self._wait_for_status()}", self._read_last_line()] if ended else [error.why]
                )
                self._stop()
                raise NoVerdict(error.kind, "; ".join(filter(None, words))) from None
            finally:
                if once:
                    self._stop()

    def _is_answer(self, reply: Mapping[str, Any]) -> bool:
        try:
            read_verdict(reply, self._where)
        except NoVerdict as error:
            return error.kind == "cannot_tell"
        return True

    def _start(self) -> AnswerChannel:
        spec, of_command = self.spec, self.spec.kind == "command"
        env = {"PATH": f"{self.python.parent}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        env |= dict.fromkeys(("HOME", "TMPDIR", "XDG_CACHE_HOME"), str(self._work))
        env |= {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "HF_HUB_OFFLINE": "1"}
        command = spec.find_command() if of_command else (str(self.python), "-s", "-P", str(WORKER))
        limits = {"memory": spec.memory_mb << 20, "processes": spec.processes}
        try:
            with self._errors.open("wb") as errors:
                streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "env": env}
                reads = list_readable_paths(spec)
                process, lifeline = start_shut_in(self._way, command, reads, self._work, limits, **streams)
            self._process, self._end = process, weakref.finalize(self, _end_process, process, lifeline)
            self._channel = AnswerChannel(process, _SETTLE_S if of_command else 0.0)
            if not of_command:
                self._ask_worker(spec.describe_for_worker(), _START_S)
        except (OSError, NoVerdict) as error:
            self._stop()
            raise NoVerdict("start", getattr(error, "why", str(error))) from None
        return self._channel

    def _read_last_line(self) -> str:
        with contextlib.suppress(OSError), self._errors.open("rb") as errors:
            errors.seek(max(0, self._errors.stat().st_size - 2000))
            lines = errors.read().decode(errors="replace").split("\n")
            return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")
        return ""

    def _wait_for_status(self) -> int | None:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # so that the status told is its own
        return self._process.returncode

    def _post(self, asked: Mapping[str, Any]) -> Any:
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            return parse_json(self._client.post(str(self.spec.url), json=asked, headers=headers).content)
        except ModelError as error:
            kinds = {ErrorKind.TIMEOUT: "hang", ErrorKind.MALFORMED_REPLY: "nonsense"}
            raise NoVerdict(kinds.get(error.kind, "crash"), str(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise NoVerdict("crash", f"{type(error).__name__}: {error}") from None

    @cached_property
    def _client(self) -> httpx.Client:
        limits = ExchangeLimits(self.spec.timeout_s, _SERVICE_BYTES, self._key or None)
        client: httpx.Client = make_bounded_client(httpx.Client, limits)
        return client

    def _stop(self) -> None:
        if self._channel is not None and self._channel.strays:
            strays = self._channel.strays.decode(errors="replace").strip()
            self._add_act(f"wrote what is no answer: {strays}")
        if self._process is not None:
            self._end()
            self.last_words = self._read_last_line() or self.last_words
        self._process = self._channel = None


def judge_texts(
    process: GuardProcess, texts: Mapping[str, str], tools: Mapping[str, str] | None = None
) -> dict[str, GuardVerdict | None]:
    """Ask about texts in their order; None where it gave no verdict, or afterwards contradicted it."""
    found: dict[str, GuardVerdict] = {}
    for name, text in texts.items():
        with contextlib.suppress(NoVerdict):
            found[name] = process.ask(text=text, tool=(tools or {}).get(name, "tool"))
    untold = {name for name, one in found.items() if one.failed or one.id in process.contradicted}
    return {name: None if name in untold else found.get(name) for name in texts}


def _end_process(process: subprocess.Popen[bytes], lifeline: int) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(0.0)
    os.close(lifeline)  # the launcher kills whatever the guard has started
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5.0)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(OSError), process:  # waits, and closes its pipes
        pass
