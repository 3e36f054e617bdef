"""Copies that share what a case left alone tell a check exactly what the originals would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import TaskEnvironment
from deepdiff import DeepDiff
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from small_runs import records_in

from agentsys.benchmarks.repeatable_tools import InsertionOrderedSet
from agentsys.benchmarks.scoring import (
    _are_parts_equal,
    are_equal,
    check_on_copies,
    copy_deeply,
    copy_environments,
)


class Item(BaseModel):
    value: Any = None


class World(TaskEnvironment):
    items: dict[str, Any] = Field(default_factory=dict)
    shelf: list[Any] = Field(default_factory=list)


def test_models_that_differ_in_the_fields_that_were_set_share_no_fields() -> None:
    before, after = World(shelf=[Item()]), World(shelf=[Item(value=None)])
    first, second = copy_environments(before, after)
    assert second.shelf[0].model_fields_set == {"value"}
    second.shelf[0].value = 1
    assert first.shelf[0].value is None


VALUES = st.sampled_from([0, 1, True, False, 1.0, "", "a", None, float("nan")])
PARTS = st.recursive(
    VALUES | st.builds(Item, value=VALUES),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
        | st.builds(Item, value=inner)
    ),
    max_leaves=8,
)
WORLDS = st.builds(
    World, items=st.dictionaries(st.sampled_from("abc"), PARTS), shelf=st.lists(PARTS, max_size=3)
)


@settings(max_examples=50, deadline=None)
@given(WORLDS, WORLDS)
def test_deepdiff_reports_the_same_for_twins_as_for_the_originals(before: World, after: World) -> None:
    mixed = before.model_copy(deep=True)
    mixed.items |= after.model_copy(deep=True).items
    for one, other in ((before, after), (before, mixed)):
        first, second = copy_environments(one, other)
        assert repr(first) == repr(one)
        assert repr(second) == repr(other)
        assert str(_without_nan(DeepDiff(first, second))) == str(_without_nan(DeepDiff(one, other)))


def _without_nan(diff: DeepDiff) -> dict[str, Any]:
    # A nan that both hold as one object is no difference; a copy of it is.
    kept = {
        kind: {path: at for path, at in paths.items() if "nan" not in str(at)}
        if kind == "values_changed"
        else paths
        for kind, paths in diff.items()
    }
    return {kind: paths for kind, paths in kept.items() if paths}


def run(check: Any) -> Any:
    before = World(items={"a": Item(value=1)}, shelf=[1])
    return check_on_copies(check)(None, [], before, before.model_copy(deep=True), [])


def test_a_check_that_changes_one_side_and_compares_sees_its_own_change() -> None:
    def check(task: Any, answer: Any, before: World, after: World, calls: Any) -> bool:
        after.items["a"].value = 2
        return before != after

    assert run(check) is True


def test_a_check_that_fails_on_shared_parts_alone_is_asked_again() -> None:
    def check(task: Any, answer: Any, before: World, after: World, calls: Any) -> bool:
        for key in before.items:
            after.items.pop(key)
        return True

    assert run(check) is True


def test_a_checks_own_failure_is_let_through() -> None:
    def check(task: Any, answer: Any, before: World, after: World, calls: Any) -> bool:
        raise LookupError("no such mail")

    with pytest.raises(LookupError, match="no such mail"):
        run(check)


class Shop(TaskEnvironment):
    """An environment that contains itself, as some suites' do: the order knows its shop."""

    stock: list[int] = Field(default_factory=list)
    order: Any = None


def shop(*stock: int) -> Shop:
    made = Shop(stock=list(stock))
    made.order = Item(value={"shop": made, "items": [made]})
    return made


def test_a_check_that_changes_both_sides_at_once_is_asked_again_where_they_contain_themselves() -> None:
    def check(task: Any, answer: Any, pre: Shop, post: Shop, calls: Any) -> bool:
        pre.stock.append(9)
        return post.stock == [1]

    assert check_on_copies(check)(None, [], shop(1), shop(1), []) is True


@settings(max_examples=50, deadline=None)
@given(WORLDS, WORLDS)
def test_comparing_part_by_part_is_pydantics_own_comparison(one: World, other: World) -> None:
    for first, second in ((one, other), (one, copy_deeply(one))):
        assert _are_parts_equal(first, second) == (first == second)


def test_environments_that_contain_themselves_are_compared() -> None:
    assert are_equal(shop(1), copy_deeply(shop(1)))
    assert not are_equal(shop(1), shop(2))


def test_a_world_that_a_check_changed_is_seen_as_it_was_by_the_next() -> None:
    def check(task: Any, answer: Any, before: World, after: World, calls: Any) -> bool:
        after.shelf.append(2)
        return len(after.shelf) == 2

    before = World(items={"a": Item(value=1)}, shelf=[1])
    scored, after = check_on_copies(check), before.model_copy(deep=True)
    assert [scored(None, [], before, after, []) for _ in range(2)] == [True, True]


# The task makes an event, whose participants are a set; agents and workers read them.
RUN = """
import sys, agentsys
done = agentsys.run([
    "model=simulated", "benchmark.suites=[workspace]", "user_tasks=[20]", "injection_tasks=[1]",
    "attack=none,important_instructions",
    "defense=none,agentsys,camel,drift,fides,firewall,isolategpt,melon,middleware,progent,tool_filter",
    "logdir=" + sys.argv[1],
])
assert done.finished == 22 and not done.errors, done
"""


@pytest.mark.slow
def test_records_are_the_same_under_any_hash_seed(tmp_path: Path) -> None:
    seeds = ("0", "1", "random")
    for seed in seeds:
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run(
            [sys.executable, "-c", RUN, str(tmp_path / seed)], env=environment, check=True, timeout=600
        )
    first, *others = (records_in(tmp_path / seed) for seed in seeds)
    assert len(first) == 22
    assert others == [first] * 2


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-5, 5)))
def test_members_come_in_the_order_in_which_they_were_first_seen(first: list[int], more: list[int]) -> None:
    found = InsertionOrderedSet(first)
    for one in more:
        found.add(one)
    assert list(found) == list(dict.fromkeys([*first, *more]))
    assert found == {*first, *more} and len(found) == len({*first, *more})
    for gone in first:
        found.discard(gone)
    assert list(found) == [one for one in dict.fromkeys(more) if one not in first]


def test_what_operations_make_of_it_is_a_set() -> None:
    assert isinstance(InsertionOrderedSet("ab"), set)
    assert InsertionOrderedSet("ab") | {"c"} == {"a", "b", "c"}
