"""Delimits what others wrote in an attacker's prompt, with marks that the text cannot close."""

from __future__ import annotations

import re

GOAL, START, REQUEST, RESULT, DEFENSE, TEXT, DID = (
    "goal",
    "start_text",
    "user_request",
    "tool_result",
    "defense",
    "text",
    "what_the_agent_did",
)
_TAGS = re.compile(rf"<(?=/?\s*(?:{'|'.join((GOAL, START, REQUEST, RESULT, DEFENSE, TEXT, DID))})\b)", re.I)


def delimit(tag: str, text: str) -> str:
    """A text in a tag, as data. Whatever in it looks like one of these tags loses its angle bracket."""
    return f"<{tag}>\n{_TAGS.sub('(', text)}\n</{tag}>"


def extract_delimited(tag: str, text: str) -> str | None:
    """What stands in the first such tag of a text that `delimited` wrote; None where there is none."""
    found = re.search(rf"<{tag}>\n(.*?)\n</{tag}>", text, re.DOTALL)
    return None if found is None else found[1]
