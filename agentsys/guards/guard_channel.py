"""`AnswerChannel`: questions to a process and its answers, a JSON line each, which belong together by a number.

The number is drawn at random: a line that a guard prints, whatever it is, does not hold it by accident.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from agentsys.guards.guard_worker import NoVerdict

MOST_STRAY_BYTES = 2000
"""Of what is no answer, what is kept."""
_MOST_BYTES = 1 << 24
"""Of everything written in place of one answer."""


class LateAnswer(Exception):
    """A question that had its answer was answered again, while another one was put."""

    def __init__(self, number: str) -> None:
        super().__init__("two answers to one question")
        self.number = number
        """The question's."""


class AnswerChannel:
    """The two ends of a process, of which this has the other ones.

    Args:
        process: The process, with pipes.
        settle_s: Seconds in which an answer may still be contradicted by a second one.
    """

    def __init__(self, process: subprocess.Popen[bytes], settle_s: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output, self._settle_s = process.stdin, process.stdout, settle_s
        os.set_blocking(self._input.fileno(), False)
        os.set_blocking(self._output.fileno(), False)
        self._answered: set[str] = set()
        self._rest = b""
        self.strays = b""
        """The beginning of what was no answer to any question."""

    def ask(self, question: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Put a question and find the one answer with its number.

        Raises:
            NoVerdict: If there is none in time, or more than one.
            LateAnswer: If there is another one to a question before.
        """
        number, deadline = secrets.token_hex(8), time.monotonic() + limit_s
        self._send({"id": number, **question}, deadline)
        answers: list[dict[str, Any]] = []
        read = 0
        while (
            piece := self._receive(time.monotonic() + self._settle_s if answers else deadline)
        ) is not None:
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                found = _parse_line(line)
                if found.get("id") == number:
                    answers.append(found)
                elif str(found.get("id")) in self._answered:
                    raise LateAnswer(str(found["id"]))
                else:
                    self._keep_stray(line)
            read += len(piece)
            if not piece or len(answers) > 1 or read > _MOST_BYTES:
                break
        self._answered.add(number)
        return _choose(answers, deadline, limit_s, ended=piece == b"")

    @property
    def is_closed(self) -> bool:
        """Whether the process has ended, or answers no more."""
        waiting = select.poll()
        waiting.register(self._output.fileno(), 0)
        return bool(waiting.poll(0))

    def ask_once(
        self, question: Mapping[str, Any], limit_s: float, is_answer: Callable[[Mapping[str, Any]], bool]
    ) -> dict[str, Any]:
        """Put the only question there is, and read until the process ends: an answer may come without its number.

        Raises:
            NoVerdict: If there is none in time, or more than one.
        """
        number, deadline = secrets.token_hex(8), time.monotonic() + limit_s
        self._send({"id": number, **question}, deadline)
        with suppress(OSError):
            self._input.close()
        written = b""
        while (piece := self._receive(deadline)) and len(written) <= _MOST_BYTES:
            written += piece
        ended, answers = piece == b"", []
        lines = [(line, _parse_line(line)) for line in written.split(b"\n")]
        numbered = any(found.get("id") == number for _, found in lines)
        for line, found in lines:
            if ended and (found.get("id") == number if numbered else is_answer(found)):
                answers.append(found)
            else:
                self._keep_stray(line)
        return _choose(answers, deadline, limit_s, ended=ended)

    def _send(self, question: Mapping[str, Any], deadline: float) -> None:
        left = memoryview(json.dumps(question).encode() + b"\n")
        with suppress(BrokenPipeError):  # it has ended, and what it wrote before is still to be read
            while left and _wait(self._input.fileno(), select.POLLOUT, deadline):
                left = left[os.write(self._input.fileno(), left) :]

    def _receive(self, until: float) -> bytes | None:
        """Read what was written; b"": nothing will be any more, None: nothing until then."""
        fileno = self._output.fileno()
        return os.read(fileno, 1 << 16) if _wait(fileno, select.POLLIN, until) else None

    def _keep_stray(self, line: bytes) -> None:
        if line.strip():
            self.strays = (self.strays + line + b"\n")[:MOST_STRAY_BYTES]


def _choose(answers: list[dict[str, Any]], deadline: float, limit_s: float, *, ended: bool) -> dict[str, Any]:
    if len(answers) == 1:
        return answers[0]
    if answers:
        raise NoVerdict("doubled", "two answers to one question")
    if ended:
        raise NoVerdict("crash", "ended without an answer")
    if time.monotonic() < deadline:
        raise NoVerdict("nonsense", f"more than {_MOST_BYTES:,} bytes that are no answer")
    raise NoVerdict("hang", f"no answer in {limit_s:g} s")


def _wait(fileno: int, event: int, until: float) -> bool:
    waiting = select.poll()  # `select` knows no descriptor above 1023
    waiting.register(fileno, event)
    return bool(waiting.poll(max(0.0, until - time.monotonic()) * 1000))


def _parse_line(line: bytes) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return {}
