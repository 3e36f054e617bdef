"""`rescored_facts`: what `agentsys rescore --out` wrote beside a foreign record's scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

RESCORED = "rescored"
"""Key of a foreign record; its `measured` has the names that our own records use (docs/fixes.md)."""


class _Measured(BaseModel):
    """The facts. Whatever else stands there is nobody's."""

    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)

    fixes: list[str]
    utility_fixed: bool | None
    security_fixed: bool | None
    changed_by: list[str] = []
    repeats: int | None = None
    utility_of_answer: bool | None = None


def rescored_facts(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The facts for `CaseRow.measured`; empty where there are none, or not in this form.

    Args:
        stored: A foreign file's JSON object.
    """
    note = stored.get(RESCORED)
    if not isinstance(note, Mapping) or not note.get("measured"):
        return {}
    try:
        return _Measured.model_validate(note["measured"]).model_dump(exclude_unset=True)
    except ValidationError:
        return {}  # without fixed scores, which is counted wherever they are asked for
