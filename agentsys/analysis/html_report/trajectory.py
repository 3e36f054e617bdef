"""`Trajectory`: everything the page can show of one stored case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NotRequired, TypedDict

from agentsys.analysis.html_report.agent_tree import SpanView, span_views
from agentsys.analysis.html_report.conversation import MessageView, Writer
from agentsys.analysis.html_report.highlight import needles
from agentsys.analysis.html_report.loose import mapping, name, number
from agentsys.analysis.html_report.text_store import TextStore
from agentsys.records.agentsys_format import parse_stored_block
from agentsys.records.case import UnreadableRecord
from agentsys.records.case_row import CaseRow
from agentsys.records.schema import RoleUsage, StoredBlock
from agentsys.records.stored_file import load_stored_json

_NOT_A_DEFENSES_WORK = frozenset({"run", "main", "tool"})
"""Kinds of span that every run has: a tree of these alone tells no more than the conversation."""


class RoleView(TypedDict):
    """Cost of one role."""

    role: str
    calls: int
    prompt: int | None
    """None: a reply came without a count."""
    completion: int | None
    cached: int | None
    cost_usd: float | None


class InjectionView(TypedDict):
    """One injection as the attack wrote it."""

    vector: str
    text: int


class TrajectoryView(TypedDict):
    """One case. Every text is a number of the text store."""

    messages: list[MessageView]
    injections: list[InjectionView]
    spans: NotRequired[list[SpanView]]
    roles: NotRequired[list[RoleView]]
    error: NotRequired[int]
    notes: NotRequired[list[int]]
    characters_cut: NotRequired[int]
    """Characters of texts that were too long to be shown whole."""


class StoredFacts(NamedTuple):
    """Facts that the file holds beside the case itself."""

    error: str | None
    versions: dict[str, str]


def stored_json(path: str) -> Mapping[str, Any]:
    """The file's JSON object; empty if it is gone or has become something else since it was read."""
    try:
        return mapping(load_stored_json(path))
    except UnreadableRecord:
        return {}


def stored_facts(stored: Mapping[str, Any]) -> StoredFacts:
    """Error message and package versions of a stored case."""
    error, block = stored.get("error"), own_block(stored)
    versions = {} if block is None else {name(key): name(value) for key, value in block.versions.items()}
    if not versions and (agentdojo := name(stored.get("agentdojo_package_version"))):
        versions = {"agentdojo": agentdojo}
    return StoredFacts(error if isinstance(error, str) else None, versions)


def trajectory_view(case: CaseRow, stored: Mapping[str, Any], store: TextStore) -> TrajectoryView:
    """Arrange one case for the page; nothing in its file, ours, AgentDojo's or DRIFT's, is trusted."""
    block = own_block(stored)
    injections = _injections(stored, block)
    writer = Writer(store, needles(injections.values()))
    view: TrajectoryView = {
        # DRIFT keeps its messages under another key.
        "messages": writer.messages(stored.get("messages") or stored.get("conversations")),
        "injections": [{"vector": vector, "text": writer.text(text)} for vector, text in injections.items()],
    }
    if block is not None and _tells_more(block.spans):
        view["spans"] = span_views(block.spans, writer)
    if block is not None and (roles := _roles(block.usage)):
        view["roles"] = roles
    if stored.get("error") is not None:
        view["error"] = writer.text(stored["error"])
    if case.notes:
        view["notes"] = [writer.text(note) for note in case.notes]
    if writer.characters_cut:
        view["characters_cut"] = writer.characters_cut
    return view


def own_block(stored: Mapping[str, Any]) -> StoredBlock | None:
    """Our own block; None where another tool wrote the file, or it was changed since its row was read."""
    try:
        return parse_stored_block(stored)
    except UnreadableRecord:
        return None


def _injections(stored: Mapping[str, Any], block: StoredBlock | None) -> dict[str, str]:
    written = (block.written if block else None) or mapping(stored.get("injections"))
    return {name(vector): text for vector, text in written.items() if isinstance(text, str)}


def _tells_more(spans: Sequence[Mapping[str, Any]]) -> bool:
    return any(name(span.get("kind")) not in _NOT_A_DEFENSES_WORK for span in spans)


def _roles(usage: Mapping[str, RoleUsage]) -> list[RoleView]:
    return [
        {
            "role": name(role),
            "calls": _count(used.calls),
            "prompt": None if used.uncounted else _count(used.prompt),
            "completion": None if used.uncounted else _count(used.completion),
            "cached": None if used.uncounted else _count(used.cached),
            "cost_usd": number(used.cost_usd),
        }
        for role, used in usage.items()
    ]


def _count(value: int) -> int:
    return int(number(value) or 0)
