"""Plain JSON of one stored case for the page: conversation, injections, agent tree, cost, as plain JSON.

Nothing in a stored file is trusted: values of a wrong type become defaults, and every text becomes a number
of the report's `TextStore`. The page's scripts read the keys that are set here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Any

from agentsys.base.payload_lines import INVISIBLE, find_payload_lines, squeeze
from agentsys.records.agentsys_format import parse_stored_block
from agentsys.records.case import UnreadableRecord
from agentsys.records.case_row import CaseRow
from agentsys.records.schema import OWN_KEY, RoleUsage, StoredBlock
from agentsys.records.stored_file import load_stored_json

_ONE_LINE = 90
"""Characters of JSON that still read well on one line."""


def take_mapping(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def take_objects(value: object) -> list[Mapping[str, Any]]:
    """The objects in a list; empty for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def take_name(value: object, default: str = "") -> str:
    """A short text as it is; the default for anything else."""
    return value[:200] if isinstance(value, str) else default


def take_number(value: object) -> float | int | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -1e15 < value < 1e15 else None


def as_text(value: object) -> str:
    """A text as it is; anything else as JSON, indented where one line would be too long."""
    if isinstance(value, str):
        return value
    try:
        flat = json.dumps(value, ensure_ascii=False)
        return flat if len(flat) <= _ONE_LINE else json.dumps(value, indent=2, ensure_ascii=False)
    except (RecursionError, TypeError, ValueError):
        return "(nested too deeply to be shown)"


MOST_LEVELS = 12
"""Levels of an agent tree shown; deeper spans stand at this level (AgentSys's own limit is far below)."""
_MOST_SPANS = 1_000
"""Spans shown of one case."""
_MOST_MESSAGES = 400
"""Messages shown of one context; agents stop long before."""
_MOST_CHARACTERS = 60_000
"""Characters shown of one text; the rest stays in the file, and the report says so."""
_COMMON_KINDS = frozenset({"run", "main", "tool"})
"""Kinds of span that every run has: a tree of these alone tells no more than the conversation."""
_SHORTEST_NEEDLE = 8
"""Squeezed characters of an injection that is short as a whole: fewer would be found everywhere."""
_ESCAPED_SPACE = re.compile(rb"\\[nrt]")
_BLANK = re.compile(r"\s")
_KEPT = bytes(chr(code) not in " \t\n\r\f\v\x1c\x1d\x1e\x1f'\"\\" for code in range(256))
"""Whether `squeeze` keeps an ASCII character, by its code."""

Segments = tuple[str, ...]
"""A text in pieces: plain, marked, plain, marked, ... (an odd number of them; pieces may be empty)."""
View = dict[str, Any]
"""A JSON object for the page's scripts."""


class TextStore(dict[Segments, int]):
    """Every text of some cases once, with its number: prompts, contexts and outputs recur in hundreds of cases."""

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self.first = first
        """Number of the first text."""

    def __missing__(self, segments: Segments) -> int:
        self[segments] = self.first + len(self)
        return self[segments]

    def list_texts(self) -> list[str | list[str]]:
        """List texts in the order of their numbers: a plain string where nothing in it is marked."""
        return [key[0] if len(key) == 1 else list(key) for key in self]


def read_stored_json(path: str) -> Mapping[str, Any]:
    """Read a file's JSON object; empty if it is gone or has become something else since it was read."""
    try:
        return take_mapping(load_stored_json(path))
    except UnreadableRecord:
        return {}


def read_own_block(stored: Mapping[str, Any]) -> StoredBlock | None:
    """Read our own block; None where another tool wrote the file, or it has changed since."""
    if OWN_KEY not in stored:
        return None
    try:
        return parse_stored_block(stored)
    except UnreadableRecord:
        return None


def make_case_view(case: CaseRow, stored: Mapping[str, Any], store: TextStore) -> View:
    """Arrange one case for the page, from our file, AgentDojo's or DRIFT's."""
    block = read_own_block(stored)
    written = (block.written if block else None) or take_mapping(stored.get("injections"))
    injections = {take_name(vector): text for vector, text in written.items() if isinstance(text, str)}
    writer = Writer(store, list_needles(injections.values()))
    view: View = {
        # DRIFT keeps its messages under another key.
        "messages": writer.arrange_messages(stored.get("messages") or stored.get("conversations")),
        "injections": [
            {"vector": vector, "text": writer.store_text(text)} for vector, text in injections.items()
        ],
    }
    if block is not None and any(take_name(span.get("kind")) not in _COMMON_KINDS for span in block.spans):
        view["spans"] = list_span_views(block.spans, writer)
    if block is not None and block.usage:
        view["roles"] = [_make_role_view(role, usage) for role, usage in block.usage.items()]
    if stored.get("error") is not None:
        view["error"] = writer.store_text(stored["error"])
    if case.notes:
        view["notes"] = [writer.store_text(note) for note in case.notes]
    if writer.characters_cut:
        view["characters_cut"] = writer.characters_cut
    return view


def _make_role_view(role: str, usage: RoleUsage) -> View:
    counts = {"prompt": usage.prompt, "completion": usage.completion, "cached": usage.cached}
    # A reply that came without a count makes all counts of its role unknown.
    shown = {key: None if usage.uncounted else int(take_number(count) or 0) for key, count in counts.items()}
    calls = int(take_number(usage.calls) or 0)
    return {"role": take_name(role), "calls": calls, **shown, "cost_usd": take_number(usage.cost_usd)}


class Writer:
    """Puts one case's texts into the store, the injection marked in them."""

    def __init__(self, store: TextStore, needles: Sequence[str]) -> None:
        self._store = store
        self._needles = needles
        self.characters_cut = 0
        """Characters of this case's texts that were too many to show."""

    def store_text(self, value: object) -> int:
        """Store a text, or anything else as JSON, and give its number."""
        text = as_text(value)
        self.characters_cut += max(0, len(text) - _MOST_CHARACTERS)
        return self._store[mark_injection(text[:_MOST_CHARACTERS], self._needles)]

    def arrange_messages(self, stored: object) -> list[View]:
        """Arrange the messages of one context; whatever is no message is passed over."""
        return [self._arrange_message(message) for message in take_objects(stored)[:_MOST_MESSAGES]]

    def _arrange_message(self, message: Mapping[str, Any]) -> View:
        content = message.get("content")
        # A plain string (AgentDojo's old form) is one block.
        blocks = content if isinstance(content, list) else [] if content is None else [content]
        role = take_name(message.get("role"), "unknown")
        view: View = {
            "role": role,
            "parts": [self.store_text(text) for text in map(_write_block, blocks) if text],
        }
        if calls := take_objects(message.get("tool_calls")):
            view["calls"] = [
                {
                    "tool": take_name(call.get("function"), "unknown tool"),
                    "args": self.store_text(call.get("args")),
                }
                for call in calls
            ]
        if role == "tool":
            view["answers"] = take_name(
                take_mapping(message.get("tool_call")).get("function"), "unknown tool"
            )
        if message.get("error") is not None:
            view["error"] = self.store_text(message["error"])
        return view


def _write_block(block: object) -> str:
    """Write a block's text; one that is not text (thinking, for one) says what it is."""
    if not isinstance(block, dict):
        return as_text(block)
    kind, text = take_name(block.get("type"), "text"), block.get("content")
    written = "" if text is None else as_text(text)
    return written if kind == "text" else f"[{kind}]" if text is None else f"[{kind}]\n{written}"


def list_span_views(stored: object, writer: Writer) -> list[View]:
    """List the agent tree in order of opening: who worked for whom, what was decided, what it cost.

    Ids that are missing, repeated or point forward make roots, so that no stored tree can be a loop.
    """
    views: list[View] = []
    # Id -> (place of the span that its children hang below, its level).
    places: dict[object, tuple[int, int]] = {}
    for span in take_objects(stored)[:_MOST_SPANS]:
        view = _make_span_view(span, writer)
        own_id, parent_id = span.get("id"), span.get("parent_id")
        parent = places.get(parent_id) if isinstance(parent_id, int) else None
        place = (len(views), 0)
        if parent is not None:
            view["parent"] = parent[0]
            place = (len(views), parent[1] + 1) if parent[1] + 1 < MOST_LEVELS else parent
        if isinstance(own_id, int):
            places.setdefault(own_id, place)
        views.append(view)
    return views


def _make_span_view(span: Mapping[str, Any], writer: Writer) -> View:
    kind, decision = take_name(span.get("kind"), "unknown"), take_mapping(span.get("decision"))
    view: View = {"kind": kind}
    if span_name := take_name(span.get("name")):
        view["name"] = span_name
    if label := _label_decision(kind, decision):
        view["decision"] = dict(zip(("label", "tone"), label, strict=True))
    if decision and decision != {"finished": True}:
        view["detail"] = writer.store_text(decision)
    if calls := take_objects(span.get("calls")):
        keys = ("prompt", "completion", "uncounted")
        prompt, completion, uncounted = (
            int(sum(take_number(c.get(key)) or 0 for c in calls)) for key in keys
        )
        view |= {"calls": len(calls)} | ({} if uncounted else {"tokens": (prompt, completion)})
        ended = dict.fromkeys(take_name(call.get("ending"), "not recorded") for call in calls)
        view["ended"] = ", ".join(ended)
    if (duration := take_number(span.get("duration_s"))) is not None:
        view["duration_s"] = round(duration, 4)
    if attempt := take_number(span.get("attempt")):
        view["attempt"] = int(attempt)
    if messages := writer.arrange_messages(span.get("messages")):
        view["messages"] = messages
    return view


def _label_decision(kind: str, decision: Mapping[str, Any]) -> tuple[str, str] | None:
    """Put a decision, which may hold anything, in a word or two; None where nothing was decided.

    Returns:
        The words, and `bad` (something was stopped or failed), `good` (it was allowed) or `note` (neither).
    """
    if isinstance(decision.get("allow"), bool):
        return ("allowed", "good") if decision["allow"] else ("denied", "bad")
    if cut := take_number(decision.get("spans_cut")):
        return f"{cut:.0f} passage{'s' if cut > 1 else ''} cut", "bad"
    if kind == "sanitizer":
        return "nothing cut", "good"
    if failure := decision.get("failure"):
        return f"ended: {take_name(failure, 'failure')}", "bad"
    if kind == "tool" and decision.get("error"):
        return "tool error", "bad"
    if decision.get("finished") is False:
        return "not finished", "bad"
    if removed := take_number(decision.get("marks_removed")):
        return f"{removed:.0f} marks removed", "note"
    return None


def list_needles(injections: Iterable[str]) -> tuple[str, ...]:
    """List the texts to look for: each injection whole, then line by line, squeezed; the longest first.

    Lines too short to tell from benign text are left out: they are marked as part of the whole alone.
    """
    texts = [text for text in injections if text.strip()]
    forms = {form for line in find_payload_lines(texts) for form in line} | {squeeze(text) for text in texts}
    long_enough = (form for form in forms if len(form) >= _SHORTEST_NEEDLE)
    return tuple(sorted(long_enough, key=lambda form: (-len(form), form)))


def mark_injection(text: str, needles: Iterable[str]) -> Segments:
    """Cut a text into plain and marked pieces, through every folding that a formatter may have done."""
    squeezed = squeeze(text)
    marks = bytearray(len(squeezed))
    for needle in needles:
        start = squeezed.find(needle)
        while start >= 0:
            end = start + len(needle)
            marks[start:end] = b"x" * len(needle)
            start = squeezed.find(needle, end)
    if not any(marks):
        return (text,)
    positions = _list_positions(text)
    pieces: list[str] = []
    end = 0
    for run in re.finditer(b"x+", marks):
        first, after = positions[run.start()], positions[run.end() - 1] + 1
        pieces += [text[end:first], text[first:after]]
        end = after
    return (*pieces, text[end:])


def _list_positions(text: str) -> list[int]:
    """List, for every character of the squeezed text, where it stands in the text."""
    # A byte for each character: of those beyond ASCII only blanks are dropped.
    seen = (text if text.isascii() else _BLANK.sub(" ", text)).encode("ascii", "replace")
    positions = list(compress(range(len(text)), _ESCAPED_SPACE.sub(b"  ", seen).translate(_KEPT)))
    if text.isascii():
        return positions
    # What is invisible goes last, as it does in squeezing: a blank between two of them does not part them.
    for run in reversed([*INVISIBLE.finditer("".join(text[place] for place in positions))]):
        del positions[run.start() : run.end()]
    return positions
