"""`FlowLabel`: where a value came from and who may read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import reduce


class Source(Enum):
    """Where a value can come from and be trusted."""

    USER = "user"
    """The request, and literals of a program written from it."""
    TRUSTED_TOOL = "trusted tool"
    """A tool's fact that nobody but its owner writes."""


@dataclass(frozen=True)
class FromTool:
    """A tool's result, or a part of it."""

    tool: str
    inner: frozenset[Source | str] = frozenset()
    """Who wrote it, as far as is known: identities such as an address, or sources. Empty: anybody."""


Origin = Source | FromTool


@dataclass(frozen=True)
class FlowLabel:
    """A point of the product lattice of integrity and confidentiality; `|` is its join."""

    sources: frozenset[Origin]
    """Everything that had a part in the value."""
    readers: frozenset[str] | None = None
    """Who may read it; None: everyone."""

    @property
    def trusted(self) -> bool:
        """Whether nobody but the user, the engine and trusted tools had a part in it."""
        return all(_is_trusted(origin) for origin in self.sources)

    @property
    def public(self) -> bool:
        """Whether everyone may read it."""
        return self.readers is None

    def readable_by(self, identities: Iterable[str]) -> bool:
        """Whether all of these may read it."""
        return self.readers is None or self.readers.issuperset(identities)

    def flows_to(self, other: FlowLabel) -> bool:
        """Whether it is below or equal: as trusted, and readable by all who may read `other`."""
        if other.trusted and not self.trusted:
            return False
        return self.readers is None or (other.readers is not None and other.readers <= self.readers)

    def __or__(self, other: FlowLabel) -> FlowLabel:
        if other is self or (other.readers is None and other.sources <= self.sources):
            return self
        return FlowLabel(self.sources | other.sources, _readers(self.readers, other.readers))


def joined(labels: Iterable[FlowLabel]) -> FlowLabel:
    """The join of any number of labels; of none: from nowhere, and for everyone."""
    return reduce(FlowLabel.__or__, labels, NOWHERE)


def from_tool(
    tool: str, inner: Iterable[Source | str] = (), readers: Iterable[str] | None = None
) -> FlowLabel:
    """The label of something a tool returned."""
    allowed = None if readers is None else frozenset(readers)
    return FlowLabel(frozenset((FromTool(tool, frozenset(inner)),)), allowed)


def _is_trusted(origin: Origin) -> bool:
    if isinstance(origin, Source):
        return True
    return bool(origin.inner) and all(isinstance(one, Source) for one in origin.inner)


def _readers(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


NOWHERE = FlowLabel(frozenset())
"""The least label: neutral in joins."""
FROM_USER = FlowLabel(frozenset((Source.USER,)))
"""The label of literals."""
