"""`BatchRoutes`: the addresses of files and batches of both vendors, faults included."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable

from agentsys.models.serving import anthropic_batches, openai_batches
from agentsys.models.serving.anthropic_wire import ANTHROPIC
from agentsys.models.serving.batch_desk import BatchDesk
from agentsys.models.serving.faults import FaultKind, FaultPlan
from agentsys.models.serving.openai_wire import OPENAI
from agentsys.models.serving.responses import Response, damaged, fault_response, problem_response
from agentsys.models.serving.wire import Problem, WireError, WireFormat

_LOSES_THE_ANSWER = {FaultKind.RESET, FaultKind.TIMEOUT, FaultKind.TRUNCATED, FaultKind.INVALID_JSON}
"""Faults that strike after the server has done what it was asked to: a batch may be there all the same."""
_IN_A_REPLY = {
    FaultKind.BAD_ARGUMENTS,
    FaultKind.EMPTY_REPLY,
    FaultKind.UNKNOWN_TOOL,
    FaultKind.CONTEXT_LENGTH,
}


class BatchRoutes:
    """Answers what is asked of batches. Whoever asks sees the files and batches sent with the same key alone.

    Args:
        open_desk: Makes a caller's desk; None: no batches are taken (a conversation goes turn by turn).
        plan: The plan of which requests fail, and how.
    """

    def __init__(self, open_desk: Callable[[], BatchDesk] | None, plan: FaultPlan) -> None:
        self._open_desk, self._plan = open_desk, plan
        self._lock = threading.Lock()
        self._desks: dict[str, BatchDesk] = {}

    def get(self, path: str, owner: str) -> Response | None:
        """Answer a GET; None if the path is none of these."""
        if wire := self._wire(path):
            module, desk = anthropic_batches if wire is ANTHROPIC else openai_batches, self._desk(owner)
            return self._answered(wire, path, b"", lambda: module.get(desk, path))
        return None

    def _wire(self, path: str) -> WireFormat | None:
        return None if self._open_desk is None else _wire(path)

    def _desk(self, owner: str) -> BatchDesk:
        with self._lock:
            if owner not in self._desks:
                assert self._open_desk is not None
                self._desks[owner] = self._open_desk()
            return self._desks[owner]

    def post(self, path: str, owner: str, content_type: str, raw: bytes) -> Response | None:
        """Answer a POST; None if the path is none of these."""
        wire = self._wire(path)
        if wire is None:
            return None

        def act() -> Response | None:
            try:
                if wire is ANTHROPIC:
                    return anthropic_batches.post(self._desk(owner), path, raw)
                return openai_batches.post(self._desk(owner), path, content_type, raw)
            except (WireError, ValueError, TypeError, KeyError, AttributeError) as slip:
                return problem_response(wire, Problem(400, f"malformed request: {slip}"))

        # A form's boundary is drawn by chance, and what fails should not be.
        return self._answered(wire, path, b"" if path == openai_batches.FILES else raw, act)

    def _answered(
        self, wire: WireFormat, path: str, raw: bytes, act: Callable[[], Response | None]
    ) -> Response | None:
        content = hashlib.blake2b(path.encode() + b"\n" + raw, digest_size=16).digest()
        fault = self._plan.draw(content)
        kind = None if fault is None or fault.kind in _IN_A_REPLY else fault.kind
        if kind is None:
            return act()
        self._plan.served(kind)
        early = fault_response(wire, kind, self._plan.faults)
        done = act() if kind in _LOSES_THE_ANSWER else None
        return early or (None if done is None else damaged(done, kind))


def _wire(path: str) -> WireFormat | None:
    if path == anthropic_batches.BATCHES or path.startswith(f"{anthropic_batches.BATCHES}/"):
        return ANTHROPIC
    ours = (openai_batches.FILES, openai_batches.BATCHES)
    return OPENAI if any(path == one or path.startswith(f"{one}/") for one in ours) else None
