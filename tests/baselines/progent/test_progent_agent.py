"""Progent around an agent: what is refused, when rules are written and rewritten, what crosses where."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.types import ChatMessage
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_model import ScriptedModel

from agentsys.models.chat import ChatRequest, ErrorKind, ModelError, assistant, text_of
from agentsys.models.trace import Tracer, use_tracer
from baselines.progent.defense import Progent
from baselines.progent.policy_model import WrittenPolicy, WrittenRule, is_narrower
from baselines.progent.progent_rules import find_condition_failure

QUERY = "Pay Bob's bill\nand tell him."


def rules(**tools: Any) -> str:
    """A policy model's reply: tool -> conditions; a list of conditions gives a rule for each."""
    entries = [
        {"name": name, "args": args}
        for name, given in tools.items()
        for args in (given if isinstance(given, list) else [given])
    ]
    return json.dumps(entries)


def call(name: str, **args: Any) -> FunctionCall:
    return FunctionCall(function=name, args=args, id=f"call_{name}")


class Scripted(ScriptedModel):
    """Plays the agent, whose turns are calls and then "Done.", and the policy model, which repeats itself."""

    def __init__(self, turns: Sequence[Sequence[FunctionCall]], policy: Any = "[]") -> None:
        calling = [assistant("next", list(turn)) for turn in turns]
        super().__init__({"agent": [*calling, assistant("Done.", [])], "policy": policy}, repeat=True)


class Desk:
    """A runtime of a few tools that notes what ran."""

    def __init__(self, note: str = "The account is DE89.") -> None:
        self.ran: list[tuple[Any, ...]] = []
        self.runtime = FunctionsRuntime()

        def get_note() -> str:
            """Gets the note."""
            self.ran.append(("get_note",))
            return note

        def get_page(url: str) -> str:
            """Gets a page.

            :param url: Where.
            """
            self.ran.append(("get_page", url))
            return "A page."

        def pay(to: str, amount: float = 1.0, subject: str | None = None) -> str:
            """Pays.

            :param to: Whom.
            :param amount: How much.
            :param subject: What for.
            """
            self.ran.append(("pay", to, amount, subject))
            return "paid"

        def mail(to: list[str]) -> str:
            """Mails.

            :param to: To whom.
            """
            self.ran.append(("mail", *to))
            if to == ["broken"]:
                raise ValueError("no such address")
            return "sent"

        for tool in (get_note, get_page, pay, mail):
            self.runtime.register_function(tool)


def suite_named(name: str) -> Any:
    """What a defense looks at of a suite."""
    return SimpleNamespace(name=name, system_message="You work for Emma.")


def run(
    model: Scripted,
    desk: Desk | None = None,
    *,
    query: str = QUERY,
    suite: str = "nowhere",
    tracer: Tracer | None = None,
    **options: Any,
) -> list[ChatMessage]:
    """The conversation of one task."""
    pipeline = Progent(**options).pipeline(model, suite_named(suite))
    with use_tracer(tracer or Tracer()):
        return list(pipeline.query(query, (desk or Desk()).runtime)[3])


def errors(messages: Sequence[ChatMessage]) -> list[str | None]:
    """The error of each tool message, in order."""
    return [message["error"] for message in messages if message["role"] == "tool"]


def question_of(request: ChatRequest) -> str:
    """Everything a policy model is told."""
    return "\n".join(text_of(message) for message in request.messages)


PAY_BOB, PAY_EVE = call("pay", to="Bob"), call("pay", to="Eve")
TO_BOB = {"to": {"enum": ["Bob"]}}
NO_UPDATE: dict[str, Any] = {"update": False}


def test_what_the_rules_allow_runs_and_a_refusal_is_an_error_that_repeats_the_request_verbatim() -> None:
    desk, model = Desk(), Scripted([[PAY_BOB], [PAY_EVE], [call("mail", to=["Eve"])]], rules(pay=TO_BOB))
    messages = run(model, desk, **NO_UPDATE)
    assert desk.ran == [("pay", "Bob", 1.0, None)]
    allowed, condition, unknown = [message for message in messages if message["role"] == "tool"]
    assert (text_of(allowed), allowed["error"]) == ("paid", None)
    for refused in (condition, unknown):
        assert text_of(refused) == ""
        assert (refused["error"] or "").startswith("ValidationError: ")
        assert (refused["error"] or "").endswith(QUERY)
    assert "'Eve' is not one of ['Bob']" in (condition["error"] or "")
    assert "'mail'" in (unknown["error"] or "")
    assert text_of(messages[-1]) == "Done."


def test_a_call_nested_in_anothers_arguments_is_held_against_the_rules_too() -> None:
    desk = Desk()
    nested = FunctionCall(function="mail", args={"to": [call("get_page", url="x")]}, id="a")
    model = Scripted([[nested], [call("pay", to=call("get_page", url="x"))]], rules(mail={}, pay={}))
    assert all(errors(run(model, desk, **NO_UPDATE)))
    assert ("get_page", "x") not in desk.ran
    assert not any(ran[0] == "pay" for ran in desk.ran)


def test_temperatures_rise_with_each_unreadable_reply_and_the_sixth_is_the_last() -> None:
    model = Scripted([[PAY_BOB]], ["no idea what"] * 2 + ["{}", "[", "nothing"] + [rules(pay={})])
    assert errors(run(model, **NO_UPDATE)) == [None]
    assert [request.temperature for request in model.requests_of("policy")] == [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    failing = Scripted([[PAY_BOB]], "gibberish")
    with pytest.raises(ModelError) as raised:
        run(failing, **NO_UPDATE)
    assert raised.value.kind is ErrorKind.MALFORMED_REPLY
    assert len(failing.requests_of("policy")) == 6


def test_a_policy_model_that_fails_ends_the_case_at_once() -> None:
    model = Scripted([[PAY_BOB]], ModelError(ErrorKind.SERVER_ERROR, "down"))
    with pytest.raises(ModelError):
        run(model)
    assert len(model.requests) == 1


def test_the_decision_never_sees_a_result_the_update_does_and_neither_enters_the_conversation() -> None:
    model = Scripted([[call("get_note")], [PAY_BOB]], [rules(pay={}), "Yes", rules(pay=TO_BOB), "No"])
    messages = run(model)
    first, decision, update, last = model.requests_of("policy")
    assert "DE89" not in question_of(decision) and '"name": "get_note"' in question_of(decision)
    assert "DE89" in question_of(update) and "CURRENT_RESTRICTIONS: [{" in question_of(update)
    assert "TOOL_CALL_RESULT" not in text_of(first.messages[1]) and "DE89" not in question_of(last)
    said = "\n".join(text_of(message) for message in messages)
    assert "RESTRICTIONS" not in said and '"args"' not in said
    assert [message["role"] for message in messages] == [
        *("system", "user", "assistant", "tool", "assistant", "tool", "assistant")
    ]


def test_an_update_takes_the_written_rules_place_as_a_whole_and_leaves_the_standing_ones() -> None:
    desk = Desk()
    turns = [[call("get_note")], [PAY_BOB, call("mail", to=["Bob"]), call("get_note")]]
    model = Scripted(turns, [rules(pay={}), "Yes, please.", "Yes\n" + rules(mail={}), "No"])
    results = errors(run(model, desk))
    assert results[0] is None
    assert "'pay'" in (results[1] or "")
    assert results[2:] == [None, None]


def test_where_no_update_can_be_read_the_old_rules_stay_or_the_case_ends() -> None:
    replies = [rules(pay={}), "Yes", *["Nothing to say"] * 6, "No"]
    model = Scripted([[call("get_note")], [PAY_BOB]], replies)
    assert errors(run(model)) == [None, None]
    assert [question.temperature for question in model.requests_of("policy")[2:8]] == [
        0.0,
        0.2,
        0.4,
        0.6,
        0.8,
        1.0,
    ]
    with pytest.raises(ModelError, match="no update"):
        run(Scripted([[call("get_note")], [PAY_BOB]], replies), on_update_error="raise")


def test_a_schema_of_the_whole_object_is_taken_apart_and_lets_everything_through_in_the_reference() -> None:
    whole = rules(pay={"type": "object", "properties": TO_BOB, "required": ["to"]})
    assert errors(run(Scripted([[PAY_EVE]], whole), **NO_UPDATE))[0]
    assert errors(run(Scripted([[PAY_EVE]], whole), compat=True, **NO_UPDATE)) == [None]


@pytest.mark.parametrize(
    "bad",
    [
        rules(pay={"recipient": {"enum": ["Bob"]}}),
        rules(pay={"to": ["Bob"]}),
        rules(pay={"to": None}),
        rules(pay={"to": {"type": "sentence"}}),
        rules(pay={"to": {"pattern": "("}}),
        rules(pay={"to": {"$ref": "https://example.org"}}),
        '[{"args": {}}]',
        '[{"name": "pay", "args": []}]',
        '{"pay": {}}',
    ],
)
def test_a_rule_that_cannot_be_applied_is_asked_for_again(bad: str) -> None:
    model = Scripted([[PAY_BOB]], [bad, rules(pay=TO_BOB)])
    assert errors(run(model, **NO_UPDATE)) == [None]
    assert len(model.requests_of("policy")) == 2


@pytest.mark.parametrize("slip", ['[{"name": "pay", "args": {"to": {"enum": ["Bob"]}}}%s', "```\n%s\n```"])
def test_a_missing_bracket_or_a_fence_without_language_is_read_but_not_in_the_reference(slip: str) -> None:
    policy = slip % ("," if slip.startswith("[") else rules(pay=TO_BOB))
    for compat, asked in ((False, 1), (True, 2)):
        model = Scripted([[PAY_BOB]], [policy, rules(pay=TO_BOB)])
        assert errors(run(model, compat=compat, **NO_UPDATE)) == [None]
        assert len(model.requests_of("policy")) == asked


@pytest.mark.parametrize("bad", [{"to": ["Bob"]}, {"to": None}, {"to": {"type": "sentence"}}])
def test_in_the_reference_such_a_rule_refuses_every_call(bad: Any) -> None:
    model = Scripted([[PAY_BOB]], rules(pay=bad))
    assert errors(run(model, compat=True, **NO_UPDATE)) != [None]
    assert len(model.requests_of("policy")) == 1


def test_a_list_of_values_for_an_array_refuses_its_own_values_unless_it_is_repaired() -> None:
    policy, to_bob = rules(mail={"to": {"enum": ["Bob"]}}), [[call("mail", to=["Bob"])]]
    assert errors(run(Scripted(to_bob, policy), **NO_UPDATE))[0]
    assert errors(run(Scripted(to_bob, policy), repair_array_enums=True, **NO_UPDATE)) == [None]
    to_eve = [[call("mail", to=["Eve"])]]
    assert errors(run(Scripted(to_eve, policy), repair_array_enums=True, **NO_UPDATE))[0]


def test_without_any_rules_nothing_is_enforced_and_nobody_is_asked() -> None:
    model = Scripted([[PAY_EVE], [call("mail", to=["Eve"])]])
    assert errors(run(model, generate=False, base_rules="none")) == [None, None]
    assert model.requests_of("policy") == []


def test_rules_of_ones_own_hold_without_a_policy_model_and_a_passing_call_may_change_them() -> None:
    own = {
        "get_note": [{"updates": {"pay": [{"conditions": {"to": "Bo"}}]}}],
        "mail": [{"effect": "forbid", "conditions": {"to": {"contains": {"const": "Eve"}}}}, {}],
    }
    turns = [[PAY_BOB], [call("get_note")], [PAY_BOB, PAY_EVE], [call("mail", to=["Ann", "Eve"])]]
    model = Scripted([*turns, [call("mail", to=["Ann"])]])
    results = errors(run(model, generate=False, base_rules="none", rules=own))
    assert [error is None for error in results] == [False, True, True, False, False, True]
    assert model.requests_of("policy") == []


def test_a_rule_that_stops_ends_the_task_with_what_was_done_and_asking_is_answered_with_no() -> None:
    from agentdojo.agent_pipeline.errors import AbortAgentError

    stopping = {
        "pay": [{"effect": "forbid", "conditions": {"to": "Eve"}, "fallback": "stop"}, {"priority": 2}]
    }
    desk = Desk()
    with pytest.raises(AbortAgentError) as raised:
        run(Scripted([[PAY_BOB], [PAY_BOB, PAY_EVE, PAY_BOB]]), desk, generate=False, rules=stopping)
    assert [ran[:2] for ran in desk.ran] == [("pay", "Bob")] * 2
    assert raised.value.messages[-1]["role"] == "assistant"
    asking = {"pay": [{"conditions": {"to": "Bob"}, "fallback": "ask"}]}
    assert errors(run(Scripted([[PAY_EVE]]), generate=False, rules=asking))[0]


def test_a_task_begins_with_nothing_of_the_one_before_even_if_no_policy_is_written_for_it() -> None:
    desk = Desk()
    model = Scripted([[PAY_BOB], [], [PAY_BOB]], [rules(pay={}), "gibberish"])
    pipeline = Progent(update=False).pipeline(model, suite_named("nowhere"))
    with use_tracer(Tracer()):
        assert errors(pipeline.query("First.", desk.runtime)[3]) == [None]
    with use_tracer(Tracer()), pytest.raises(ModelError):
        pipeline.query("Second.", desk.runtime)
    assert len(desk.ran) == 1
    model.replies["policy"] = [rules(mail={})]
    with use_tracer(Tracer()):
        assert all(errors(pipeline.query("Third.", desk.runtime)[3]))
    assert len(desk.ran) == 1


def test_a_pipeline_that_is_run_again_in_one_case_keeps_the_first_policy_and_no_update() -> None:
    desk, tracer = Desk(), Tracer()
    model = Scripted([[call("get_note")], []], [rules(pay=TO_BOB), "Yes", rules(pay={}), "No"])
    pipeline = Progent().pipeline(model, suite_named("nowhere"))
    with use_tracer(tracer):
        pipeline.query(QUERY, desk.runtime)
        model.replies["agent"] = Scripted([[PAY_EVE], [PAY_BOB]]).replies["agent"]
        again = pipeline.query(QUERY, desk.runtime)[3]
    assert [error is None for error in errors(again)] == [False, True]
    assert sum("CURRENT_RESTRICTIONS" not in text_of(q.messages[1]) for q in model.requests_of("policy")) == 3


def test_a_suite_without_base_rules_gets_those_of_its_reading_tools_that_take_nothing_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tracer = Tracer()
    messages = run(
        Scripted([[call("get_note"), call("get_page", url="x")]]), suite="elsewhere", tracer=tracer
    )
    assert [error is None for error in errors(messages)] == [True, False]
    (span,) = [span for span in tracer.spans if span.name == "base_rules"]
    assert span.decision == {"source": "generated", "always_allowed": ["get_note"]}
    assert "no base rules for the suite elsewhere" in caplog.text


def test_each_suite_of_agentdojo_has_base_rules_and_none_of_them_lets_a_tool_act() -> None:
    from agentdojo.task_suite.load_suites import get_suites

    from agentsys.models.pipeline_elements import tool_specs
    from baselines.progent.progent_gate import load_base_rules

    counts = {}
    for name, suite in get_suites("v1.2.2").items():
        found, source = load_base_rules(name, tool_specs(suite.tools))
        counts[name] = len(found)
        assert source == f"base_rules/{name}.yaml"
        assert not {tool for tool in found if not tool.startswith(("get", "list", "search", "read", "check"))}
        assert not {"read_file", "get_webpage"} & set(found)
    assert counts == {"banking": 5, "slack": 4, "travel": 22, "workspace": 14}


def verdict(new: Any, old: Any) -> bool:
    new_rules, old_rules = ((WrittenRule("pay", {"to": condition}),) for condition in (new, old))
    return is_narrower(new_rules, old_rules, first_only=False)


NARROWER: list[tuple[Any, Any]] = [
    ({"enum": ["a"]}, {"enum": ["a", "b"]}),
    ({"const": 3}, {"maximum": 5}),
    ({"enum": ["ab1"]}, {"pattern": "^[a-z]+[0-9]$"}),
    ({"minimum": 2, "maximum": 3, "type": "integer"}, {"minimum": 1, "type": "number"}),
    ({"multipleOf": 4, "type": "number"}, {"multipleOf": 2}),
    ({"type": "string", "minLength": 5}, {"minLength": 3}),
    ({"type": "array", "items": {"enum": ["a"]}, "maxItems": 1}, {"items": {"enum": ["a", "b"]}}),
    ({"type": "boolean"}, {"type": ["boolean", "null"]}),
    ({"type": "string", "pattern": "^a", "maxLength": 4}, {"pattern": "^a", "maxLength": 5}),
]
WIDER: list[tuple[Any, Any]] = [
    ({"enum": ["a", "c"]}, {"enum": ["a", "b"]}),
    ({"type": "string", "pattern": "a\\.org"}, {"pattern": "^https://a\\.org/"}),
    ({"type": "string", "pattern": "^https://a.org/"}, {"pattern": "^https://a\\.org/"}),
    ({"type": "string", "pattern": "^a$"}, {"const": "a"}),
    ({"minimum": 2}, {"minimum": 2, "type": "number"}),
    ({"type": "number", "minimum": 1}, {"exclusiveMinimum": 1}),
    ({"type": "number", "minimum": 1}, {"type": "integer", "minimum": 1}),
    ({"type": "string"}, {"enum": ["a"]}),
    ({"type": "array", "items": {"type": "string"}}, {"type": "array", "items": {"enum": ["a"]}}),
    ({"type": "array", "items": {"enum": ["a"]}}, {"type": "array", "items": {"enum": ["a"]}, "maxItems": 2}),
    ({}, {"type": "string"}),
    ({"type": "object"}, {"type": "string"}),
    ("ab", "abc"),
]
NOT_SHOWN: list[tuple[Any, Any]] = [
    ({"type": "string", "pattern": "^(?=a)"}, {"pattern": "^b"}),
    ({"type": "string", "pattern": "^ab"}, {"pattern": "^a"}),
    ({"anyOf": [{"const": "a"}, {"const": "b"}], "type": "string"}, {"enum": ["a", "b", "c"]}),
    ("abc", "ab"),
    (["a"], {"enum": ["a"]}),
    (
        {"$schema": "http://json-schema.org/draft-03/schema", "type": [{"type": "string"}], "multipleOf": 0},
        {"multipleOf": 0, "type": "string"},
    ),
    ({"type": "string", "pattern": "(a)\\1"}, {"minLength": 2}),
    ({"type": "object", "properties": {"x": {}}}, {"properties": {"x": {"const": 1}}}),
    (
        {"type": "object", "properties": {"x": {}}, "additionalProperties": False},
        {"additionalProperties": False},
    ),
    ({"type": "array", "uniqueItems": True}, {"type": "array", "contains": {"const": 1}}),
]


@pytest.mark.parametrize(("new", "old"), NARROWER, ids=str)
def test_a_restriction_that_admits_no_more_is_narrower(new: Any, old: Any) -> None:
    assert verdict(new, old)


@pytest.mark.parametrize(("new", "old"), [*WIDER, *NOT_SHOWN], ids=str)
def test_what_admits_more_or_cannot_be_shown_to_be_narrower_is_wider(new: Any, old: Any) -> None:
    assert not verdict(new, old)


def policy(**tools: Any) -> WrittenPolicy:
    return tuple(WrittenRule(name, args) for name, args in tools.items())


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (policy(), policy(pay={}), True),
        (policy(pay={"to": {"const": "a"}}), policy(pay={}), True),
        (policy(pay={}), policy(pay={"to": {"const": "a"}}), False),
        (policy(mail={}), policy(pay={}), False),
    ],
)
def test_tools_and_arguments_that_one_side_lacks(
    new: WrittenPolicy, old: WrittenPolicy, expected: bool
) -> None:
    assert is_narrower(new, old, first_only=False) is expected


SCHEMAS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "number", "integer", "boolean", ["string", "null"]]),
        "minimum": st.integers(-2, 2),
        "maximum": st.integers(-2, 2),
        "minLength": st.integers(0, 3),
        "maxLength": st.integers(0, 3),
        "pattern": st.sampled_from(["a", "^a", "a$", "^[ab]+$", "a|b", "^(a|b)$", ".", "^a?b*$", "^[^a]"]),
        "enum": st.lists(st.sampled_from(["a", "b", "ab", 0, 1, 2, None, True]), min_size=1, max_size=3),
    },
)
SAMPLES = [
    "",
    "a",
    "b",
    "ab",
    "ba",
    "aa\n",
    "c",
    "abab",
    "é",
    0,
    1,
    -1,
    2,
    2.5,
    0.5,
    True,
    False,
    None,
    [],
    {},
]


@settings(max_examples=200, deadline=None)
@given(SCHEMAS, SCHEMAS)
def test_nothing_fits_a_narrower_schema_that_does_not_fit_the_wider_one(new: Any, old: Any) -> None:
    if verdict(new, old):
        for value in SAMPLES:
            fits = find_condition_failure("to", value, new) is None
            assert not fits or find_condition_failure("to", value, old) is None, (json.dumps(value), new, old)


def test_only_a_narrower_update_takes_effect() -> None:
    turns = [[call("get_note")], [call("pay", to="Eve")], [call("get_note")], [call("mail", to=["Bob"])]]
    replies = [
        rules(pay={}),
        "Yes",
        rules(pay={"to": {"enum": ["Bob"]}}),
        "Yes",
        rules(pay={}, mail={}),
        "No",
    ]
    results = errors(run(Scripted(turns, replies), Desk(), only_narrow=True))
    assert [error is None for error in results] == [True, False, True, False]
