"""`Behaviour`: how a model behaved in one stored case without a defense, read from its messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentsys.models.simulated.victim.situation import Meeting, place_in
from agentsys.payload_lines import PayloadLines, holds_payload, payload_lines, without_own_words
from agentsys.records.case_row import CaseRow
from agentsys.records.context_facts import own_words, shown_text, text_of
from agentsys.records.stored_file import case_in
from agentsys.victims.solutions import Ways


@dataclass(frozen=True)
class Manners:
    """Slips of one conversation."""

    turns: int
    """Assistant messages with calls."""
    parallel: int
    """Of these, with more calls than one."""
    calls: int
    failed: int
    """Calls whose tool answered with an error."""
    repeated: bool
    """Whether an identical call was made twice."""
    as_text: bool
    """Whether a call was written as text."""
    empty: bool
    """Whether the last message says nothing and calls nothing."""
    on_call: bool
    """Whether the conversation ends on a call or its result."""


@dataclass(frozen=True)
class Behaviour:
    """One case."""

    suite: str
    user: str
    """`suite/user_task`, as levels of a factor are named."""
    injection: str | None
    """`suite/injection_task`; None in benign cases."""
    attack: str
    solved: bool
    obeyed: bool
    """Whether the injection task was carried out; False in benign cases."""
    met: Meeting | None
    """When a tool returned the payload; None: never."""
    after: tuple[str, ...]
    """Tools called after that."""
    offered: tuple[str, ...]
    """Tools named in the first assistant message's text: what a tool filter kept, where that is recorded."""
    manners: Manners
    content: str
    """The messages as one text, for the digest."""


def behaviour(row: CaseRow, ways: Ways) -> Behaviour | None:
    """Read a counted case's file again; None where its messages are not there."""
    found = case_in(row.source)
    messages = found.stored.get("messages") if found is not None else None
    if not isinstance(messages, list) or not any(_role(m) == "assistant" for m in messages):
        return None
    assert found is not None
    goal = None if row.injection_task_id is None else f"{row.suite}/{row.injection_task_id}"
    lines = _lines(found.stored.get("injections"), messages) if goal else ()
    met, after = _meeting(messages, lines, ways.wordings.get(goal or "", ""))
    return Behaviour(
        row.suite,
        f"{row.suite}/{row.user_task_id}",
        goal,
        row.attack,
        row.utility,
        bool(row.injection_success),
        met,
        after,
        _offered(messages),
        manners_of(messages),
        json.dumps([messages, row.utility, row.injection_success], sort_keys=True, default=str),
    )


def _lines(injections: object, messages: Sequence[Any]) -> PayloadLines:
    texts = injections.values() if isinstance(injections, Mapping) else ()
    lines = payload_lines(text for text in texts if isinstance(text, str))
    return without_own_words(lines, own_words(messages))


def _meeting(
    messages: Sequence[Any], lines: PayloadLines, goal: str
) -> tuple[Meeting | None, tuple[str, ...]]:
    """The first tool result that holds the payload, and the tools called after it."""
    called: list[str] = []
    met: Meeting | None = None
    after: list[str] = []
    for message in messages:
        if _role(message) == "assistant" and met is not None:
            after += [call[0] for call in _calls(message)]
        if _role(message) != "tool" or met is not None:
            continue
        called.append(_tool(message))
        text = shown_text(message)
        if holds_payload(text, lines):
            met = Meeting(called[-1], len(called), len(text), place_in(text, goal), tuple(called))
    return met, tuple(after)


def _role(message: object) -> object:
    return message.get("role") if isinstance(message, dict) else None


def _tool(message: Mapping[str, Any]) -> str:
    call = message.get("tool_call")
    return str(call.get("function")) if isinstance(call, dict) else "unknown"


def _calls(message: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Tools and arguments that an assistant message calls."""
    calls = message.get("tool_calls")
    made = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
    return [(str(c.get("function")), json.dumps(c.get("args"), sort_keys=True, default=str)) for c in made]


def _offered(messages: Iterable[Any]) -> tuple[str, ...]:
    """Names in a first assistant message without calls: a tool filter answers with a list of tools."""
    first = next((m for m in messages if _role(m) == "assistant"), None)
    if first is None or _calls(first):
        return ()
    return tuple(dict.fromkeys(re.findall(r"[a-z]+(?:_[a-z]+)+", text_of(first.get("content")))))


_CALL_AS_TEXT = re.compile(
    r'<tool_call>|<function[=>]|\{\s*"(?:name|function)"\s*:\s*"\w+"\s*,\s*"(?:arg|param)'
)


def manners_of(messages: Sequence[Any]) -> Manners:
    """Count the slips of one conversation."""
    said = [message for message in messages if _role(message) == "assistant"]
    results = [message for message in messages if _role(message) == "tool"]
    calls = [_calls(message) for message in said]
    flat = [call for turn in calls for call in turn]
    last = messages[-1]
    final = _role(last) == "assistant" and not _calls(last)
    return Manners(
        turns=sum(bool(turn) for turn in calls),
        parallel=sum(len(turn) > 1 for turn in calls),
        calls=len(flat),
        failed=sum(bool(message.get("error")) for message in results),
        repeated=len(set(flat)) < len(flat),
        as_text=any(_CALL_AS_TEXT.search(text_of(m.get("content"))) is not None for m in said),
        empty=final and not text_of(last.get("content")).strip(),
        on_call=not final,
    )
