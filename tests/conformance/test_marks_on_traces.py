"""No final answer of published runs is taken for a call that a server did not parse, or for thoughts."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, assistant, tool_message, user
from agentsys.models.reply_checks import count_oddities

TRACES = Path(__file__).parents[2].parent / "shared" / "data" / "traces"
ARCHIVES = sorted(TRACES.glob("*.tar.gz"))
CALL = FunctionCall(function="read", args={})


def text_of_stored(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(block.get("content") or "" for block in content or () if block.get("type") == "text")


def iterate_conversations(archive: Path) -> Iterator[list[dict[str, Any]]]:
    with tarfile.open(archive) as tar:
        for member in tar:
            opened = tar.extractfile(member) if member.name.endswith(".json") else None
            try:
                record = json.load(opened) if opened else None
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("messages"), list) and record["messages"]:
                yield record["messages"]


@pytest.mark.slow
@pytest.mark.skipif(not ARCHIVES, reason=f"the published traces are not at {TRACES}")
@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name)
def test_no_final_answer_of_a_published_run_is_taken_for_a_call(archive: Path) -> None:
    conversations = list(iterate_conversations(archive))
    made = {
        call["function"]
        for messages in conversations
        for message in messages
        for call in message.get("tool_calls") or ()
    }
    tools = [ToolSpec(name, "", {"type": "object", "properties": {}}) for name in sorted(made)]
    for messages in conversations:
        last = messages[-1]
        if (
            last["role"] == "assistant"
            and not last.get("tool_calls")
            and (said := text_of_stored(last).strip())
        ):
            results = [tool_message(CALL, text_of_stored(one)) for one in messages if one["role"] == "tool"]
            asked = ChatRequest([user("Do it."), *results], tools)
            assert count_oddities(asked, ChatReply(assistant(said))) == {}, said
