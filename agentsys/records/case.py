"""`Case`, the unit of work, and `UnreadableRecord`, for a stored file that should hold one and does not.

A plan is a list of cases. A case names its own file: `Case.key` is the record's path under the log folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, ValidationError

_UNSAFE = re.compile(r"[^A-Za-z0-9._+=@,-]+")


ATTEMPTS = ".attempts"
"""Ending of the folder, beside a case's file, that holds the attempts of a search."""


@lru_cache(maxsize=8192)
def make_safe_name(name: str) -> str:
    """A name as a single path component: anything unusual becomes `_`. Applied once, at the disk's border."""
    safe = _UNSAFE.sub("_", name)
    return safe if safe.strip(".") else f"_{safe}"


class Case(BaseModel):
    """One user task, with or without an injection task, under one attack, defense, model and epoch."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmark: str
    """The benchmark's label, e.g. `agentdojo`; options that change what the model reads are part of it."""
    version: str
    """The benchmark's version, e.g. `v1.2.2`."""
    suite: str
    user_task_id: str
    injection_task_id: str | None
    """None in benign cases."""
    attack: str
    """The attack's label; `none` in benign cases."""
    model: str
    """The model's label (its config's name, plus options changed on the command line)."""
    defense: str
    """The defense's label, likewise."""
    epoch: int = 0
    """Which repetition, from 0."""

    @property
    def pipeline(self) -> str:
        """Folder name of everything but tasks and attack. Never parsed: the record holds the fields."""
        name = f"{self.model}__{self.defense}__{self.benchmark}-{self.version}"
        return make_safe_name(name if self.epoch == 0 else f"{name}__epoch{self.epoch}")

    @property
    def key(self) -> str:
        """Stable and unique: the record's path under the log folder, in AgentDojo's layout."""
        injection = make_safe_name(self.injection_task_id or "none")
        parts = (
            self.pipeline,
            make_safe_name(self.suite),
            make_safe_name(self.user_task_id),
            make_safe_name(self.attack),
        )
        return "/".join((*parts, f"{injection}.json"))

    def make_attempt_key(self, number: int) -> str:
        """Path of one attempt of a search made on this case."""
        return f"{self.key.removesuffix('.json')}{ATTEMPTS}/{number:04d}.json"


UNKNOWN_FIELDS = "unknown fields ignored: "
"""Begins a case's note about fields of its file that this version does not know."""

ODD_NUMBERS = "numbers taken for unknown: "
"""Begins a case's note about columns for which its file has no number that can be counted."""
STANDS_TWICE = "stands twice in the record, and not the same: "
"""Begins a case's note about fields of AgentDojo's that our own block contradicts."""
CALLS_DIFFER = "messages and spans differ in a call: "
"""Begins a case's note about a call that its messages have otherwise than its spans."""

_LONGEST_NAME = 40


class UnreadableRecord(Exception):
    """A file that looks like a stored case and is skipped; the message is one short reason."""


class UnfinishedRecord(UnreadableRecord):
    """A file whose run was not finished: it has no scores."""


def describe_first_fault(error: ValidationError) -> str:
    """The first thing pydantic found wrong, as one line without the offending value.

    Returns:
        E.g. `case.suite: Field required`; values stay out, since a stored file may hold anything.
    """
    fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in fault["loc"])
    return f"{place}: {fault['msg']}"


def note_unknown_fields(names: Iterable[object]) -> tuple[str, ...]:
    """The note of one file about fields that nothing reads; none where there are none."""
    listed = sorted(repr(str(name)[:_LONGEST_NAME])[1:-1] for name in names)
    return (UNKNOWN_FIELDS + ", ".join(listed),) if listed else ()
