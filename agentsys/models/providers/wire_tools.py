"""Tools as a provider wants them, converted once per list of tools and not once per call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from agentsys.models.chat import ToolSpec

T = TypeVar("T")

_MAX_LISTS = 512
"""Lists kept. A case offers a few; a defense that builds new schemas for each call must not fill memory."""

_ToolsKey = tuple[tuple[str, str, int], ...]


class ToolListCache(Generic[T]):
    """Remembers the conversion of tool lists, which is pure; usable from many threads.

    Schemas are compared by identity (`ToolSpec.parameters` may not be changed in place), since
    comparing or encoding 24 schemas costs as much as the rest of a request.
    """

    def __init__(self, convert: Callable[[Sequence[ToolSpec]], T]) -> None:
        self._convert = convert
        self._known: dict[_ToolsKey, tuple[Sequence[ToolSpec], T]] = {}

    def convert(self, tools: Sequence[ToolSpec]) -> T:
        """The converted list."""
        key = tuple([(tool.name, tool.description, id(tool.parameters)) for tool in tools])
        known = self._known.get(key)
        if known is not None:
            return known[1]
        converted = self._convert(tools)
        if len(self._known) >= _MAX_LISTS:
            self._known = {}
        # The specs are kept too: an id names an object only as long as the object lives.
        self._known[key] = (tuple(tools), converted)
        return converted
