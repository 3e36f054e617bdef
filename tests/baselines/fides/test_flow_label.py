"""Labels: the laws of the lattice, and what readers and trust mean."""

from __future__ import annotations

import random
from itertools import product

from baselines.flow.labelled_values import (
    FROM_USER,
    NOWHERE,
    FlowLabel,
    ToolOrigin,
    TrustSource,
    join_labels,
    label_from_tool,
)

ORIGINS = [
    *TrustSource,
    *(ToolOrigin(t, i) for t in "ab" for i in (frozenset(), frozenset({"x"}), frozenset({TrustSource.USER}))),
]


def some_labels(count: int) -> list[FlowLabel]:
    draw = random.Random(7)
    found = [NOWHERE, FROM_USER, label_from_tool("a"), label_from_tool("b", (), ())]
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
        assert both.is_trusted == (one.is_trusted and other.is_trusted)
        assert both.is_public == (one.is_public and other.is_public)
    for one, other, third in product(labels[:14], repeat=3):
        if one.flows_to(other):
            assert (one | third).flows_to(other | third)
            if other.flows_to(third):
                assert one.flows_to(third)


def test_trust_needs_a_writer_and_all_of_them_trusted() -> None:
    assert not label_from_tool("t").is_trusted
    assert not label_from_tool("t", ["bob@x.org"]).is_trusted
    assert not label_from_tool("t", [TrustSource.USER, "bob@x.org"]).is_trusted
    assert (
        label_from_tool("t", [TrustSource.USER]).is_trusted
        and label_from_tool("t", [TrustSource.TRUSTED_TOOL]).is_trusted
    )
    assert not join_labels([FROM_USER, label_from_tool("t")]).is_trusted


def test_readers_shrink() -> None:
    both = label_from_tool("a", (), "xy") | label_from_tool("b", (), "yz")
    assert both.readers == {"y"}
    assert both.is_readable_by("y") and not both.is_readable_by("xy") and both.is_readable_by("")
