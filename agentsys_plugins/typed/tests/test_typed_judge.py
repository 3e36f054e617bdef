"""The judge of `agentsys_typed`: its table, clause by clause, and the distance of a call's result."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from agentsys_plugins.typed.argument_roles import ArgumentRole
from agentsys_plugins.typed.handle_store import ResolvedLeaf
from agentsys_plugins.typed.value_judge import FlowPolicy, LeafGround, find_distance, judge_leaf
from agentsys_plugins.typed.value_origin import ChosenBy, Distance, ValueKind, ValueOrigin


def origin(
    kind: ValueKind = ValueKind.MAIL,
    choice: ChosenBy = ChosenBy.READER,
    distance: Distance = Distance.NAMED,
    rivals: bool = False,
) -> ValueOrigin:
    return ValueOrigin(1, "look", ("x",), kind, choice, distance, rivals)


def leaf(*origins: ValueOrigin, value: Any = "eve@evil.org", **more: Any) -> ResolvedLeaf:
    return ResolvedLeaf("to", value, origins, **more)


def allowed_policies(role: ArgumentRole, one: ValueOrigin) -> set[str]:
    """The table of the docs page, written once more as sets: policies under which a value may stand in a role."""
    every = {"words", "sole", "named", "reachable"}
    if role is ArgumentRole.SECRET:
        return set()
    if role is ArgumentRole.CONTENT:
        return every - ({"words"} if one.distance is Distance.VIA else set())
    if one.kind is ValueKind.TEXT:
        return set()
    if one.distance is Distance.VIA:
        return {"reachable"}
    if one.choice is ChosenBy.READER:
        return every - {"words"} - ({"sole"} if one.has_rivals else set())
    return every


def test_the_judge_says_of_every_kind_of_value_what_the_table_says() -> None:
    kinds = (ValueKind.MAIL, ValueKind.NUMBER, ValueKind.TEXT)
    for role, kind, choice, distance, rivals in product(
        ArgumentRole, kinds, ChosenBy, Distance, (True, False)
    ):
        one = origin(kind, choice, distance, rivals)
        policies = (FlowPolicy.WORDS, FlowPolicy.SOLE, FlowPolicy.NAMED, FlowPolicy.REACHABLE)
        allowed = {policy.value for policy in policies if judge_leaf(role, leaf(one), policy) is not None}
        assert allowed == allowed_policies(role, one), (role, one)
        assert judge_leaf(role, leaf(one), FlowPolicy.OFF) is LeafGround.UNJUDGED


TARGET, QUANTITY, SECRET, CONTENT = ArgumentRole


@pytest.mark.parametrize(
    ("role", "given", "ground"),
    [
        (TARGET, leaf(in_request=True), "request"),
        (SECRET, leaf(in_request=True), "request"),
        (SECRET, leaf(value=None), None),
        (TARGET, leaf(value=None), "empty"),
        (TARGET, leaf(value=True), "empty"),
        (TARGET, leaf(value="r"), "schema"),
        (TARGET, leaf(origin(ValueKind.WORD, distance=Distance.VIA), value="r"), None),
        (TARGET, leaf(), None),
        (QUANTITY, leaf(value=12), "computed"),
        (CONTENT, leaf(value="Hello"), "content"),
        (TARGET, leaf(origin(), spliced=True), None),
        (QUANTITY, leaf(origin(), spliced=True), None),
        (CONTENT, leaf(origin(ValueKind.TEXT), spliced=True), "content"),
        (TARGET, leaf(origin(), origin(choice=ChosenBy.BLIND)), "blind"),
        (TARGET, leaf(origin(distance=Distance.VIA), origin()), "reader"),
    ],
)
def test_a_leaf_without_a_single_provenance(
    role: ArgumentRole, given: ResolvedLeaf, ground: str | None
) -> None:
    said = judge_leaf(role, given, FlowPolicy.NAMED, listed=["r"])
    assert (None if said is None else said.value) == ground


def test_a_strict_preset_refuses_what_the_agent_worked_out() -> None:
    assert judge_leaf(QUANTITY, leaf(value=12), FlowPolicy.NAMED, computed=False) is None
    summed = leaf(origin(ValueKind.NUMBER), value=12, by_handle=True)
    assert judge_leaf(QUANTITY, summed, FlowPolicy.NAMED, computed=False) is LeafGround.READER


@pytest.mark.parametrize(
    ("leaves", "distance"),
    [
        ([], Distance.OWN),
        ([leaf(in_request=True), leaf(value=None)], Distance.NAMED),
        ([leaf(origin(choice=ChosenBy.BLIND))], Distance.NAMED),
        ([leaf(origin(choice=ChosenBy.BLIND, distance=Distance.VIA))], Distance.VIA),
        ([leaf(origin(ValueKind.TEXT, ChosenBy.BLIND))], Distance.VIA),
        ([leaf(origin(choice=ChosenBy.BLIND), spliced=True)], Distance.VIA),
        ([leaf(origin())], Distance.VIA),
        ([leaf(in_request=True), leaf()], Distance.VIA),
    ],
)
def test_the_distance_of_a_result(leaves: list[ResolvedLeaf], distance: Distance) -> None:
    assert find_distance(leaves) is distance
