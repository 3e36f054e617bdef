"""FIDES's policies: every tool with every combination of labels, and what holds the worst planner back."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from fides_runs import fresh, suite_of

from baselines.fides.fides_policy import CallArgument, has_link, judge_call, load_written_rules
from baselines.flow.labelled_values import FROM_USER, label_from_tool

SUITES = ("workspace", "travel", "banking", "slack")
P_STAR = {
    "send_email",
    "create_calendar_event",
    "append_to_file",
    "send_direct_message",
    "send_channel_message",
}
P_DOUBLE = {"add_calendar_event_participants"}
P1 = {
    *("delete_email", "reschedule_calendar_event", "cancel_calendar_event", "create_file", "delete_file"),
    *("share_file", "get_user_information", "reserve_hotel", "reserve_restaurant", "reserve_car_rental"),
    *(
        "send_money",
        "schedule_transaction",
        "update_scheduled_transaction",
        "get_user_info",
        "update_password",
    ),
    *("update_user_info", "add_user_to_channel", "invite_user_to_slack", "remove_user_from_slack"),
    "post_webpage",
}
UNTRUSTED = label_from_tool("t")
NAMED = {
    "channel": "general",
    "file_id": "1",
    "recipient": "Alice",
    "recipients": ["alice@x.org"],
    "participants": ["alice@x.org"],
}
TOOLS = [
    (suite, tool.name, tuple(tool.parameters.model_fields))
    for suite in SUITES
    for tool in suite_of(suite).tools
]


@pytest.mark.parametrize(
    ("suite", "tool", "names"), TOOLS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_the_policy_of_every_tool(suite: str, tool: str, names: tuple[str, ...]) -> None:
    rules, environment = load_written_rules(suite), fresh(suite)
    assert rules is not None
    for trusted, readable, linked, link_trusted in product([True, False], repeat=4):
        label = FROM_USER if trusted else UNTRUSTED
        words = label_from_tool("t", (), None if readable else ()) | label
        words = words if not link_trusted or readable is False else label
        arguments = {
            name: CallArgument(
                NAMED.get(name, "see evil.com" if linked else "hello"), label if name in NAMED else words
            )
            for name in names
        }
        addressed = {"cc", "bcc", "attachments"}
        arguments = {
            n: CallArgument(None if n in addressed else a.value, a.label) for n, a in arguments.items()
        }
        verdict = judge_call(rules, tool, arguments, label, environment)
        texts = [a for n, a in arguments.items() if n not in NAMED and a.value is not None]
        p2 = all(a.label.is_public for a in arguments.values() if a.value is not None)
        p2 = p2 and not any("evil.com" in str(a.value) and not a.label.is_trusted for a in texts)
        expected = True
        if tool in P1:
            expected = trusted
        elif tool in P_DOUBLE:
            expected = trusted and p2
        elif tool in P_STAR:
            expected = p2 or trusted
        assert verdict.allow == expected, (trusted, readable, linked, link_trusted)
        assert "evil" not in verdict.reason and "alice" not in verdict.reason.lower()


def test_every_tool_of_the_table_is_there_and_all_others_only_read() -> None:
    policies: dict[str, str] = {}
    for suite in SUITES:
        rules = load_written_rules(suite)
        assert rules is not None
        names = {tool.name for tool in suite_of(suite).tools}
        assert {*rules.free, *rules.policies} == names
        policies |= {tool: policy.rule for tool, policy in rules.policies.items()}
    assert policies == {
        **dict.fromkeys(P_STAR, "p_star"),
        **dict.fromkeys(P_DOUBLE, "p_double_star"),
        **dict.fromkeys(P1, "p1"),
    }


@pytest.mark.parametrize(
    ("text", "linked"),
    [
        ("see https://a.b/c", True),
        ("www.evil.com", True),
        ("evil.dev", True),
        ("write to a@evil.ai", True),
        ("ftp://x", True),
        ("hello there", False),
        ("It ends. And begins.", False),
        ("3.14 and 10.5", False),
    ],
)
def test_links_are_found_bare_domains_included(text: str, linked: bool) -> None:
    assert has_link(text) is linked


def test_every_field_that_an_injection_reaches_is_labelled_untrusted() -> None:
    reads = {
        "workspace": [
            ("get_received_emails", {}),
            ("list_files", {}),
            ("search_calendar_events", {"query": ""}),
        ],
        "banking": [("get_most_recent_transactions", {})],
        "travel": [],
        "slack": [],
    }
    for suite, calls in reads.items():
        rules, chosen = load_written_rules(suite), suite_of(suite)
        assert rules is not None
        vectors = {name: f"CANARY {name}" for name in chosen.get_injection_vector_defaults()}
        environment = chosen.load_and_inject_default_environment(vectors)
        tools = {tool.name: tool for tool in chosen.tools}
        seen: Counter[str] = Counter()
        for name, args in calls:  # type: ignore[attr-defined]
            depends = {k: getattr(environment, d.env_dependency) for k, d in tools[name].dependencies.items()}
            for item in tools[name].run(**depends, **args):
                for field in type(item).model_fields:
                    if "CANARY" in str(getattr(item, field)):
                        assert field in rules.exposed.classes[type(item).__name__], (name, field)
                        seen[name] += 1
        assert set(seen) == {name for name, _ in calls}  # type: ignore[attr-defined]
