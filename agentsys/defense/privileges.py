"""Privileges (section 5.4): labels that say if a tool only reads (`query`) or has effects (`command`).

The model is asked once per toolset, from descriptions and usage signatures. The answer is kept in a file, so that
every case of a run, and every later run in the same folder, is judged by the same labels. Every case that uses
them has them in its record, with the cost of the one question.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml

from agentsys.base.atomic_file import make_folder, write_atomically
from agentsys.defense.prompts import PRIVILEGES, PRIVILEGES_SECTIONS, format_sections
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, ToolSpec, Usage, system, text_of, user
from agentsys.models.loose_json import find_json_values
from agentsys.models.reply_contract import ReplyContract
from agentsys.models.trace import ReplyFlaw, Tracer, get_current_tracer, use_tracer

PRIVILEGES_ROLE = "privileges"
_log = logging.getLogger(__name__)


class Privilege(Enum):
    """The effect that a call of a tool can have."""

    QUERY = "query"
    COMMAND = "command"


Labels = Mapping[str, Privilege]
"""Tool name -> privilege."""


def compute_toolset_hash(tools: Sequence[ToolSpec]) -> str:
    """Hash of a toolset: its tools' names, descriptions and parameters, in any order."""
    described = sorted(json.dumps([t.name, t.description, t.parameters], sort_keys=True) for t in tools)
    return hashlib.sha256("\n".join(described).encode()).hexdigest()


def read_labels(reply: str, tools: Sequence[ToolSpec]) -> dict[str, Privilege]:
    """Tool name -> label, for each tool that a reply labels clearly.

    A tool with two labels is a command. A reply that quotes a tool's description yields no label: the label might
    be the description's own words.
    """
    labels: dict[str, Privilege] = {}
    if _quotes_description(reply, tools):
        return labels
    names = {tool.name for tool in tools}
    for value in find_json_values(reply):
        for name, word in _iterate_pairs(value):
            label = _parse_label(word)
            if name in names and label is not None:
                labels[name] = label if labels.get(name, label) is label else Privilege.COMMAND
    for name, word in _WRITTEN_LABEL.findall(reply):  # JSON keeps the last of two equal keys.
        if name in labels and _parse_label(word) is Privilege.COMMAND:
            labels[name] = Privilege.COMMAND
    return labels


_WRITTEN_LABEL = re.compile(r'"([^"\s]{1,200})"\s{0,20}:\s{0,20}"(\w{1,20})"')


_QUOTED_CHARS = 40
"""Length of a common passage, without white space, that counts as a quotation of a description."""


def _quotes_description(reply: str, tools: Sequence[ToolSpec]) -> bool:
    """True if a reply holds a passage of a description, or a JSON value from one."""
    squeezed, values = "".join(reply.split()), list(find_json_values(reply))
    for tool in tools:
        for text in _list_descriptions(tool):
            words = "".join(text.split())
            pieces = (words[at : at + _QUOTED_CHARS] for at in range(0, len(words), _QUOTED_CHARS))
            if any(len(piece) == _QUOTED_CHARS and piece in squeezed for piece in pieces):
                return True
            if any(planted in values for planted in find_json_values(text) if planted):
                return True
    return False


def _list_descriptions(tool: ToolSpec) -> Iterator[str]:
    """Yield the descriptions of a tool and of its arguments, which its provider wrote."""
    described = _describe_tool(tool)
    yield str(described["description"])
    yield from described["arguments"].values()


def _iterate_pairs(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, label word) of an object, or of a list of objects such as {"name": ..., "label": ...}."""
    if isinstance(value, dict):
        for name, word in value.items():
            if isinstance(word, dict):
                yield from _iterate_pairs(word)
                word = next((w for w in word.values() if _parse_label(w) is not None), None)
            yield name, word
    elif isinstance(value, list):
        for item in value:
            words = list(item.values()) if isinstance(item, dict) else []
            if len(words) >= 2 and isinstance(words[0], str):
                yield words[0], words[1]


def _parse_label(word: object) -> Privilege | None:
    clear = word.strip().casefold() if isinstance(word, str) else ""
    return next((label for label in Privilege if label.value == clear), None)


@dataclass(frozen=True)
class SortedTools:
    """Labels of a toolset, and the cost of asking for them."""

    labels: Labels
    """The label of every tool; one that no reply labelled clearly is a command."""
    unclear: tuple[str, ...]
    """The tools that no reply labelled clearly. If there are any, the labels are not kept in a file."""
    question: Mapping[str, Any]
    """Usage, cost and model id, as JSON-ready data."""
    corrected: tuple[str, ...] = ()
    """The tools that the operator labelled."""

    def __add__(self, other: SortedTools) -> SortedTools:
        """Join the labels of two servers' tools."""
        return SortedTools(
            {**other.labels, **self.labels},
            self.unclear + other.unclear,
            _add_questions(self.question, other.question),
            self.corrected + other.corrected,
        )

    def tighten(self, other: SortedTools) -> SortedTools:
        """Return these labels, with every tool a command that `other` labels a command."""
        commands = {name: label for name, label in other.labels.items() if label is Privilege.COMMAND}
        return replace(self, labels={**self.labels, **commands}, question=(self + other).question)

    def as_decision(self) -> dict[str, Any]:
        """The labels as JSON-ready data for a case's record."""
        labels = {name: label.value for name, label in self.labels.items()}
        own = {"corrected": list(self.corrected)} if self.corrected else {}
        return {"labels": labels, "unclear": list(self.unclear), "asked_once": dict(self.question), **own}


@dataclass
class PrivilegeStore:
    """Labels of toolsets, each asked for once in all threads, and kept in a folder or in this process's memory."""

    folder: Path | None = None
    corrections: Labels = field(default_factory=dict)
    """An operator's own labels; they override a model's."""
    _sorted_toolsets: dict[tuple[str, str], SortedTools] = field(default_factory=dict)
    _locks: dict[tuple[str, str], threading.Lock] = field(default_factory=dict)
    _locks_guard: threading.Lock = field(default_factory=threading.Lock)

    def sort_tools(self, model: ChatModel, tools: Sequence[ToolSpec]) -> SortedTools:
        """Label these tools: from the corrections, from memory, from the folder, or by the model.

        Raises:
            ModelError: If the model had to be asked and gave no reply; then nothing is kept.
        """
        own = {tool.name: self.corrections[tool.name] for tool in tools if tool.name in self.corrections}
        if tools and len(own) == len(tools):
            return SortedTools(own, (), dict.fromkeys(_QUESTION_KEYS), tuple(own))
        from_model = self._sort_uncorrected(model, tools)
        unclear = tuple(name for name in from_model.unclear if name not in own)
        if not own:
            return from_model
        return SortedTools({**from_model.labels, **own}, unclear, from_model.question, tuple(own))

    def _sort_uncorrected(self, model: ChatModel, tools: Sequence[ToolSpec]) -> SortedTools:
        key = (model.name, compute_toolset_hash(tools))
        with self._locks_guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._sorted_toolsets:
                self._sorted_toolsets[key] = self._load_stored(key, tools) or self._ask_once(
                    key, model, tools
                )
            return self._sorted_toolsets[key]

    def _ask_once(self, key: tuple[str, str], model: ChatModel, tools: Sequence[ToolSpec]) -> SortedTools:
        try:
            if self.folder is not None:  # Fail before the model call is paid for.
                make_folder(self.folder)
            answer = ask_privileges(model, tools)
            if self.folder is not None and not answer.unclear:
                # Another process may have asked meanwhile; the first answer stored counts for all.
                known = self._load_stored(key, tools)
                if known is not None:
                    return known
                labels = {name: label.value for name, label in answer.labels.items()}
                data = {"model": key[0], "toolset": key[1], "tools": labels, **answer.question}
                path = self._make_store_path(self.folder, key)
                write_atomically(path, json.dumps(data, indent=2).encode())
                write_atomically(path.with_suffix(".yaml"), _format_labels(labels))
        except OSError as error:
            raise ConfigError(
                f"Cannot write tool labels to '{self.folder}' ({error.strerror});"
                " set defense.privileges_dir to a folder that can be written."
            ) from error
        if answer.unclear:
            _log.warning("Tools without a clear label count as commands: %s.", ", ".join(answer.unclear))
        return answer

    def _load_stored(self, key: tuple[str, str], tools: Sequence[ToolSpec]) -> SortedTools | None:
        if self.folder is None:
            return None
        try:
            stored = json.loads(self._make_store_path(self.folder, key).read_text(encoding="utf-8"))
            if (stored["model"], stored["toolset"]) != key:
                return None
            stored_labels = stored["tools"]
            labels = {tool.name: Privilege(stored_labels[tool.name]) for tool in tools}
            return SortedTools(labels, (), {name: stored.get(name) for name in _QUESTION_KEYS})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # Not there, or damaged: the model is asked and the file written anew.

    @staticmethod
    def _make_store_path(folder: Path, key: tuple[str, str]) -> Path:
        """Path of a model's labels; a digest keeps apart models whose names become the same file name."""
        model = re.sub(r"[^A-Za-z0-9._-]+", "_", key[0])
        path = folder / f"{model}-{key[1][:16]}.json"
        if model == key[0]:
            return path
        with suppress(OSError, ValueError, KeyError, TypeError):  # Labels of earlier versions have no digest.
            if json.loads(path.read_text(encoding="utf-8"))["model"] == key[0]:
                return path
        return path.with_stem(f"{path.stem}-{hashlib.sha256(key[0].encode()).hexdigest()[:8]}")


def _add_questions(question: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Add usage and cost of two questions to one model; the cost is None if it is unknown for either."""
    first, second = question["usage"], other["usage"]
    if first is None or second is None:  # The operator's labels needed no question.
        return dict(question if second is None else other)
    costs = question["cost_usd"], other["cost_usd"]
    cost = None if None in costs else sum(costs)
    usage = asdict(Usage(**first) + Usage(**second))
    return {"usage": usage, "cost_usd": cost, "model_id": question["model_id"]}


PRIVILEGES_CONTRACT = ReplyContract(
    PRIVILEGES_ROLE,
    PRIVILEGES,
    'Answer with one JSON object and nothing else, from each tool\'s name to "query" or "command".',
    (
        (
            'TOOLS:\n{"name": "list_loans", "description": "Lists the books a reader has.", "arguments": {"reader":'
            ' "Who"}}\n{"name": "renew_loan", "description": "Renews a loan.", "arguments": {"title": "Which"}}',
            '{"list_loans": "query", "renew_loan": "command"}',
        ),
    ),
    lambda reply: next(find_json_values(reply), None),
    {
        ReplyFlaw.UNREAD: (
            "Some tools have no clear label yet. Answer again with one JSON object from each tool's name to"
            ' "query" or "command", and nothing else.'
        )
    },
)
"""Form of the reply that sorts a toolset; `read_labels` reads the labels in it."""


MAX_PRIVILEGE_ASKS = 2
"""Number of times a model is asked in all; it is asked again if it left a tool without a clear label."""
_QUESTION_KEYS = ("usage", "cost_usd", "model_id")


def ask_privileges(model: ChatModel, tools: Sequence[ToolSpec]) -> SortedTools:
    """Ask a model to sort a toolset.

    The usage is in the labels' file and in every record, and counts in the run's ledger and budget under no case.
    """
    # Not booked to the case that needs it first: which case that is depends on threads, and records of the same
    # seed must not differ.
    lines = [json.dumps(_describe_tool(tool), ensure_ascii=False) for tool in tools]
    messages = [
        system(PRIVILEGES_CONTRACT.prompt),
        user(format_sections(PRIVILEGES_SECTIONS, ["\n".join(lines)])),
    ]
    fields = {tool.name: {"enum": [each.value for each in Privilege]} for tool in tools}
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    contract = replace(PRIVILEGES_CONTRACT, schema=schema)
    labels_read: dict[str, Privilege] = {}
    usage, costs, model_id = Usage(), [], ""
    for _ in range(MAX_PRIVILEGE_ASKS):
        with use_tracer(Tracer(usage_log=get_current_tracer().usage_log)):
            reply = model.complete(contract.request(messages))
        usage, model_id = usage + reply.usage, reply.model_id
        costs.append(reply.cost_usd)
        for name, label in read_labels(text_of(reply.message), tools).items():
            labels_read[name] = label if labels_read.get(name, label) is label else Privilege.COMMAND
        unclear = tuple(tool.name for tool in tools if tool.name not in labels_read)
        if not unclear:
            break
        messages += [reply.message, contract.repair(ReplyFlaw.UNREAD)]
    known = [cost for cost in costs if cost is not None]
    cost = sum(known) if len(known) == len(costs) else None
    labels = {tool.name: labels_read.get(tool.name, Privilege.COMMAND) for tool in tools}
    return SortedTools(
        labels, unclear, dict(zip(_QUESTION_KEYS, (asdict(usage), cost, model_id), strict=True))
    )


def _describe_tool(tool: ToolSpec) -> dict[str, Any]:
    """A tool's name, description and usage signature (section 5.4)."""
    arguments = {
        name if name in tool.required else f"{name}?": " ".join(str(schema.get("description", "")).split())
        for name, schema in tool.arguments.items()
    }
    return {"name": tool.name, "description": tool.description, "arguments": arguments}


def _format_labels(labels: Mapping[str, str]) -> bytes:
    """Format labels as a YAML that an operator may copy and correct (agentsys.defense.agentsys.read_corrections)."""
    head = "# What a model says of these tools. To correct it: copy this file, and name the copy in\n"
    head += "# defense.tool_labels. query: a tool that only reads; command: one that has effects.\n"
    return (head + yaml.safe_dump(dict(labels), sort_keys=True, allow_unicode=True)).encode()


@cache
def _make_cached_store(folder: Path | None, corrections: tuple[tuple[str, Privilege], ...]) -> PrivilegeStore:
    return PrivilegeStore(folder, dict(corrections))


def get_privilege_store(folder: Path | None, corrections: Labels | None = None) -> PrivilegeStore:
    """Return the store that all defenses share for this folder (None: this process's memory) and corrections."""
    return _make_cached_store(folder, tuple(sorted((corrections or {}).items(), key=itemgetter(0))))
