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

from agentsys_plugins.guards.guard_worker import NoVerdict

MOST_STRAY_BYTES = 2000
"""Of what is no answer, what is kept."""
_MOST_BYTES = 1 << 24
"""Of everything written in place of one answer."""


class LateAnswer(Exception):
    """A question that had its answer, the one of this number, was answered again while another one was put."""


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

    def ask(
        self,
        question: Mapping[str, Any],
        limit_s: float,
        is_answer: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> dict[str, Any]:
        """Put a question and find the one answer with its number.

        Args:
            question: What is asked.
            limit_s: Seconds until the answer has to be there.
            is_answer: Of a process that is asked this alone, and read until it ends: what an answer is, which may
                come without the number.

        Raises:
            NoVerdict: If there is none in time, or more than one.
            LateAnswer: If there is another one to a question before.
        """
        number, deadline = secrets.token_hex(8), time.monotonic() + limit_s
        self._send({"id": number, **question}, deadline)
        if is_answer:
            with suppress(OSError):
                self._input.close()
        answers: list[dict[str, Any]] = []
        unnumbered: list[tuple[bytes, dict[str, Any]]] = []
        size, until = 0, deadline
        while (piece := self._receive(until)) is not None:
            self._rest += piece or b"\n"
            *lines, self._rest = self._rest.split(b"\n") if b"\n" in (piece or b"\n") else (self._rest,)
            for line in lines:
                found = _parse_line(line)
                if found.get("id") == number:
                    answers.append(found)
                elif str(found.get("id")) in self._answered:
                    raise LateAnswer(str(found["id"]))
                elif is_answer and is_answer(found):
                    unnumbered.append((line, found))
                else:
                    self._keep_stray(line)
            size += len(piece)
            if not piece or size > _MOST_BYTES or (len(answers) > 1 and not is_answer):
                break
            if answers and not is_answer:
                until = time.monotonic() + self._settle_s
        self._answered.add(number)
        if is_answer and piece == b"" and not answers:
            answers = [found for _, found in unnumbered]
        else:
            for line, _ in unnumbered:
                self._keep_stray(line)
        if len(answers) > 1:
            raise NoVerdict("doubled", "two answers to one question")
        if answers and (piece == b"" or not is_answer):
            return answers[0]
        if piece == b"":
            raise NoVerdict("crash", "ended without an answer")
        if piece is not None:
            raise NoVerdict("nonsense", f"more than {_MOST_BYTES:,} bytes that are no answer")
        raise NoVerdict("hang", f"no answer in {limit_s:g} s")

    @property
    def is_closed(self) -> bool:
        """True if the process has ended, or answers no more."""
        waiting = select.poll()
        waiting.register(self._output.fileno(), 0)
        return bool(waiting.poll(0))

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
