"""The judge: whether a command may run, by the role of each argument and the provenance of each of its leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from agentsys.defense.typed.argument_roles import ArgumentRole
from agentsys.defense.typed.handle_store import ResolvedLeaf
from agentsys.defense.typed.value_origin import ChosenBy, Distance, ValueKind, ValueOrigin


class FlowPolicy(Enum):
    """How far a value may come from."""

    WORDS = "words"
    """The user's words, and values that no reader of foreign text chose."""
    SOLE = "sole"
    """Also addresses and accounts that a reader took out of a source which the user pointed at, if there was no other
    of the kind to choose from, and its other closed values."""
    NAMED = "named"
    """Also any closed value that a reader took out of such a source."""
    REACHABLE = "reachable"
    """Also values found at two removes."""
    OFF = "off"
    """Any value: hiding alone."""


class LeafGround(Enum):
    """Why a leaf may stand in a command."""

    REQUEST = "request"
    EMPTY = "empty"
    """Null, true or false."""
    SCHEMA = "schema"
    """A word that the tool's own schema lists."""
    BLIND = "blind"
    READER = "reader"
    VIA = "via"
    COMPUTED = "computed"
    """A quantity that the main agent worked out."""
    CONTENT = "content"
    UNJUDGED = "unjudged"
    """There is no policy."""


@dataclass(frozen=True)
class LeafVerdict:
    """The judge's word on one leaf of an argument."""

    leaf: ResolvedLeaf
    role: ArgumentRole
    ground: LeafGround | None
    """None: refused."""

    def as_decision(self) -> dict[str, object]:
        """The verdict as JSON-ready data for the record."""
        return {
            "argument": self.leaf.argument,
            "role": self.role.value,
            "ground": None if self.ground is None else self.ground.value,
            "from": [
                f"{one.tool}.{'.'.join(map(str, one.path))}: {one.kind.value}, {one.choice.name.lower()}"
                f", {one.distance.name.lower()}"
                for one in self.leaf.origins[:10]
            ],
        }


def judge_leaf(
    role: ArgumentRole,
    leaf: ResolvedLeaf,
    policy: FlowPolicy,
    *,
    computed: bool = True,
    listed: Sequence[object] = (),
) -> LeafGround | None:
    """Why a leaf may stand in a command; None where it may not.

    Args:
        role: What the argument says.
        leaf: The leaf as it will run.
        policy: How far it may come from.
        computed: Whether a quantity may be one that the main agent made.
        listed: Words that the tool's schema lists for the argument.
    """
    if policy is FlowPolicy.OFF:
        return LeafGround.UNJUDGED
    if leaf.in_request:
        return LeafGround.REQUEST
    if role is ArgumentRole.SECRET:
        return None
    if leaf.value is None or isinstance(leaf.value, bool):
        return LeafGround.EMPTY
    if leaf.is_made and leaf.value in listed:
        return LeafGround.SCHEMA
    if role is ArgumentRole.CONTENT:
        far = bool(leaf.origins) and all(one.distance is Distance.VIA for one in leaf.origins)
        return None if policy is FlowPolicy.WORDS and far else LeafGround.CONTENT
    if role is ArgumentRole.QUANTITY and leaf.is_made:
        return LeafGround.COMPUTED if computed else None
    if leaf.spliced:
        return None
    grounds = [ground for one in leaf.origins if (ground := _judge_origin(one, policy)) is not None]
    return min(grounds, key=_BEST.index, default=None)


_BEST = [LeafGround.BLIND, LeafGround.READER, LeafGround.VIA]


def _judge_origin(origin: ValueOrigin, policy: FlowPolicy) -> LeafGround | None:
    """Why a value of this provenance may be a target; a text never may."""
    if origin.kind is ValueKind.TEXT:
        return None
    if origin.distance is Distance.VIA:
        return LeafGround.VIA if policy is FlowPolicy.REACHABLE else None
    if origin.choice is not ChosenBy.READER:
        return LeafGround.BLIND
    if policy is FlowPolicy.WORDS or (policy is FlowPolicy.SOLE and origin.has_rivals):
        return None
    return LeafGround.READER


def find_distance(leaves: Sequence[ResolvedLeaf]) -> Distance:
    """How the request leads to a call's result, by the leaves of its selecting arguments."""
    if not leaves:
        return Distance.OWN
    return Distance.NAMED if all(map(_is_near, leaves)) else Distance.VIA


def _is_near(leaf: ResolvedLeaf) -> bool:
    if leaf.in_request or leaf.value is None or isinstance(leaf.value, bool):
        return True
    return not leaf.spliced and any(
        one.kind is not ValueKind.TEXT
        and one.choice is not ChosenBy.READER
        and one.distance is not Distance.VIA
        for one in leaf.origins
    )
