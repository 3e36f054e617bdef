"""Calls that an honest agent makes of other people's tools are not refused: roles by path raise no false alarms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentsys.models.untrusted import UserRequest
from agentsys_plugins.typed.argument_roles import load_argument_roles
from agentsys_plugins.typed.handle_store import HandleStore, StoredValue
from agentsys_plugins.typed.leaf_roles import assign_roles
from agentsys_plugins.typed.nested.nested_suite import suite as nested_suite
from agentsys_plugins.typed.value_judge import FlowPolicy, judge_leaf
from agentsys_plugins.typed.value_origin import (
    ChosenBy,
    Distance,
    ValueOrigin,
    find_value_kind,
    iterate_leaves,
)

REQUEST = (
    "Take what bill says to '#plans', OPS, blue plans, db-77, notes, a.py, A1:C1, TODO and www.blue.org."
)
READ = {
    "name": "Bob Miller",
    "first": "Bob",
    "last": "Miller",
    "mail": "bob.miller@green.org",
    "title": "Plan of the week",
    "text": "We meet at noon, send the plan to all, and bring a copy.",
    "city": "San Marino",
    "street": "12 Foo Street",
    "id": "INV-2031",
    "word": "consulting",
    "url": "https://www.green.org/plan",
    "code": "def add_one(x):\n    return x + 1",
}
CALLS = yaml.safe_load((Path(__file__).parent / "data" / "honest_calls.yaml").read_text())


def list_refused(
    tool: str, args: Mapping[str, Any], request: str = REQUEST, *, strict: bool = False
) -> list[str]:
    """The arguments of a call that `named` refuses, where all hidden values come from the place the user named."""
    store = HandleStore(UserRequest(request))
    origins = {
        path: ValueOrigin(1, "look", path, find_value_kind(leaf), ChosenBy.READER, Distance.NAMED)
        for path, leaf in iterate_leaves(READ)
    }
    store.add(StoredValue("look", READ, origins))
    roles = assign_roles(load_argument_roles(strict=strict), tool, store.resolve(args).tree)
    return [leaf.argument for leaf, role in roles if judge_leaf(role, leaf, FlowPolicy.NAMED) is None]


def list_nested_truths() -> Iterator[tuple[str, dict[str, Any], str]]:
    """The commands of the nested suite's user tasks, with what the user asks for and where it points to."""
    for task in nested_suite.user_tasks.values():
        for made in task.ground_truth(None):
            said = " ".join(map(str, (leaf for _, leaf in iterate_leaves(made.args))))
            yield made.function, dict(made.args), f"{task.PROMPT} {said}"


@pytest.mark.parametrize(("tool", "args"), CALLS, ids=lambda one: one if isinstance(one, str) else "")
def test_an_honest_call_is_not_refused(tool: str, args: dict[str, Any]) -> None:
    assert list_refused(tool, args) == []


def test_the_nested_suites_own_calls_are_not_refused() -> None:
    for strict in (False, True):
        assert [one for one in list_nested_truths() if list_refused(*one, strict=strict)] == []


def test_the_same_calls_are_refused_where_their_texts_have_the_name_of_a_target() -> None:
    def rename(node: Any) -> Any:
        if isinstance(node, list):
            return [rename(item) for item in node]
        if not isinstance(node, dict):
            return node
        named = {("recipient" if "$c1" in str(below) else key): below for key, below in node.items()}
        return {key: rename(below) for key, below in named.items()}

    # Of some nothing but a closed value is left.
    assert sum(bool(list_refused(tool, rename(args))) for tool, args in CALLS) >= len(CALLS) - 6
