"""`tool_text`: a tool's value as the text a model reads, letter for letter AgentDojo's own.

AgentDojo dumps what tools return as YAML with PyYAML's pure-Python dumper, which was a fifth of a
run's CPU time in Workspace. The items of such lists - mails, events, files - are the same ones in
nearly every case, so their dumps are remembered. libyaml's dumper is eight times as fast; it folds and
escapes in double quotes differently, so it is given only data of which nothing is written in those.
"""

from __future__ import annotations

import datetime
import pickle
import re
from functools import lru_cache
from typing import Any

import yaml
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.strenum import StrEnum
from yaml.representer import SafeRepresenter

_KEPT = 2048
"""Dumps remembered; an item has a kilobyte or two."""
_NEVER_ALIASED = (str, bytes, bool, int, float, type(None))
"""What PyYAML writes out each time, whoever else holds the same object."""


def tool_text(value: Any) -> str:
    """Exactly what `tool_result_to_str` makes of a tool's value, faster."""
    return str(tool_result_to_str(value, dump_fn=safe_dump))


def safe_dump(data: Any) -> str:
    """Exactly what `yaml.safe_dump` makes of plain data, faster."""
    if type(data) not in (dict, list) or not data or not _holds_nothing_twice(data):
        return str(yaml.safe_dump(data))
    try:
        # Equal pickles are equal data, types and order included; where pickles of equal data
        # differ, only time is lost. They are read back right here, never from elsewhere.
        # A block sequence is its items' texts one after the other, unless one refers to another.
        parts = [[item] for item in data] if type(data) is list else [data]
        pickled = [pickle.dumps(part, pickle.HIGHEST_PROTOCOL) for part in parts]
    except (pickle.PicklingError, TypeError, AttributeError):
        return str(yaml.safe_dump(data))
    return "".join([_dump_of_one(part) for part in pickled])


@lru_cache(maxsize=_KEPT)
def _dump_of_one(pickled: bytes) -> str:
    part = pickle.loads(pickled)
    # Somebody may have told PyYAML to write a type in a style of his own.
    usual = yaml.SafeDumper.yaml_representers is SafeRepresenter.yaml_representers
    quick = _QUICK if _QUICK is not None and usual and _same_in_c(part) else yaml.SafeDumper
    return str(yaml.dump(part, Dumper=quick))


def _quick_dumper() -> type[Any] | None:
    """The dumper of libyaml with what AgentDojo added to PyYAML's own.

    None where it is missing or not the release that was compared with PyYAML's, branch by branch.
    """
    if not yaml.__with_libyaml__:
        return None
    from yaml import _yaml  # not there otherwise

    if _yaml.get_version() != (0, 2, 5):
        return None
    made: type[Any] = type("QuickDumper", (yaml.CSafeDumper,), {})
    made.add_multi_representer(StrEnum, lambda dumper, text: dumper.represent_str(str.__str__(text)))
    return made


_QUICK = _quick_dumper()
_NO_DOUBLE_QUOTES = re.compile(r"(?!.*( \n|\n ))[ -~\n]*", re.DOTALL)
_KEY = re.compile(r"[ -~]{1,100}")
"""Far from the 128 letters at which a key stops being a simple one; the two dumpers count differently."""
_MOST_LEVELS = 10
"""So that a line's indentation never comes near its width."""


def _same_in_c(data: Any, levels: int = _MOST_LEVELS) -> bool:
    """Whether libyaml writes data, in which nothing stands twice, as PyYAML does.

    Both choose a text's style, and fold plain and single-quoted ones, by the same rules. Double quotes are
    for what is not printable ASCII and for spaces beside line breaks.
    """
    kind = type(data)
    if kind is str or isinstance(data, StrEnum):
        return _NO_DOUBLE_QUOTES.fullmatch(data) is not None
    if kind is dict:
        keys = all(type(key) is str and _KEY.fullmatch(key) for key in data)
        return levels > 0 and keys and all(_same_in_c(value, levels - 1) for value in data.values())
    if kind is list:
        return levels > 0 and all(_same_in_c(item, levels - 1) for item in data)
    return kind in (bool, int, float, type(None), datetime.datetime, datetime.date)


def _holds_nothing_twice(data: Any) -> bool:
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
