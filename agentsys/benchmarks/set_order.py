"""`FirstSeen`: sets whose order does not depend on the process, for tools that make lists of them.

AgentDojo's calendar drops repeated participants with `list(set(participants))` (0.1.35), and the order of
such a list changes with Python's hash seed. Models would read another text in each process, and no reply
kept from one would fit the request of the next.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from agentsys.benchmarks.clock import find_tool_modules
from agentsys.contracts import Suite


class _CountsSets(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, set)


class InsertionOrderedSet(set[Any], metaclass=_CountsSets):
    """A set that is walked in the order in which its members came.

    Args:
        members: The first members. What set operations (`|`, `-`) make of it is a plain set again.
    """

    def __init__(self, members: Iterable[Any] = ()) -> None:
        super().__init__()
        self._order: dict[Any, None] = {}
        self.update(members)

    def add(self, member: Any) -> None:
        """Take one in; the first time it comes says where it stands."""
        super().add(member)
        self._order.setdefault(member)

    def update(self, *others: Iterable[Any]) -> None:
        """Take some in, one after the other."""
        for member in (member for other in others for member in other):
            self.add(member)

    def __iter__(self) -> Iterator[Any]:
        """Walk through a copy of the members."""
        # What was taken out since is passed over; what came otherwise than by `add` comes last.
        members = set.__iter__(self)
        return iter(
            [*(one for one in self._order if one in self), *(m for m in members if m not in self._order)]
        )


def keep_set_order(suite: Suite) -> None:
    """Let `set(...)` in the modules of a suite's tools keep the order of what it is made of.

    The name is bound in these modules alone, once; modules with a `set` of their own stay as they are.
    """
    for name in find_tool_modules(suite):
        module = sys.modules.get(name)
        if module is not None:
            vars(module).setdefault("set", InsertionOrderedSet)
