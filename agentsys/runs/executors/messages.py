"""What a driver and its workers say to each other: plain data, small, never a message of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentsys.models.budget import Budget, MeterReading
from agentsys.records.case import Case
from agentsys.records.schema import CaseRecord
from agentsys.runs.executors.stored_case import CaseEnd
from agentsys.runs.settings import Settings
from agentsys.runs.store import Version


@dataclass(frozen=True)
class Orders:
    """What a worker is told at its start."""

    logdir: Path
    """Absolute."""
    here: Path
    """Folder that relative paths in settings start from."""
    threads: int
    """Cases whose agents are at work at once."""
    config_dirs: tuple[Path, ...] = ()
    plugin_paths: tuple[Path, ...] = ()
    budget: Budget = field(default_factory=Budget)
    log_levels: tuple[tuple[str, int], ...] = ()
    """Logger -> its level."""


@dataclass(frozen=True)
class CellToBuild:
    """A cell, told to each worker before its first case."""

    number: int
    settings: Settings
    config_hash: str
    """As the driver computed it: a worker with other code or versions finds another one."""
    notes: tuple[str, ...]


@dataclass(frozen=True)
class CaseTask:
    """A case to run."""

    number: int
    """Counts the driver's tasks."""
    cell: int
    case: Case
    seen: Version | None
    """The record as it was when the run was planned."""


@dataclass(frozen=True)
class CaseTasks:
    """Some cases to run."""

    tasks: Sequence[CaseTask]


@dataclass(frozen=True)
class Drain:
    """Begin no further case; those that have not begun come back."""


@dataclass(frozen=True)
class SpentElsewhere:
    """What the run has spent outside this worker."""

    reading: MeterReading


Order = CellToBuild | CaseTasks | Drain | SpentElsewhere


@dataclass(frozen=True)
class Ready:
    """The worker is up."""

    pid: int
    node: str = ""


@dataclass(frozen=True)
class Ended:
    """A case is stored."""

    task: int
    end: CaseEnd
    """Its record without conversations."""


@dataclass(frozen=True)
class NotRun:
    """A case was not run here."""

    task: int
    stored: bool = False
    """Another process has stored it meanwhile."""
    claimed: bool = False
    """Another process is at it."""
    over_budget: bool = False
    """The run may spend no more."""


@dataclass(frozen=True)
class AttemptMade:
    """An attempt of a search is stored."""

    record: CaseRecord


@dataclass(frozen=True)
class WorkerSpent:
    """What this worker has spent so far."""

    reading: MeterReading


@dataclass(frozen=True)
class CannotGoOn:
    """Every further case would fail alike: the log folder cannot be written, or a cell not be built."""

    why: str


Told = Ready | Ended | NotRun | AttemptMade | WorkerSpent | CannotGoOn


def briefly(record: CaseRecord) -> CaseRecord:
    """A record as it travels: what counts and rates need, without conversations and injected texts."""
    longest = max(record.spans, key=lambda span: span.duration_s, default=None)
    spans = [] if longest is None else [longest.model_copy(update=_NO_CONVERSATION)]
    return record.model_copy(update={"spans": spans, "written": {}, "measured": {}, "drawn": ()})


_NO_CONVERSATION: dict[str, object] = {"messages": [], "calls": [], "decision": {}}
