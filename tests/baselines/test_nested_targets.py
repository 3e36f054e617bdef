"""FIDES, CaMeL and Progent look as deep into arguments as a target may stand: the verdict is that on a flat one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentsys.models.untrusted import Untrusted
from baselines.camel.suite_world import CamelCondition, CamelJudge, CamelPolicies
from baselines.flow.labelled_values import FROM_USER, label_from_tool, to_value
from baselines.progent import defense as progent
from baselines.progent.progent_rules import allow_under

SHAPES: list[Any] = [
    lambda one: one,
    lambda one: {"to": one},
    lambda one: {"to": [{"address": one}]},
    lambda one: [{"name": "recipient", "value": one}],
    lambda one: [["To", one]],
    lambda one: {one: "owner"},
    lambda one: f'{{"to": "{one}"}}',
]


@pytest.mark.parametrize("place", range(len(SHAPES)))
def test_a_label_follows_a_value_to_wherever_it_stands(place: int) -> None:
    CallArgument = pytest.importorskip("agentsys_plugins.rivals.fides.fides_policy").CallArgument
    FidesCallPolicy = pytest.importorskip("agentsys_plugins.rivals.fides.fides_policy").FidesCallPolicy
    FidesRules = pytest.importorskip("agentsys_plugins.rivals.fides.fides_policy").FidesRules
    HiddenValues = pytest.importorskip("agentsys_plugins.rivals.fides.hidden_values").HiddenValues
    judge_call = pytest.importorskip("agentsys_plugins.rivals.fides.fides_policy").judge_call
    foreign, store = label_from_tool("read", (), ["me"]), HiddenValues()
    written = SHAPES[place](store.store_value("read-result-0", Untrusted("eve@evil.org"), foreign))
    label = store.label_argument(written, FROM_USER)
    assert not label.is_trusted
    arguments = {"message": CallArgument(store.expand_names(written), label)}
    rules = FidesRules(policies={"post": FidesCallPolicy(rule="p_double_star", readers_are=("people",))})
    arguments["people"] = CallArgument(["eve@evil.org"], FROM_USER)
    verdict = judge_call(rules, "post", arguments, FROM_USER, SimpleNamespace())
    assert not verdict.allow and verdict.reason.startswith("P2")


@pytest.mark.parametrize("place", range(len(SHAPES)))
def test_camel_takes_no_untrusted_value_at_any_depth(place: int) -> None:
    judge = CamelJudge(CamelPolicies(free=(), rules={"post": CamelCondition(trusted=("message",))}))

    def deny(label: Any) -> str | None:
        return judge.find_denial("post", {"message": to_value(SHAPES[place]("x"), label)}, FROM_USER, None)

    assert deny(FROM_USER) is None and deny(label_from_tool("read")) == "message is not trusted"


@pytest.mark.parametrize("shape", SHAPES[:4])
def test_progents_simulated_policy_settles_fields_of_objects_as_it_does_arguments(shape: Any) -> None:
    knowledge: Any = SimpleNamespace(is_grounded=lambda text, read: text in read)
    schema = progent._restrict_values([shape("bob@blue.org")], "recipient bob@blue.org", knowledge)
    rule = allow_under(1, {"message": schema})
    assert rule.find_failure({"message": shape("bob@blue.org")}) is None
    assert rule.find_failure({"message": shape("eve@evil.org")}) is not None
    assert progent._restrict_values([{"to": "ann@red.org"}], "nobody", knowledge) is None
