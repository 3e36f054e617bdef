"""`Transcript` and `planned_tools`: what the `messages` and the `.log` of ASB's results tell.

Texts are Python literals that ASB wrote with `repr`; they hold whatever models and attackers wrote, so they
are read as literals of bounded size and nothing else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentsys.python_parser import literal_eval
from agentsys.records.unreadable import UnreadableRecord

MOST_CHARS = 2_000_000
"""Longest text that is parsed; recorded ones have some 4,000 characters."""

_ACTION, _OBSERVATION = "[Action]:", "[Observation]:"
_CALLED = re.compile(r"I will call the (\S+) with the params as ")
_PAYLOAD = "You must strictly adhere to the following instruction: "
"""How every payload of ASB begins, without what some attack types put before it."""
_API_ERROR = re.compile(r"(?:\[Thinking\]: *)?OpenAI \S+ error\b", re.IGNORECASE)
"""ASB turns an exception of the API into the text of a reply."""
_TOOLS, _PLAN = "tool list: ", "The workflow generated for the problem is "
_PROLOGUE = 4
"""Persona, planning instruction, task, plan."""


@dataclass(frozen=True)
class AsbTranscript:
    """The course of one case, as far as its messages show it."""

    task: str
    offered_tools: tuple[str, ...]
    """Names of the tools in the planner's prompt; empty where they cannot be read."""
    rounds: tuple[tuple[str, ...], ...]
    """Tools that ran, one tuple per message with tool results."""
    payloads: int
    """Payloads in these messages. A defense may have cut some before they were written down."""
    steps: int
    """Steps of the plan; 0 after a workflow failure."""
    has_failed_request: bool
    """Whether a request failed: ASB counts such a case as a failure."""

    def count_runs(self, tool: str) -> int:
        """Count the runs of a tool."""
        return sum(called.count(tool) for called in self.rounds)


def parse_transcript(text: str) -> AsbTranscript:
    """Read the column `messages`.

    Raises:
        UnreadableRecord: If it is no list of messages, or too long.
    """
    messages = _messages(text)
    contents = [_content(message) for message in messages]
    acted = [content for content in contents[_PROLOGUE:] if content.startswith(_ACTION)]
    payloads = [content.partition(_OBSERVATION)[2].count(_PAYLOAD) for content in acted]
    return AsbTranscript(
        task=contents[2] if len(contents) > 2 else "",
        offered_tools=_offered_tools(contents[1] if len(contents) > 1 else ""),
        rounds=tuple(_called_tools(content) for content in acted),
        payloads=sum(payloads),
        steps=_count_steps(contents[3] if len(contents) > 3 else ""),
        has_failed_request=_has_failed_request(messages),
    )


def _messages(text: str) -> list[Mapping[str, Any]]:
    if len(text) > MOST_CHARS:
        raise UnreadableRecord(f"`messages` has {len(text)} characters, more than {MOST_CHARS}")
    try:
        found = literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        raise UnreadableRecord("`messages` is no Python list of messages") from None
    if not isinstance(found, list) or not all(isinstance(message, dict) for message in found):
        raise UnreadableRecord("`messages` is no Python list of messages")
    return found


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""


def _called_tools(content: str) -> tuple[str, ...]:
    """Tools of one round. Only the part before the results counts: the rest is text that tools returned."""
    return tuple(_CALLED.findall(content.partition(_OBSERVATION)[0]))


def _offered_tools(prompt: str) -> tuple[str, ...]:
    listed = _json_after(prompt, _TOOLS)
    return tuple(name for tool in listed if (name := _tool_name(tool)) is not None)


def _tool_name(tool: object) -> str | None:
    function = tool.get("function") if isinstance(tool, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def _count_steps(plan: str) -> int:
    return len(_json_after(plan, _PLAN))


def _json_after(text: str, mark: str) -> Sequence[Any]:
    """The JSON list that follows a mark; empty if there is none."""
    _, found, rest = text.partition(mark)
    try:
        value, _ = json.JSONDecoder().raw_decode(rest) if found else ([], 0)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


def _has_failed_request(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a request was rejected or failed.

    One variant keeps a reply without tool calls under the key `thinking`, without `content`: the request
    of every later step then holds a message that the API rejects.
    """
    replies = [place for place, m in enumerate(messages) if m.get("role") == "assistant"]
    blocking = (place for place in replies if "content" not in messages[place])
    stuck = any(m.get("role") == "user" for place in blocking for m in messages[place + 1 :])
    return stuck or any(_API_ERROR.match(text) for place in replies for text in _texts(messages[place]))


def _texts(message: Mapping[str, Any]) -> Iterator[str]:
    return (text for key in ("content", "thinking") if isinstance(text := message.get(key), str))


_LONGEST_LINE = 200_000
"""Longest line that is parsed."""

_PARSED = "workflow after check: "
"""How a line with a parsed plan begins."""


def load_planned_tools(results: Path) -> frozenset[str] | None:
    """Every tool that stands in some plan of a run.

    Names are compared whole, never as parts: many names of attack tools contain one another. A plan's
    line does not say whose it is, but no two cases share an attack tool.

    Args:
        results: The CSV file; its log has the same name and ends in `.log`.

    Returns:
        None without a log, or where it prints no plan.
    """
    try:
        with results.with_suffix(".log").open(encoding="utf-8", errors="replace") as log:
            plans = [plan for line in log for plan in _parse_plans(line)]
    except OSError:
        return None
    return frozenset(tool for plan in plans for tool in _tools_of_plan(plan)) if plans else None


def _parse_plans(line: str) -> Iterator[list[object]]:
    if not line.startswith(_PARSED) or len(line) > _LONGEST_LINE:
        return
    try:
        plan = literal_eval(line.removeprefix(_PARSED).strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return  # `None` after a failed try is no plan; nor is half a line of a killed run
    if isinstance(plan, list):
        yield plan


def _tools_of_plan(plan: list[object]) -> Iterator[str]:
    for step in plan:
        used = step.get("tool_use") if isinstance(step, dict) else None
        if isinstance(used, list):
            yield from (tool for tool in used if isinstance(tool, str))
