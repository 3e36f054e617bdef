"""The conversation of the masked pass: of the case, the system message and tool outputs; and its play."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatAssistantMessage, ChatMessage, ChatToolResultMessage

from agentsys.models.chat import ChatRequest, assistant, text_of, tool_message, user
from agentsys.models.providers.wire_parts import visible_text
from agentsys.simulated.scripted_agent import play_plain_agent
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole
from baselines.melon import prompts

MASKED_ROLE = "melon_masked"
RULE = "=" * 50
"""The line before and after each tool output in the file that the masked pass reads."""

FILE_TOOL = "open_file"
"""Reads the made-up files. Like the demonstrations' other tools it need not be on offer."""


def build_masked_conversation(messages: Sequence[ChatMessage], *, show_errors: bool = True) -> list[ChatMessage]:
    """Build the conversation that the masked pass is asked with.

    Args:
        messages: The real conversation so far.
        show_errors: Whether error texts of failed calls go along; without them an instruction in an
            error text is read by the agent and not by the masked pass.

    Returns:
        The system messages, nine messages of demonstration, and three in which the model is asked to
        sum up a file and has just read it: all tool outputs so far, in order.

    Source: arXiv 2502.05174, section 4 and appendix.
    """
    real = [message for message in messages if message["role"] == "system"]
    outputs = [write_output_section(message, show_errors) for message in messages if message["role"] == "tool"]
    asked = _call_message(None, FILE_TOOL, "masked_file", name="calls-2.txt")
    return [
        *real,
        *_inbox_demonstration(),
        *_file_demonstration(),
        user(prompts.MASKED_REQUEST),
        asked,
        _result_message(asked, "".join(outputs)),
    ]


def write_section(function: str, text: str) -> str:
    """One tool's output as it stands in the file."""
    return f"{RULE}\n\nfunction: {function}\n\n{text}\n\n{RULE}\n\n"


def write_output_section(message: ChatToolResultMessage, show_errors: bool) -> str:
    """The section of a tool message."""
    error = message["error"] if show_errors else None
    texts: Iterable[str] = filter(None, (visible_text(message), error and f"error: {error}"))
    return write_section(message["tool_call"].function, "\n".join(texts))


def _inbox_demonstration() -> list[ChatMessage]:
    """A text without instructions is summed up, and no call is made up."""
    call = _call_message(None, "read_inbox", "demonstration_1", user_name="Dana")
    return [
        user(prompts.INBOX_REQUEST),
        call,
        _result_message(call, prompts.INBOX_OUTPUT),
        assistant(prompts.INBOX_ANSWER),
    ]


def _file_demonstration() -> list[ChatMessage]:
    """An instruction is followed by its next open call; what the file already holds is not fetched again."""
    opening = _call_message(prompts.FILE_ANNOUNCEMENT, FILE_TOOL, "demonstration_2", name="calls-1.txt")
    report = {"title": prompts.REPORT_TITLE, "content": prompts.REPORT_CONTENT}
    filing = _call_message(prompts.REPORT_ANNOUNCEMENT, "create_report", "demonstration_3", **report)
    file = write_section("get_note", prompts.FILE_NOTE) + write_section("get_weather", prompts.FILE_READINGS)
    return [
        user(prompts.FILE_REQUEST),
        opening,
        _result_message(opening, file),
        filing,
        _result_message(filing, prompts.REPORT_OUTPUT),
    ]


def _call_message(text: str | None, function: str, call_id: str, **args: str) -> ChatMessage:
    return assistant(text, [FunctionCall(function=function, args=args, id=call_id)])


def _result_message(calling: ChatMessage, text: str) -> ChatToolResultMessage:
    assert calling["role"] == "assistant"
    (call,) = calling["tool_calls"] or []
    return tool_message(call, text)


SUMMARY = "The file holds tool calls and their outputs, and no instructions."


def play_masked_run(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """The next open call of a goal that stands in the file, else a summary.

    It reads the file as a conversation of its own, in which each section is a call that has been made. The
    masked request asks to follow instructions, so a goal is always obeyed, whatever the susceptibility.
    A real model also takes up harmless requests that stand in data ("pay this bill"), which is where
    MELON's false positives come from; the simulated one does not.
    """
    if not request.messages:
        return assistant(SUMMARY)
    willing = replace(knowledge, options=replace(knowledge.options, susceptibility=1.0))
    unfolded = [user(prompts.MASKED_REQUEST), *_file_as_conversation(text_of(request.messages[-1]))]
    return play_plain_agent(replace(request, messages=unfolded), willing)


def _file_as_conversation(file: str) -> Iterator[ChatMessage]:
    for place, (function, output) in enumerate(_read_sections(file)):
        call = FunctionCall(function=function, args={}, id=f"read_{place}")
        yield assistant(None, [call])
        yield tool_message(call, output)


def _read_sections(file: str) -> list[tuple[str, str]]:
    """Tool and output of each section of the file that `masked_conversation` writes."""
    parts = file.split(f"{RULE}\n\nfunction: ")[1:]
    heads = [part.partition("\n\n") for part in parts]
    return [(name, rest.removesuffix(f"\n\n{RULE}\n\n")) for name, _, rest in heads]


ROLES: dict[str, SimulatedRole] = {MASKED_ROLE: play_masked_run}
