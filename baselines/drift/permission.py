"""Permissions of tools (Read, Write, Execute): asked of the model once per toolset and defense object."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from agentsys.models.chat import ChatModel, ChatRequest, ToolSpec, system, user
from agentsys.models.prompted_tools import wrap_in_tag
from agentsys.models.providers.wire_parts import visible_text
from agentsys.models.trace import Tracer, use_tracer
from baselines.drift.prompts import PERMISSION

PERMISSION_ROLE = "drift_permissions"
FUNCTION_TAG = "function"
"""Tag around the tool in the question."""


class ToolPermission(Enum):
    """The effect that a call of a tool can have. Write and Execute are treated alike."""

    READ = "Read"
    WRITE = "Write"
    EXECUTE = "Execute"


_LETTERS = {"A": ToolPermission.READ, "B": ToolPermission.WRITE, "C": ToolPermission.EXECUTE}


def read_permission_reply(reply: str, *, strictly: bool) -> ToolPermission:
    """The permission a reply names.

    Args:
        reply: The classifier's words; a letter, if it keeps to its instructions.
        strictly: Anything but one letter is Write. Otherwise a B anywhere is Write, then a C anywhere
            Execute, and all else Read, as in the reference implementation.
    """
    if strictly:
        letter = re.fullmatch(r"\W*([ABC])\W*", reply)
        return _LETTERS[letter[1]] if letter else ToolPermission.WRITE
    return next((_LETTERS[letter] for letter in "BC" if letter in reply), ToolPermission.READ)


ToolPermissions = Mapping[str, ToolPermission]


@dataclass
class PermissionCache:
    """Permissions of toolsets, each asked for once, by however many threads.

    In memory only: another run asks again, so give the permissions in the config where runs must not
    depend on it.
    """

    _known: dict[tuple[str, str, bool], ToolPermission] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def load_permissions(self, model: ChatModel, tools: Sequence[ToolSpec], *, strictly: bool) -> ToolPermissions:
        """Tool -> permission, from memory or from the model (one question per tool).

        Raises:
            ModelError: If the model had to be asked and gave no reply; what it answered before is kept.
        """
        with self._guard:
            return {tool.name: self._load_permission(model, tool, strictly) for tool in tools}

    def _load_permission(self, model: ChatModel, tool: ToolSpec, strictly: bool) -> ToolPermission:
        key = (model.name, write_tool_line(tool), strictly)
        if key not in self._known:
            self._known[key] = read_permission_reply(_ask_unbooked(model, tool), strictly=strictly)
        return self._known[key]


def write_tool_line(tool: ToolSpec) -> str:
    """A tool as one line of JSON."""
    return json.dumps({"name": tool.name, "description": tool.description, "parameters": tool.parameters})


def _ask_unbooked(model: ChatModel, tool: ToolSpec) -> str:
    """Ask the model without booking it to a case: which one comes first depends on threads."""
    question = [system(PERMISSION), user(wrap_in_tag(FUNCTION_TAG, write_tool_line(tool)))]
    with use_tracer(Tracer()):
        return visible_text(model.complete(ChatRequest(question, role=PERMISSION_ROLE)).message)
