"""`tool_text`: a tool's value as the text a model reads, letter for letter AgentDojo's own.

AgentDojo dumps what tools return as YAML with PyYAML's pure-Python dumper, which was a fifth of a
run's CPU time in Workspace. The items of such lists - mails, events, files - are the same ones in
nearly every case, so their dumps are remembered. libyaml's dumper would be faster too, but it
folds and escapes differently, and models would read other texts.
"""

from __future__ import annotations

import datetime
import pickle
from functools import lru_cache
from typing import Any

import yaml
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str

_KEPT = 2048
"""Dumps remembered; an item has a kilobyte or two."""
_NEVER_ALIASED = (str, bytes, bool, int, float, type(None))
"""What PyYAML writes out each time, whoever else holds the same object."""


def tool_text(value: Any) -> str:
    """Exactly what `tool_result_to_str` makes of a tool's value, faster."""
    return str(tool_result_to_str(value, dump_fn=safe_dump))


def safe_dump(data: Any) -> str:
    """Exactly what `yaml.safe_dump` makes of plain data, faster where lists hold items seen before."""
    if isinstance(data, list) and data and _holds_nothing_twice(data):
        try:
            # Equal pickles are equal data, types and order included; where pickles of equal data
            # differ, only time is lost. They are read back right here, never from elsewhere.
            pickled = [pickle.dumps(item, pickle.HIGHEST_PROTOCOL) for item in data]
        except (pickle.PicklingError, TypeError, AttributeError):
            return str(yaml.safe_dump(data))
        # A block sequence is its items' texts one after the other, unless one refers to another.
        return "".join([_dump_of_one(item) for item in pickled])
    return str(yaml.safe_dump(data))


@lru_cache(maxsize=_KEPT)
def _dump_of_one(pickled: bytes) -> str:
    return str(yaml.safe_dump([pickle.loads(pickled)]))


def _holds_nothing_twice(data: list[Any]) -> bool:
    """Whether no object stands at two places: YAML would write it once and refer to it later, by number.

    False, too, for anything but the plain types tools return: the caller then takes the slow way.
    """
    seen: set[int] = set()
    pending: list[Any] = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, _NEVER_ALIASED):
            continue
        if id(value) in seen:
            return False
        seen.add(id(value))
        kind = type(value)
        if kind is dict:
            pending += value.keys()
            pending += value.values()
        elif kind is list:
            pending += value
        elif kind is not datetime.datetime and kind is not datetime.date:
            return False
    return True
