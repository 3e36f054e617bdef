"""`FlowLabel`: where a value came from and who may read it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import reduce


class TrustSource(Enum):
    """Where a value can come from and be trusted."""

    USER = "user"
    """The request, and literals of a program written from it."""
    TRUSTED_TOOL = "trusted tool"
    """A tool's fact that nobody but its owner writes."""


@dataclass(frozen=True)
class ToolOrigin:
    """A tool's result, or a part of it."""

    tool: str
    inner: frozenset[TrustSource | str] = frozenset()
    """Who wrote it, as far as is known: identities such as an address, or sources. Empty: anybody."""


LabelOrigin = TrustSource | ToolOrigin


@dataclass(frozen=True)
class FlowLabel:
    """A point of the product lattice of integrity and confidentiality; `|` is its join."""

    sources: frozenset[LabelOrigin]
    """Everything that had a part in the value."""
    readers: frozenset[str] | None = None
    """Who may read it; None: everyone."""

    @property
    def is_trusted(self) -> bool:
        """Whether nobody but the user, the engine and trusted tools had a part in it."""
        return all(_is_trusted_origin(origin) for origin in self.sources)

    @property
    def is_public(self) -> bool:
        """Whether everyone may read it."""
        return self.readers is None

    def is_readable_by(self, identities: Iterable[str]) -> bool:
        """Whether all of these may read it."""
        return self.readers is None or self.readers.issuperset(identities)

    def flows_to(self, other: FlowLabel) -> bool:
        """Whether it is below or equal: as trusted, and readable by all who may read `other`."""
        if other.is_trusted and not self.is_trusted:
            return False
        return self.readers is None or (other.readers is not None and other.readers <= self.readers)

    def __or__(self, other: FlowLabel) -> FlowLabel:
        if other is self or (other.readers is None and other.sources <= self.sources):
            return self
        return FlowLabel(self.sources | other.sources, _common_readers(self.readers, other.readers))


def join_labels(labels: Iterable[FlowLabel]) -> FlowLabel:
    """The join of any number of labels; of none: from nowhere, and for everyone."""
    return reduce(FlowLabel.__or__, labels, NOWHERE)


def label_from_tool(
    tool: str, inner: Iterable[TrustSource | str] = (), readers: Iterable[str] | None = None
) -> FlowLabel:
    """The label of something a tool returned."""
    allowed = None if readers is None else frozenset(readers)
    return FlowLabel(frozenset((ToolOrigin(tool, frozenset(inner)),)), allowed)


def _is_trusted_origin(origin: LabelOrigin) -> bool:
    if isinstance(origin, TrustSource):
        return True
    return bool(origin.inner) and all(isinstance(one, TrustSource) for one in origin.inner)


def _common_readers(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


NOWHERE = FlowLabel(frozenset())
"""The least label: neutral in joins."""
FROM_USER = FlowLabel(frozenset((TrustSource.USER,)))
"""The label of literals."""
