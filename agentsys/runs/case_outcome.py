"""`CaseOutcome`: the result of running a case, built once; `CaseEnd`: what is stored of it."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agentdojo.types import ChatMessage

from agentsys.models.trace import Tracer
from agentsys.records.schema import CaseRecord
from agentsys.runs.case_watch import ExposureWatch
from agentsys.runs.cell import Job

_LONGEST_TRACEBACK = 20_000


@dataclass(frozen=True)
class CaseError:
    """The error that a case ended in."""

    kind: str
    message: str
    traceback: str | None = None
    """Traceback of a foreign code's exception."""
    ends_run: bool = False
    """True if every further case would fail alike (a bad key)."""
    ends_cell: bool = False
    """True if every further case of its cell would fail alike (a defense that cannot be built here)."""
    cause: Exception | None = None
    """The exception itself."""


@dataclass(frozen=True, kw_only=True)
class CaseOutcome:
    """Result of running a case; `build_record` makes the stored record of it."""

    job: Job
    tracer: Tracer
    watch: ExposureWatch = field(default_factory=lambda: ExposureWatch({}))
    written: Mapping[str, str] = field(default_factory=dict)
    """Injection vector -> text as the attack wrote it."""
    drawn: Sequence[str] = ()
    """Random numbers that the suite's tools drew, in order."""
    utility: bool = False
    security: bool = False
    """True means that the injection task was carried out, as in AgentDojo."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """The suite's own measures besides the two scores."""
    messages: Sequence[ChatMessage] = ()
    judges_thoughts: bool = False
    """True if the checks saw the thoughts in the last message."""
    attempts: int = 0
    """Runs of the pipeline."""
    noop: bool = False
    error: CaseError | None = None
    started: float
    """Seconds since the epoch."""
    duration_s: float

    def fail(self, error: CaseError) -> CaseOutcome:
        """Copy the outcome as that of a case that ended in an error: nothing of it counts as solved."""
        return replace(self, utility=False, security=False, error=error)

    @property
    def shown_messages(self) -> Sequence[ChatMessage]:
        """The messages of the last run of the pipeline; of an errored case at least the latest context."""
        return self.messages or (() if self.error is None else self.tracer.last_main_messages)


@dataclass(frozen=True)
class CaseEnd:
    """A finished case as it is stored, and what it means for the run."""

    record: CaseRecord
    agentdojo: Mapping[str, Any]
    """The fields that AgentDojo's loader reads, `error` among them."""
    fatal: str | None = None
    """The reason to start no further case."""
    cell_ended: str | None = None
    """The reason to start no further case of its cell."""


def make_tracer(job: Job) -> Tracer:
    """Start the trace of a case."""
    return Tracer(case=job.case.key, usage_log=job.cell.usage_log)


def format_traceback(error: BaseException | None) -> str:
    """Format an exception's traceback; the middle of a very long one (a runaway recursion) is cut out."""
    text = "".join(traceback.format_exception(error))
    half = _LONGEST_TRACEBACK // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n[...]\n{text[-half:]}"
