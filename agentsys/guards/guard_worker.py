"""Run one foreign guard: JSON lines in, JSON lines out. Standard library only, as it runs in the guard's own Python.

`agentsys.guards.guard_process` starts it and sends the guard's description first; each further line is a text to
judge, or for a gate a task that begins, a result that a tool gave, or a call to rule on.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

_REFERENCE = re.compile(r"\$(\w+)((?:\.\w+)*)")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "shutil.rmtree")
"""Audit events whose first two arguments may be paths that are changed."""
_PEERS = ("socket.connect", "socket.bind", "socket.sendto")
_TOLD = (
    *_PEERS,
    "socket.getaddrinfo",
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
)
"""Audit events that are told, with their first argument; of `_PEERS` the second is the address."""
_MOST_ACTS = 40


class NoVerdict(Exception):
    """A guard gave no verdict. `kind` is `crash`, `hang`, `raised`, `nonsense`, `start` or `given_up`."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(f"the guard gave no verdict ({kind}: {why})")
        self.kind, self.why = kind, why


def look_up(value: Any, path: str) -> Any:
    """Follow a path of keys, attributes and indices into an answer; `.` is the answer itself.

    Raises:
        NoVerdict: If it leads nowhere.
    """
    for part in filter(None, path.split(".")):
        try:
            if isinstance(value, Mapping):
                value = value[part]
            elif isinstance(value, (list, tuple)) and part.lstrip("-").isdigit():
                value = value[int(part)]
            else:
                value = getattr(value, part)
        except (KeyError, IndexError, AttributeError):
            raise NoVerdict("nonsense", f"no '{part}' in a {type(value).__name__} (path {path})") from None
    return value


def read_verdict(answer: Any, where: Mapping[str, Any]) -> dict[str, Any]:
    """Read an answer as the guard's YAML says: whether it flags, its score, the cleaned text.

    Raises:
        NoVerdict: If something that was declared is not there or not of its kind.
    """
    score = clean = None
    if where["score"] is not None:
        score = look_up(answer, where["score"])
        if isinstance(score, bool) or not isinstance(score, (int, float)) or not math.isfinite(score):
            raise NoVerdict("nonsense", f"the score is {score!r:.60}, no number")
        score = float(score)
    if where["clean"] is not None:
        clean = look_up(answer, where["clean"])
        if not isinstance(clean, str):
            raise NoVerdict("nonsense", f"the cleaned text is a {type(clean).__name__}")
    if where["flag"] is None:
        return {"flag": score is not None and score >= where["threshold"], "score": score, "clean": clean}
    flag, flag_is = look_up(answer, where["flag"]), where["flag_is"]
    if flag_is is not None:
        names = [flag.name, flag.value] if isinstance(flag, Enum) else []
        flag = any(one in flag_is for one in (flag, *names))
    elif not isinstance(flag, (bool, list, tuple, dict, set, frozenset)):
        raise NoVerdict("nonsense", f"the flag is {flag!r:.60}; a guard that says so needs flag_is")
    return {"flag": bool(flag), "score": score, "clean": clean}


class HostedGuard:
    """A guard with the objects that its YAML has made; a gate gets new ones with each task."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self.described = described
        self.make_objects()

    def make_objects(self) -> None:
        """Make every object of the YAML, in order."""
        self.objects: dict[str, Any] = {}
        for name, step in self.described["objects"].items():
            self.objects[name] = self.take_step(step, {})

    def take_step(self, step: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        """Call what a step names, with its arguments filled in."""
        target = step["call"]
        module, _, path = target.partition(":")
        call = self._fill(target, {}) if target[:1] == "$" else look_up(importlib.import_module(module), path)
        return call(*self._fill(step["give"], values), **self._fill(step["named"], values))

    def _fill(self, value: Any, values: Mapping[str, Any]) -> Any:
        """Put what `{name}` and `$object.path` stand for in their places."""
        if isinstance(value, str):
            if value[:1] == "{" and value[1:-1] in values:
                return values[value[1:-1]]
            found = _REFERENCE.fullmatch(value)
            if found is None:
                return value
            if found[1] not in self.objects:
                raise NoVerdict("nonsense", f"'{value}' names no object of the YAML")
            return look_up(self.objects[found[1]], found[2])
        if isinstance(value, list):
            return [self._fill(one, values) for one in value]
        if isinstance(value, dict):
            return {key: self._fill(one, values) for key, one in value.items()}
        return value

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what one line asks for; what a gate is only told has no verdict."""
        what, step = request["do"], self.described["steps"].get(request["do"])
        if what == "task":
            self.make_objects()
        given = self.take_step(step, request["values"]) if step else None
        return read_verdict(given, self.described["verdict"]) if what == "check" else {"flag": False}


def add_act(acts: list[str], act: str) -> None:
    """Add what was done to the host, each once and the first ones."""
    if act not in acts and len(acts) < _MOST_ACTS:
        acts.append(act)


def watch_host(folder: str) -> list[str]:
    """Refuse what Python code from now on writes outside a folder; the list tells what it does to its host.

    By an audit hook: compiled code gets past it. What holds against that is the namespace without network.
    """
    acts: list[str] = []

    def watch_event(event: str, args: tuple[Any, ...]) -> None:
        verb, paths = event.partition(".")[2] + "s", args[:2] if event in _CHANGES else ()
        if event == "open":
            path, mode, flags = args
            writes = set("wax+") & set(mode) if isinstance(mode, str) else flags & _WRITES
            verb, paths = "writes", (path,) if writes else ()
        elif event in _TOLD:
            what = args[event in _PEERS] if args else ""
            add_act(acts, f"{event} {what!s:.100}".rstrip())
        for path in paths:
            real = os.path.realpath(os.fsdecode(path)) if isinstance(path, (str, bytes)) else "/dev/"
            if real.startswith(folder + os.sep):
                add_act(acts, f"{verb} {real[len(folder) + 1 :][:100]}")
            elif not real.startswith("/dev/") and not real.endswith(".pyc"):
                add_act(acts, f"{verb} {real[:100]} (refused)")
                raise PermissionError(f"a guard writes into its own folder only, not {real[:100]}")

    sys.addaudithook(watch_event)
    return acts


def serve_lines() -> None:
    """Answer lines until there are no more; the first describes the guard."""
    # What the guard prints goes to standard error: the lines stay ours.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
    guard: HostedGuard | None = None
    acts = watch_host(os.path.realpath(Path.cwd()))
    for line in iter(sys.stdin.readline, ""):
        start = time.process_time()  # of the processor: what else the machine does is not the guard's
        reply: dict[str, Any] = {"flag": False}
        try:
            asked = json.loads(line)
            if guard is None:
                sys.path[:0] = asked["paths"]
                guard = HostedGuard(asked)
            else:
                reply = guard.answer(asked)
        except NoVerdict as error:
            reply = {"error": error.kind, "why": error.why}
        except BaseException as error:  # noqa: BLE001 - a panic of compiled code is none of Exception's
            reply = {"error": "raised", "why": f"{type(error).__name__}: {str(error)[:300]}"}
        reply |= {"ms": (time.process_time() - start) * 1000, "acts": acts}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
        if guard is None:
            return


if __name__ == "__main__":
    serve_lines()
