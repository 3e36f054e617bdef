"""The served model as OpenAI's SDK sees it."""

from __future__ import annotations

from scripted_for_serving import Scripted, openai_client, says
from served_faults import serve

from agentsys.models.chat import text_of
from agentsys.models.pricing import TOKENS_PER_MESSAGE


def test_system_and_developer_messages_and_all_shapes_of_content_are_understood() -> None:
    model = Scripted(says("x"))
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    with serve(model) as server:
        openai_client(server).chat.completions.create(
            model="m",
            messages=[
                {"role": "system", "content": "be brief"},
                {"role": "developer", "content": parts},  # type: ignore[list-item, misc]
                {"role": "user", "content": parts},  # type: ignore[list-item, misc]
                {"role": "assistant", "content": None},
            ],
        )
    told = model.asked[0].messages
    assert [message["role"] for message in told] == ["system", "system", "user", "assistant"]
    assert [text_of(message) for message in told] == ["be brief", "one\ntwo", "one\ntwo", ""]
    assert told[3]["content"] is None
    assert told[3]["tool_calls"] is None


def test_usage_is_estimated_from_characters_where_the_model_reports_none() -> None:
    with serve(Scripted(says("y" * 35))) as server:
        usage = openai_client(server).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "x" * 3500}]
        )
    assert usage.usage is not None
    assert (usage.usage.prompt_tokens, usage.usage.completion_tokens) == (
        1000 + TOKENS_PER_MESSAGE,
        10 + TOKENS_PER_MESSAGE,
    )


def test_models_are_listed() -> None:
    with serve(Scripted(says("x"))) as server:
        assert [model.id for model in openai_client(server).models.list()] == ["scripted"]
