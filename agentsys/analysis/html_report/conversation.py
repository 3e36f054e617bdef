"""`ConversationView`: stored messages, old form or new, as the page shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from agentsys.analysis.html_report.highlight import marked
from agentsys.analysis.html_report.loose import as_text, mapping, name, objects
from agentsys.analysis.html_report.text_store import TextStore, clipped

MOST_MESSAGES = 400
"""Messages shown of one context; agents stop long before."""


class CallView(TypedDict):
    """One tool call."""

    tool: str
    args: int
    """Number of the text: the arguments as indented JSON."""


class MessageView(TypedDict):
    """One message. Every text is a number of the text store."""

    role: str
    parts: list[int]
    calls: NotRequired[list[CallView]]
    """Calls the assistant asked for."""
    answers: NotRequired[str]
    """The tool whose result this is."""
    error: NotRequired[int]
    """The tool's error."""


class Writer:
    """Puts one case's texts into the store, the injection marked in them."""

    def __init__(self, store: TextStore, sought: Sequence[str]) -> None:
        self._store = store
        self._sought = sought
        self.characters_cut = 0
        """Characters of this case's texts that were too many to show."""

    def text(self, value: object) -> int:
        """The number of a text, or of anything else as JSON."""
        shown, cut = clipped(as_text(value))
        self.characters_cut += cut
        return self._store.number(marked(shown, self._sought))

    def messages(self, stored: object) -> list[MessageView]:
        """Messages of one context; whatever is no message is passed over."""
        return [self._message(message) for message in objects(stored)[:MOST_MESSAGES]]

    def _message(self, message: Mapping[str, Any]) -> MessageView:
        parts = [text for text in map(_part, _blocks(message.get("content"))) if text]
        view: MessageView = {
            "role": name(message.get("role"), "unknown"),
            "parts": [self.text(text) for text in parts],
        }
        if calls := objects(message.get("tool_calls")):
            view["calls"] = [self._call(call) for call in calls]
        if view["role"] == "tool":
            view["answers"] = name(mapping(message.get("tool_call")).get("function"), "unknown tool")
        if message.get("error") is not None:
            view["error"] = self.text(message["error"])
        return view

    def _call(self, call: Mapping[str, Any]) -> CallView:
        return {"tool": name(call.get("function"), "unknown tool"), "args": self.text(call.get("args"))}


def _blocks(content: object) -> list[object]:
    """The content's blocks; a plain string (AgentDojo's old form) is one."""
    if content is None:
        return []
    return list(content) if isinstance(content, list) else [content]


def _part(block: object) -> str:
    """A block's text; one that is not text (thinking, for one) says what it is."""
    if not isinstance(block, dict):
        return as_text(block)
    kind, text = name(block.get("type"), "text"), block.get("content")
    if kind == "text":
        return "" if text is None else as_text(text)
    return f"[{kind}]" if text is None else f"[{kind}]\n{as_text(text)}"
