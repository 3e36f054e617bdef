"""Declared fields that code can fill in from a tool's own value, so that nobody has to read it."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from pydantic import BaseModel

from agentsys.defense.agentsys_settings import FillMode
from agentsys.defense.call_trace import has_closed_format
from agentsys.defense.intent import Intent
from agentsys.models.untrusted import Reader, Untrusted

STATUS_ONLY: Intent = {"status": "string"}
"""What a call that only acts declares."""
STATUS_LIST = [{"field": "status", "type": "string"}]
"""The same as models are asked to write it."""
DONE_STATUS = "done"


@dataclass(frozen=True)
class FilledFields:
    """The fields that code filled in, and those left for a worker."""

    fields: Mapping[str, Any]
    rest: Intent


def fill_fields(value: Untrusted[Any], intent: Intent, how: FillMode) -> FilledFields:
    """The declared fields that need no reader.

    Args:
        value: The tool's return value, before it was written as text.
        intent: The declared return value.
        how: The fields that code may fill in.
    """
    if how is FillMode.NONE:
        return FilledFields({}, intent)
    if intent == STATUS_ONLY:
        return FilledFields({"status": DONE_STATUS}, {})
    fields = _fill_typed(value.open_for(Reader.GATE), intent) if how is FillMode.TYPED else {}
    return FilledFields(fields, {name: kind for name, kind in intent.items() if name not in fields})


def _fill_typed(value: Any, intent: Intent) -> dict[str, Any]:
    """Leaves that a single record or a single value gives by its type.

    Free text is never filled in, nor anything out of a list: which record is meant is for a reader to say.
    """
    if isinstance(value, bool | int | float | datetime.date):
        if len(intent) == 1:
            ((name, kind),) = intent.items()
            return _fill_leaf(name, value, kind)
        return {}
    record = _fold_record(value)
    found: dict[str, Any] = {}
    for name, kind in intent.items():
        held = record.get(_fold_name(name), ())
        if len(held) == 1:
            found |= _fill_leaf(name, held[0], kind)
    return found


def _fold_record(value: Any) -> dict[str, list[Any]]:
    """A record's values by folded name; several where names differ by case and underscores only."""
    if isinstance(value, BaseModel):
        value = {name: getattr(value, name) for name in type(value).model_fields}
    record: dict[str, list[Any]] = {}
    if isinstance(value, Mapping):
        for name, child in value.items():
            record.setdefault(_fold_name(str(name)), []).append(child)
    return record


def _fold_name(name: str) -> str:
    return name.replace("_", "").casefold()


def _fill_leaf(name: str, value: Any, kind: Any) -> dict[str, Any]:
    plain = _convert_plain(value)
    fits = {
        "string": isinstance(plain, str),
        "boolean": isinstance(plain, bool),
        "integer": isinstance(plain, int) and not isinstance(plain, bool),
        "number": isinstance(plain, int | float) and not isinstance(plain, bool),
    }
    if isinstance(plain, float) and not math.isfinite(plain):
        return {}
    closed = has_closed_format(value) and (plain is None or (isinstance(kind, str) and fits[kind]))
    return {name: plain} if closed else {}


def _convert_plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value
