"""`find_misfit`, `find_bad_schema`, `find_excess`: other people's JSON, looked through in processes that can be ended.

Schemas, patterns and numbers of a client can keep any checker busy for as long as they like. So each piece of work
has a bound on its CPU time and is done in a process of low priority, which is killed if need be. Whoever asks
has one at a time: the others find one free. What it took is booked to whoever asked (`take_cpu`).
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import select
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from agentsys.base.json_values import is_deeper_than
from agentsys_plugins.serve.served_model import json_worker

MAX_CHECK_S = 0.1
"""CPU seconds that a check of a call's arguments may take."""
MAX_SCHEMAS_S = 2.0
"""The same of all schemas of a request together, and of counting what a body holds."""
_PROCESSES = 4
_PATIENCE = 10
"""Times the bound that a process is waited for, on a busy machine, besides `_START_S`."""
_START_S = 10.0


class _Worker:
    """One process, started when it is first needed and anew when it was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.cpu_s = 0.0
        """CPU seconds of the last piece of work; its bound where that was ended."""

    def ask(self, kind: bytes, seconds: float, raw: bytes) -> str | None:
        process = self._process
        if process is None or process.poll() is not None:
            command = [sys.executable, "-P", str(Path(json_worker.__file__))]
            process = self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        assert process.stdin is not None and process.stdout is not None
        end = time.monotonic() + _START_S + _PATIENCE * seconds
        try:
            process.stdin.write(json_worker.HEAD.pack(len(raw), seconds, kind) + raw)
            process.stdin.flush()
            (size,) = json_worker.LENGTH.unpack(_read(process.stdout.fileno(), json_worker.LENGTH.size, end))
            told: str | None
            told, self.cpu_s = json.loads(_read(process.stdout.fileno(), size, end))
        except (OSError, EOFError):
            self.close()
            self.cpu_s = seconds
            return f"{json_worker.TOO_LONG} {seconds:g} s, or too much memory, to check"
        return told

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _read(file: int, size: int, end: float) -> bytes:
    """Read `size` bytes from a pipe.

    Args:
        file: The pipe's file descriptor.
        size: Number of bytes.
        end: Deadline, by `time.monotonic`.

    Raises:
        EOFError: If the pipe is closed or the deadline passes before that.
    """
    read, poll = b"", select.poll()
    poll.register(file, select.POLLIN)
    while len(read) < size:
        ready = poll.poll(max(0.0, end - time.monotonic()) * 1000)
        more = os.read(file, size - len(read)) if ready else b""
        if not more:
            raise EOFError
        read += more
    return read


_WORKERS = [_Worker() for _ in range(_PROCESSES)]
_FREE: queue.LifoQueue[_Worker] = queue.LifoQueue()
for _worker in _WORKERS:
    _FREE.put(_worker)
    atexit.register(_worker.close)


@lru_cache(maxsize=1024)
def _get_turn(owner: str) -> threading.Lock:
    return threading.Lock()


_SPENT: defaultdict[str, float] = defaultdict(float)
_BOOKS = threading.Lock()


def take_cpu(owner: str) -> float:
    """CPU seconds of the processes that worked for somebody since this was last asked."""
    with _BOOKS:
        return _SPENT.pop(owner, 0.0)


class _Ended(Exception):
    """Work that was ended before it came to a verdict, which no cache may keep."""


def _ask(owner: str, kind: bytes, seconds: float, raw: bytes) -> str | None:
    with _get_turn(owner):
        worker = _FREE.get()
        try:
            told = worker.ask(kind, seconds, raw)
            with _BOOKS:
                _SPENT[owner] += worker.cpu_s
        finally:
            _FREE.put(worker)
    if told is not None and told.startswith(json_worker.TOO_LONG):
        raise _Ended(told)
    return told


def find_bad_schema(tools: Sequence[tuple[str | None, object]], owner: str = "") -> str | None:
    """Find the first fault in the schemas of these tools, by name; None if there is none.

    Args:
        tools: Name and schema of each; the schema of an answer has None for a name.
        owner: Whose they are.
    """
    try:
        raw = json.dumps(tools).encode()
        return _find_bad_schema(raw, owner)
    except (ValueError, TypeError, RecursionError) as error:
        return f"a tool's schema is no JSON: {error}"
    except _Ended as ended:
        return str(ended)


@lru_cache(maxsize=256)
def _find_bad_schema(raw: bytes, owner: str) -> str | None:
    return _ask(owner, b"s", MAX_SCHEMAS_S, raw)


def find_misfit(raw: bytes, values: object, owner: str = "") -> str | None:
    """Find the first fault of arguments by a schema, as JSON; None if there is none."""
    try:
        asked = json.dumps({"schema": raw.decode(), "values": values}, allow_nan=False, default=str)
        return _find_misfit(asked, owner)
    except (ValueError, TypeError, RecursionError) as error:
        return f"these arguments cannot be written as JSON: {error}"
    except _Ended as ended:
        return str(ended)


@lru_cache(maxsize=64)
def _find_misfit(asked: str, owner: str) -> str | None:
    # Asked by a defense that judges a call, and again by the runtime that makes it.
    if len(asked) <= _SMALL:
        whole = json.loads(asked)
        if _is_simple(whole["schema"]) and not is_deeper_than(whole["values"], _FLAT):
            return json_worker.check_values(whole)
    return _ask(owner, b"v", MAX_CHECK_S, asked.encode())


_SMALL = 2048
"""Characters of a simple schema with its values that are checked here: to ask a process takes longer than that."""
_FLAT = 10
_SIMPLE = {
    *(
        "type",
        "properties",
        "required",
        "items",
        "additionalProperties",
        "enum",
        "const",
        "title",
        "description",
    ),
    *("default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
}
"""Keywords that look at each value once: no patterns, references, or choices between schemas."""


@lru_cache(maxsize=1024)
def _is_simple(raw: str) -> bool:
    waiting = [json.loads(raw)]
    for schema in waiting:  # which grows
        if schema is not False and not (isinstance(schema, dict) and schema.keys() <= _SIMPLE):
            return False
        schema = schema or {}
        waiting += dict(schema.get("properties", {})).values()
        waiting += [
            schema[key] for key in ("items", "additionalProperties") if schema.get(key, True) is not True
        ]
    return True


def find_excess(raw: bytes, owner: str) -> str | None:
    """Why the JSON of a request's body is too much to be read here; None if it is not."""
    try:
        return _ask(owner, b"c", MAX_SCHEMAS_S, raw)
    except _Ended as ended:
        return str(ended)
