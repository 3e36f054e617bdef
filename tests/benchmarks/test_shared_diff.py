"""What DeepDiff passes over was nothing to report, and everything else is reported as ever."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import pytest
from agentdojo.functions_runtime import TaskEnvironment
from deepdiff import DeepDiff
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.shared_copies import twins
from agentsys.benchmarks.shared_diff import SharedDiff, pass_over_shared

CHECKS = "agentdojo.default_suites.v1.workspace.user_tasks"


class Shelf(BaseModel):
    books: dict[Any, Any]


class Library(TaskEnvironment):
    shelves: dict[Any, Any]


BOOKS = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", "__e", 1, None]),
    st.sampled_from([0, 1, True, 1.0]) | st.lists(st.integers(0, 1)),
    max_size=7,
)
LIBRARIES = st.builds(
    Library, shelves=st.dictionaries(st.sampled_from("xyz"), BOOKS | st.builds(Shelf, books=BOOKS))
)


@settings(max_examples=300, deadline=None)
@given(LIBRARIES, LIBRARIES, st.sampled_from([[], ["root.shelves['x']"], ["root.shelves['x'].books['a']"]]))
def test_findings_are_deepdiffs(before: Library, after: Library, excluded: list[str]) -> None:
    mixed = before.model_copy(deep=True)
    mixed.shelves |= after.model_copy(deep=True).shelves
    for one, other in (twins(before, after), twins(before, mixed), twins(mixed, after)):
        found = SharedDiff(one, other, exclude_paths=excluded)
        assert str(found) == str(DeepDiff(one, other, exclude_paths=excluded))


@pytest.mark.parametrize("shared", range(8))
@pytest.mark.parametrize("new", range(5))
@pytest.mark.parametrize("excluded", [[], ["root['s0']", "root['n1']"]])
def test_dicts_are_different_altogether_where_deepdiff_says_so(
    shared: int, new: int, excluded: list[str]
) -> None:
    before = {"__p": [0], "__q": [0], **{f"s{number}": [number] for number in range(shared)}}
    after = {**before, **{f"n{number}": [number] for number in range(new)}}
    found = SharedDiff(before, after, exclude_paths=excluded)
    assert str(found) == str(DeepDiff(before, after, exclude_paths=excluded))


def test_no_path_is_made_to_most_of_what_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = AgentDojo("v1.2.2").suite("workspace")
    before, after = (suite.load_and_inject_default_environment({}) for _ in range(2))
    after.inbox.send_email(["a@b.example"], "subject", "body")
    looked_at: list[Any] = []
    monkeypatch.setattr(SharedDiff, "_diff", _counted(looked_at, SharedDiff._diff))
    found = vars(sys.modules[CHECKS])["WorkspaceDeepDiff"](*twins(before, after))
    assert set(found) == {"dictionary_item_added"}
    assert isinstance(found, SharedDiff)
    assert len(looked_at) < 10 < len(before.inbox.emails)


def _counted(seen: list[Any], function: Callable[..., None]) -> Callable[..., None]:
    def counted(self: Any, level: Any, *rest: Any, **how: Any) -> None:
        seen.append(level)
        function(self, level, *rest, **how)

    return counted


def test_only_comparisons_that_ask_for_nothing_else_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("checks_of_a_fork")
    vars(module).update(
        plain=partial(DeepDiff, exclude_paths=["root.a"]),
        strict=partial(DeepDiff, ignore_order=True),
        bare=DeepDiff,
    )
    monkeypatch.setitem(sys.modules, module.__name__, module)
    task = type("Task", (), {"__module__": module.__name__})()
    suite = type("Suite", (), {"user_tasks": {"u": task}, "injection_tasks": {}})()
    pass_over_shared(suite)
    assert module.plain.func is SharedDiff
    assert module.plain.keywords == {"exclude_paths": ["root.a"]}
    assert module.strict.func is DeepDiff is module.bare
