"""Run one foreign guard: JSON lines in, JSON lines out. Standard library only, as it runs in the guard's own Python.

`agentsys_plugins.guards.guard_process` starts it and sends the guard's description first; each further line is a text
to judge, or for a gate a task that begins, a result that a tool gave, or a call to rule on.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from enum import Enum
from typing import Any

_REFERENCE = re.compile(r"\$(\w+)((?:\.\w+)*)")


class NoVerdict(Exception):
    """A guard gave no verdict.

    `kind` is `crash`, `hang`, `raised`, `nonsense`, `doubled`, `cannot_tell`, `start` or `given_up`.
    """

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
    """Read an answer as the guard's YAML says: whether it flags, its score, the cleaned text, what it has read.

    Raises:
        NoVerdict: If something that was declared is not there or not of its kind, or it says that it cannot tell.
    """
    found: dict[str, Any] = {"score": None, "clean": None, "read": None}
    if where["score"] is not None:
        score = _unwrap_number(look_up(answer, where["score"]))
        if score is None and where["flag"] is None:
            raise NoVerdict("cannot_tell", "the score is None")
        if score is not None:
            known = isinstance(score, (int, float)) and not isinstance(score, bool)
            if (
                not known or not abs(score) <= sys.float_info.max
            ):  # no NaN, and no whole number that is none of these
                raise NoVerdict("nonsense", f"the score is {score!r:.60}, no number")
            found["score"] = float(score)
    if where["clean"] is not None:
        found["clean"] = look_up(answer, where["clean"])
        if not isinstance(found["clean"], str):
            raise NoVerdict("nonsense", f"the cleaned text is a {type(found['clean']).__name__}")
    if where["partial"] is not None:
        found["read"] = _read_span(look_up(answer, where["partial"]))
    if where["flag"] is None:
        return {"flag": found["score"] >= where["threshold"], **found}
    flag, flag_is = _unwrap_number(look_up(answer, where["flag"])), where["flag_is"]
    if flag is None and None not in (flag_is or ()):
        raise NoVerdict("cannot_tell", "the flag is None")
    if flag_is is not None:
        names = [flag.name, flag.value] if isinstance(flag, Enum) else []
        flag = any(one in flag_is for one in (flag, *names))
    elif not isinstance(flag, (bool, list, tuple, dict, set, frozenset)):
        raise NoVerdict("nonsense", f"the flag is {flag!r:.60}; a guard that says so needs flag_is")
    return {"flag": bool(flag), **found}


def _unwrap_number(value: Any) -> Any:
    """Turn a number of numpy's, or of a library that has the same method, into a plain one."""
    item = getattr(value, "item", None)
    try:
        return value if item is None or isinstance(value, (Mapping, Enum)) else item()
    except (TypeError, ValueError, RuntimeError):  # it holds several
        return value


def _read_span(value: Any) -> list[int] | None:
    """Where in the text a guard has read: `[first, behind the last]`, or a number of characters; None: all of it."""
    if value is None:
        return None
    pair = list(value) if isinstance(value, (list, tuple)) else [0, value]
    numbers = [_unwrap_number(one) for one in pair]
    if len(numbers) != 2 or not all(isinstance(one, int) for one in numbers):
        raise NoVerdict("nonsense", f"what it has read is {value!r:.60}; give a number of characters, or two")
    return [int(one) for one in numbers]


class HostedGuard:
    """A guard with the objects that its YAML has made; a gate gets new ones with each task."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self.described = described
        self.loop: Any = None
        for step in described["steps"].values():  # what takes long is not to count for the first text
            if step["call"][:1] != "$":
                importlib.import_module(step["call"].partition(":")[0])
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
        made = call(*self._fill(step["give"], values), **self._fill(step["named"], values))
        return self._await(made) if inspect.isawaitable(made) else made

    def _await(self, made: Any) -> Any:
        import asyncio  # few guards need it, and it takes a while

        async def run() -> Any:
            return await made

        # One for good: what a guard has opened belongs to its loop.
        self.loop = self.loop or asyncio.new_event_loop()
        return self.loop.run_until_complete(run())

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
        if what == "task" or (what == "check" and self.described["fresh"] == "text"):
            self.make_objects()
        given = self.take_step(step, request["values"]) if step else None
        return read_verdict(given, self.described["verdict"]) if what == "check" else {"flag": False}


def serve_lines() -> None:
    """Answer JSON lines from standard input until it ends; each answer carries the `id` of its line.

    The first line describes the guard. If the guard cannot be built, the answer says why, and that is the last one.
    """
    # The guard's own prints go to standard error, and its reads find nothing: both pipes are for our lines only.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    questions = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    guard, worker = None, os.getpid()
    for line in iter(questions.readline, ""):
        start = time.process_time()  # CPU time, because a busy machine is not the guard's fault
        reply: dict[str, Any] = {"flag": False}
        asked = json.loads(line)
        try:
            if guard is None:
                sys.path[:0] = asked["paths"]
                guard = HostedGuard(asked)
            else:
                reply = guard.answer(asked)
        except NoVerdict as error:
            reply = {"error": error.kind, "why": error.why}
        except BaseException as error:  # noqa: BLE001 - a panic of compiled code is none of Exception's
            reply = {"error": "raised", "why": f"{type(error).__name__}: {str(error)[:300]}"}
        if os.getpid() != worker:  # The guard forked, and this is the child: only the parent answers.
            os._exit(0)
        reply |= {"ms": (time.process_time() - start) * 1000, "id": asked["id"]}
        # A line break in front: a guard may have written half a line here.
        replies.write(f"\n{json.dumps(reply)}\n")
        replies.flush()
        if guard is None:
            return


if __name__ == "__main__":
    serve_lines()
