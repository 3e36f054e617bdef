"""Privileges (section 5.4): whether a tool only reads (`query`) or has effects (`command`).

Asked of the model once per toolset and kept in a file, so that every case of a run, and every later
run in the same folder, is judged by the same labels.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

from agentsys.atomic_file import write_atomically
from agentsys.defense.gate import first_object
from agentsys.defense.prompts import PRIVILEGES, PRIVILEGES_SECTIONS
from agentsys.defense.sections import write_sections
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, ChatReply, ChatRequest, ToolSpec, system, text_of, user
from agentsys.models.trace import Tracer, tracing

ROLE = "privileges"


class Privilege(Enum):
    """What a call of a tool can do."""

    QUERY = "query"
    COMMAND = "command"


Labels = Mapping[str, Privilege]
"""Tool name -> privilege."""


def toolset_hash(tools: Sequence[ToolSpec]) -> str:
    """What identifies a toolset: its tools' names, descriptions and parameters, whatever their order."""
    described = sorted(json.dumps([t.name, t.description, t.parameters], sort_keys=True) for t in tools)
    return hashlib.sha256("\n".join(described).encode()).hexdigest()


def read_labels(reply: str, tools: Sequence[ToolSpec]) -> dict[str, Privilege]:
    """The label of each tool according to a reply; whatever is missing or unclear is a command."""
    said = first_object(reply) or {}
    return {tool.name: _label(said.get(tool.name)) for tool in tools}


def _label(word: object) -> Privilege:
    clear = isinstance(word, str) and word.strip().casefold() == Privilege.QUERY.value
    return Privilege.QUERY if clear else Privilege.COMMAND


@dataclass
class PrivilegeBook:
    """Labels of toolsets, each asked for once, by however many threads.

    Args:
        folder: Where the answers are kept; None keeps them in memory, for this process.
    """

    folder: Path | None = None
    _labels: dict[tuple[str, str], Labels] = field(default_factory=dict)
    _locks: dict[tuple[str, str], threading.Lock] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def labels(self, model: ChatModel, tools: Sequence[ToolSpec]) -> Labels:
        """The labels of these tools, from memory, from the folder, or from the model.

        Raises:
            ModelError: If the model had to be asked and gave no reply; nothing is kept then.
        """
        key = (model.name, toolset_hash(tools))
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._labels:
                self._labels[key] = self._stored(key, tools) or self._asked(key, model, tools)
            return self._labels[key]

    def _asked(self, key: tuple[str, str], model: ChatModel, tools: Sequence[ToolSpec]) -> Labels:
        try:
            if self.folder is not None:  # Before anything is paid for.
                self.folder.mkdir(parents=True, exist_ok=True)
            reply = ask_privileges(model, tools)
            labels = read_labels(text_of(reply.message), tools)
            if self.folder is not None:
                # Another process may have asked meanwhile: one answer holds for all.
                known = self._stored(key, tools)
                if known is not None:
                    return known
                data = json.dumps(_as_data(key, labels, reply), indent=2).encode()
                write_atomically(self._file(self.folder, key), data)
        except OSError as error:
            raise ConfigError(
                f"Cannot write tool labels to '{self.folder}' ({error.strerror});"
                " set defense.privileges_dir to a folder that can be written."
            ) from error
        return labels

    def _stored(self, key: tuple[str, str], tools: Sequence[ToolSpec]) -> Labels | None:
        if self.folder is None:
            return None
        try:
            stored = json.loads(self._file(self.folder, key).read_text(encoding="utf-8"))
            said = stored["tools"]
            return {tool.name: Privilege(said[tool.name]) for tool in tools}
        except (OSError, ValueError, KeyError, TypeError):
            return None  # Not there, or damaged: the model is asked and the file written anew.

    @staticmethod
    def _file(folder: Path, key: tuple[str, str]) -> Path:
        model = re.sub(r"[^A-Za-z0-9._-]+", "_", key[0])
        return folder / f"{model}-{key[1][:16]}.json"


def ask_privileges(model: ChatModel, tools: Sequence[ToolSpec]) -> ChatReply:
    """Ask a model to sort a toolset.

    The call is not booked to the case that happens to need it first: which one that is depends on threads,
    and records of the same seed must not differ. Its usage stands in the labels' file.
    """
    lines = [json.dumps({"name": t.name, "description": t.description}, ensure_ascii=False) for t in tools]
    question = write_sections(PRIVILEGES_SECTIONS, ["\n".join(lines)])
    with tracing(Tracer()):
        return model.complete(ChatRequest([system(PRIVILEGES), user(question)], role=ROLE))


def _as_data(key: tuple[str, str], labels: Labels, reply: ChatReply) -> dict[str, Any]:
    return {
        "model": key[0],
        "toolset": key[1],
        "tools": {name: label.value for name, label in labels.items()},
        "usage": asdict(reply.usage),
        "cost_usd": reply.cost_usd,
        "model_id": reply.model_id,
    }


@cache
def book_at(folder: Path | None) -> PrivilegeBook:
    """The one book of this folder (or of this process's memory), shared by all its defenses."""
    return PrivilegeBook(folder)
