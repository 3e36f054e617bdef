"""The user's request in other words for the model alone: attacks, scorers and traces keep the bare one.

Shared by the defenses that rewrite the request (`delimiters`, `instructional_prevention`). Two of them at
once are refused: each would rewrite what the other wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from agentdojo.types import ChatMessage, ChatUserMessage, text_content_block_from_string

from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest
from agentsys.models.pipeline_elements import ElementSequence, LoopState, LoopStep, tool_loop
from agentsys.models.providers.wire_parts import visible_text
from agentsys.models.trace import span

PLACEHOLDER = "{user_task}"
"""Stands for the request in a template."""

TextRewrite = Callable[[str], str]


def insert_user_task(template: str, user_task: str) -> str:
    """The template with the request in it. Not `str.format`: no other brace means anything."""
    return template.replace(PLACEHOLDER, user_task)


def require_placeholder(defense: str, template: str) -> str:
    """The template itself.

    Raises:
        ConfigError: If it has no place for the request.
    """
    if PLACEHOLDER not in template:
        raise ConfigError(f"{defense}: template {template!r} lacks the task; put {PLACEHOLDER} in it.")
    return template


def build_reworded_loop(model: ChatModel, system_message: str, defense: str, template: str) -> ElementSequence:
    """The plain agent over a model that reads the request as the template puts it."""
    rewrite = partial(insert_user_task, template)
    return tool_loop(
        RewordingModel(model, rewrite),
        system_message,
        name=f"{model.name}-{defense}",
        before=[RecordRewording(rewrite)],
    )


class RewordingModel:
    """A model that reads the first user message of each conversation, which is the request, rewritten.

    Raises:
        ConfigError: If the model reads a rewritten request already.
    """

    def __init__(self, model: ChatModel, rewrite: TextRewrite) -> None:
        if isinstance(model, RewordingModel):
            raise ConfigError(
                "Two defenses rewrite the same user message;"
                " use either delimiters or instructional_prevention."
            )
        self.model = model
        self.rewrite = rewrite

    @property
    def name(self) -> str:
        """The wrapped model's name."""
        return self.model.name

    def complete(self, request: ChatRequest) -> ChatReply:
        """Ask the wrapped model with the request rewritten; the messages given are left as they are.

        Raises:
            ModelError: If the wrapped model raises it.
        """
        messages = reword_request(request.messages, self.rewrite)
        return self.model.complete(replace(request, messages=messages))


def reword_request(messages: Sequence[ChatMessage], rewrite: TextRewrite) -> list[ChatMessage]:
    """The conversation with the text of its first user message rewritten, as one block in front of others."""
    new = list(messages)
    for index, message in enumerate(new):
        if message["role"] == "user":
            other = [block for block in message["content"] if block["type"] != "text"]
            text = text_content_block_from_string(rewrite(visible_text(message)))
            rewritten: ChatUserMessage = {**message, "content": [text, *other]}
            new[index] = rewritten
            break
    return new


class RecordRewording(LoopStep):
    """Leaves a span of kind `reworded_task` with the bare request and what the model reads in its place."""

    def __init__(self, rewrite: TextRewrite) -> None:
        self.rewrite = rewrite

    def step(self, at: LoopState) -> LoopState:
        """Changes nothing."""
        with span("reworded_task") as node:
            node.decision = {"user_task": at.query, "read_by_model": self.rewrite(at.query)}
        return at
