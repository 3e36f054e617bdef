"""Copies that share what a case left alone tell a check exactly what the originals would."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any
from weakref import ref

import pytest
from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.functions_runtime import TaskEnvironment
from deepdiff import DeepDiff
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.scoring import (
    _are_parts_equal,
    check_on_copies,
    copy_environments,
    deep_copy,
    use_quick_copy,
)


class Item(BaseModel):
    value: Any = None


class World(TaskEnvironment):
    items: dict[str, Any] = Field(default_factory=dict)
    shelf: list[Any] = Field(default_factory=list)


def load(suite: Any) -> Any:
    return partial(suite.load_and_inject_default_environment, {})


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


class Seen:
    """A check that notes what it is given, and may change it."""

    def __init__(self, *, spoils: bool = False) -> None:
        self.pairs: list[tuple[Any, Any]] = []
        self._spoils = spoils

    def __call__(self, task: Any, answer: Any, before: World, after: World, calls: Any) -> bool:
        self.pairs.append((before, after))
        grown = before != after
        if self._spoils:
            after.shelf.append(2)
        return grown

    @property
    def distinct(self) -> int:
        return len({(id(before), id(after)) for before, after in self.pairs})


def worlds() -> tuple[World, World]:
    before = World(items={"a": Item(value=1)}, shelf=[1])
    return before, before.model_copy(deep=True)


def test_copies_that_a_check_changed_are_not_given_to_the_next() -> None:
    seen, (before, after) = Seen(spoils=True), worlds()
    scored = check_on_copies(seen)
    assert [scored(None, [], before, after, []) for _ in range(2)] == [False, False]
    assert [len(second.shelf) for _, second in seen.pairs] == [2, 2, 2, 2], "each began with what was there"
    assert seen.distinct == 4


def test_a_world_that_changed_between_two_checks_is_seen_by_the_second() -> None:
    seen, (before, after) = Seen(), worlds()
    scored = check_on_copies(seen)
    assert scored(None, [], before, after, []) is False
    after.shelf.append(2)
    assert scored(None, [], before, after, []) is True


def test_a_check_keeps_no_environment_alive() -> None:
    before, after = worlds()
    scored = check_on_copies(Seen())
    scored(None, [], before, after, [])
    gone = ref(before), ref(after)
    del before, after
    gc.collect()
    assert [one() for one in gone] == [None, None]


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
    for first, second in ((one, other), (one, deep_copy(one))):
        assert _are_parts_equal(first, second) == (first == second)


class Looking(GroundTruthPipeline):  # type: ignore[misc]
    """Does the task, and keeps the environment as it was given."""

    def query(self, query: str, runtime: Any, env: Any = None, *rest: Any) -> Any:
        self.given, self.names = deep_copy(env), list(vars(env))
        return super().query(query, runtime, env, *rest)


@pytest.mark.parametrize("truthful", [True, False])
def test_checks_see_the_world_before_loaded_once_more_but_never_another_world(truthful: bool) -> None:
    suite, given = AgentDojo("v1.2.2").suite("workspace"), list[Any]()
    task, theft = suite.user_tasks["user_task_7"], suite.injection_tasks["injection_task_6"]

    def once_more() -> Any:
        given.append(load(suite)())
        if not truthful:
            given[-1].inbox.emails.clear()
        return given[-1]

    loaded, again = load(suite)(), load(suite)()
    with use_quick_copy(suite, task, loaded, again, once_more):
        scores = suite.run_task_with_pipeline(Looking(task), task, theft, {}, environment=loaded)
    assert scores == (True, False)
    assert given
    given.clear()
    copy_environments(again, loaded)
    assert not given, "it is for the case alone"


def test_an_environment_that_may_be_asked_for_other_copies_answers_as_pydantic_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suite = AgentDojo("v1.2.2").suite("banking")
    task, loaded = suite.user_tasks["user_task_0"], suite.load_and_inject_default_environment({})
    with use_quick_copy(suite, task, loaded, loaded, load(suite)):
        assert loaded.model_copy(update={"filesystem": None}).filesystem is None
    with use_quick_copy(suite, task, loaded, loaded, load(suite)):
        pass
    monkeypatch.setattr(type(task), "init_environment", staticmethod(lambda environment: environment))
    with use_quick_copy(suite, task, loaded, loaded, load(suite)):
        assert "model_copy" not in vars(loaded)
    assert list(vars(loaded)) == list(type(loaded).model_fields)
