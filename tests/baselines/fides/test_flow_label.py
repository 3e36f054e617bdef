"""Labels: the laws of the lattice, and what readers and trust mean."""

from __future__ import annotations

import random
from itertools import product

from baselines.flow.label import FROM_USER, NOWHERE, FlowLabel, FromTool, Source, from_tool, joined

ORIGINS = [
    *Source,
    *(FromTool(t, i) for t in "ab" for i in (frozenset(), frozenset({"x"}), frozenset({Source.USER}))),
]


def some_labels(count: int) -> list[FlowLabel]:
    draw = random.Random(7)
    found = [NOWHERE, FROM_USER, from_tool("a"), from_tool("b", (), ())]
    while len(found) < count:
        readers = None if draw.random() < 0.3 else frozenset(draw.sample("wxyz", draw.randint(0, 3)))
        found.append(FlowLabel(frozenset(draw.sample(ORIGINS, draw.randint(0, 3))), readers))
    return found


def test_the_join_is_commutative_associative_idempotent_and_has_a_least_element() -> None:
    labels = some_labels(30)
    for one, other in product(labels, labels):
        assert one | other == other | one
        assert one | one == one and one | NOWHERE == one == NOWHERE | one
    for one, other, third in product(labels[:14], repeat=3):
        assert (one | other) | third == one | (other | third)


def test_the_join_is_an_upper_bound_and_monotone() -> None:
    labels = some_labels(24)
    for one, other in product(labels, labels):
        both = one | other
        assert one.flows_to(both) and other.flows_to(both)
        assert both.trusted == (one.trusted and other.trusted)
        assert both.public == (one.public and other.public)
    for one, other, third in product(labels[:14], repeat=3):
        if one.flows_to(other):
            assert (one | third).flows_to(other | third)
            if other.flows_to(third):
                assert one.flows_to(third)


def test_trust_needs_a_writer_and_all_of_them_trusted() -> None:
    assert not from_tool("t").trusted
    assert not from_tool("t", ["bob@x.org"]).trusted
    assert not from_tool("t", [Source.USER, "bob@x.org"]).trusted
    assert from_tool("t", [Source.USER]).trusted and from_tool("t", [Source.TRUSTED_TOOL]).trusted
    assert not joined([FROM_USER, from_tool("t")]).trusted


def test_readers_shrink() -> None:
    both = from_tool("a", (), "xy") | from_tool("b", (), "yz")
    assert both.readers == {"y"}
    assert both.readable_by("y") and not both.readable_by("xy") and both.readable_by("")
