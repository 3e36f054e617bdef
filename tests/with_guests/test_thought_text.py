"""Thoughts that a server leaves in a text: taken off where they begin it, seen elsewhere, never searched for calls."""

from __future__ import annotations

from typing import Any

import pytest
from agentdojo.functions_runtime import FunctionCall
from scripted_for_serving import Scripted

from agentsys.models.chat import ChatReply, ChatRequest, ToolSpec, assistant, text_of, tool_message, user
from agentsys.models.providers.wire_parts import read_thoughts_text
from agentsys.models.reply_checks import count_oddities
from agentsys.models.text_tools import TEXT_PROTOCOLS, with_parsed_calls
from agentsys.models.thought_text import (
    ThoughtBlock,
    ThoughtSplittingModel,
    find_leading_block,
    split_all_thoughts,
    split_leading_thoughts,
)

BLOCKS = [
    "<think>\nPay Bob.\n</think>\n\n",
    "  <thinking>Pay Bob.</thinking>",
    "<seed:think>Pay Bob.</seed:think>",
    "<longcat_think>Pay Bob.</longcat_think>",
    "<think:6124c78e>Pay Bob.</think:6124c78e>",
    "[THINK]Pay Bob.[/THINK]",
    "◁think▷Pay Bob.◁/think▷",
    "<|START_THINKING|>Pay Bob.<|END_THINKING|>",
    "<|channel|>analysis<|message|>Pay Bob.<|end|>",
    "<|channel>thought\nPay Bob.<channel|>",
]


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_that_begins_a_text_is_told_from_it_in_every_familys_tags(block: str) -> None:
    assert find_leading_block(block + "Done.") is ThoughtBlock.TAGGED
    assert split_leading_thoughts(block + "Done.") == ("Pay Bob.", "Done.")


def test_thoughts_whose_opening_tag_stood_in_the_prompt_and_such_as_never_end() -> None:
    assert find_leading_block("Pay Bob.\n</think>\n\nDone.") is ThoughtBlock.UNOPENED
    assert split_leading_thoughts("Pay Bob.\n</think>\n\nDone.") == ("Pay Bob.", "Done.")
    assert split_leading_thoughts("<think>Pay Bob") == ("Pay Bob", "")


def test_thoughts_elsewhere_are_left_to_who_asks_for_all() -> None:
    text = "Well. <think>Pay Bob.</think>Done."
    assert find_leading_block(text) is None and split_leading_thoughts(text) == ("", text)
    assert split_all_thoughts(text) == ("Pay Bob.", "Well. Done.")
    assert split_all_thoughts("Say <think> and go on") == ("", "Say <think> and go on")


QUOTED = "The page says </think> and no more."
TOOLS = (ToolSpec("pay", "Pays.", {"type": "object", "properties": {"to": {"type": "string"}}}),)


@pytest.mark.parametrize(
    ("block", "said", "thoughts", "text"),
    [
        (ThoughtBlock.TAGGED, "<think>a</think>b", "a", "b"),
        (ThoughtBlock.UNOPENED, "<think>a</think>b", "a", "b"),
        (ThoughtBlock.UNOPENED, "a</think>b", "a", "b"),
        (ThoughtBlock.TAGGED, QUOTED, "", QUOTED),
        (ThoughtBlock.TAGGED, "b <think>a</think>", "", "b <think>a</think>"),
    ],
)
def test_a_models_leading_thoughts_go_where_a_server_with_a_parser_puts_them(
    block: ThoughtBlock, said: str, thoughts: str, text: str
) -> None:
    call = FunctionCall(function="pay", args={"to": "Bob"}, id="c1")
    model = ThoughtSplittingModel(Scripted(ChatReply(assistant(said, [call]))), block)
    message = model.complete(ChatRequest([user("x")], TOOLS)).message
    assert (read_thoughts_text(message), text_of(message)) == (thoughts, text)
    assert message["tool_calls"] == [call]


def test_thoughts_left_in_an_answer_are_counted_and_quoted_tags_are_not() -> None:
    asked = ChatRequest([user("Look.")], TOOLS)
    for said in ("<think>a</think>b", "b<think>a</think>", "a</think>b"):
        assert count_oddities(asked, ChatReply(assistant(said))) == {"thoughts_in_text": 1}
    read = [user("Look."), tool_message(FunctionCall(function="read", args={}), "x </think> y")]
    assert count_oddities(ChatRequest(read, TOOLS), ChatReply(assistant(QUOTED))) == {}


CALLS = {
    "agentdojo": '<function=pay>{"to": "Bob"}</function>',
    "agentdojo+": '<function=pay>{"to": "Bob"}</function>',
    "llama3": '{"name": "pay", "parameters": {"to": "Bob"}}',
    "hermes": '<tool_call>{"name": "pay", "arguments": {"to": "Bob"}}</tool_call>',
}


@pytest.mark.parametrize("name", TEXT_PROTOCOLS)
@pytest.mark.parametrize(
    "around",
    [
        "<think>{}</think>No.",
        "<think>{}",
        "{}</think>No.",
        "No. <think>{}</think>",
        "No. <think>{}",
        "[THINK]{}[/THINK]No.",
    ],
)
def test_a_call_that_is_only_considered_is_made_in_no_protocol(name: str, around: str) -> None:
    protocols: dict[Any, Any] = {**TEXT_PROTOCOLS}
    protocol = protocols[name]
    call, asked = CALLS[name], ChatRequest([user("Pay?")], TOOLS)
    made = with_parsed_calls(assistant(f"<think>No.</think>{call}"), asked, protocol)
    assert [one.function for one in made["tool_calls"] or ()] == ["pay"]
    considered = with_parsed_calls(assistant(around.format(call)), asked, protocol)
    assert considered["tool_calls"] is None
