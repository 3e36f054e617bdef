"""Prompt sandwiching: where the reminder stands, and what it says."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.task_suite import get_suite
from scripted_for_baselines import ScriptedModel, calls, runtime_returning

from agentsys.errors import ConfigError
from agentsys.models.chat import assistant, text_of
from baselines.reworded_task import PromptSandwiching

QUERY = "Pay {rent}, as in {user_task}."


def run(defense: PromptSandwiching, model: ScriptedModel, **results: Any) -> list[Any]:
    pipeline = defense.pipeline(model, get_suite("v1.2.2", "banking"))
    return list(pipeline.query(QUERY, runtime_returning(**results))[3])


def roles(messages: list[Any]) -> list[str]:
    return [message["role"] for message in messages]


def test_in_result_the_reminder_ends_every_result_payload_and_error_included() -> None:
    defense = PromptSandwiching("in_result", "|task: {user_task}")
    model = ScriptedModel([calls("a", "broken"), calls("a"), assistant("Done.")])
    messages = run(defense, model, a="payload", broken=ValueError("payload too"))
    results = [message for message in messages if message["role"] == "tool"]
    assert roles(messages) == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [text_of(result) for result in results] == [f"payload|task: {QUERY}", "", f"payload|task: {QUERY}"]
    assert results[1]["error"] == f"ValueError: payload too|task: {QUERY}"


def test_unknown_position_and_template_without_task_are_the_users_errors() -> None:
    with pytest.raises(ConfigError, match="Did you mean in_result"):
        PromptSandwiching("in_results")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="user_task"):
        PromptSandwiching(template="Stay on task!")
