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

ROLE = "drift_permissions"
TOOL = "function"
"""Tag around the tool in the question."""


class Permission(Enum):
    """The effect that a call of a tool can have. Write and Execute are treated alike."""

    READ = "Read"
    WRITE = "Write"
    EXECUTE = "Execute"


_LETTERS = {"A": Permission.READ, "B": Permission.WRITE, "C": Permission.EXECUTE}


def read_permission(reply: str, *, strictly: bool) -> Permission:
    """The permission a reply names.

    Args:
        reply: The classifier's words; a letter, if it keeps to its instructions.
        strictly: Anything but one letter is Write. Otherwise a B anywhere is Write, then a C anywhere
            Execute, and all else Read, as in the reference implementation.
    """
    if strictly:
        letter = re.fullmatch(r"\W*([ABC])\W*", reply)
        return _LETTERS[letter[1]] if letter else Permission.WRITE
    return next((_LETTERS[letter] for letter in "BC" if letter in reply), Permission.READ)


Permissions = Mapping[str, Permission]


@dataclass
class PermissionBook:
    """Permissions of toolsets, each asked for once, by however many threads.

    In memory only: another run asks again, so give the permissions in the config where runs must not
    depend on it.
    """

    _known: dict[tuple[str, str, bool], Permission] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def permissions(self, model: ChatModel, tools: Sequence[ToolSpec], *, strictly: bool) -> Permissions:
        """Tool -> permission, from memory or from the model (one question per tool).

        Raises:
            ModelError: If the model had to be asked and gave no reply; what it answered before is kept.
        """
        with self._guard:
            return {tool.name: self._permission(model, tool, strictly) for tool in tools}

    def _permission(self, model: ChatModel, tool: ToolSpec, strictly: bool) -> Permission:
        key = (model.name, described(tool), strictly)
        if key not in self._known:
            self._known[key] = read_permission(_ask(model, tool), strictly=strictly)
        return self._known[key]


def described(tool: ToolSpec) -> str:
    """A tool as one line of JSON."""
    return json.dumps({"name": tool.name, "description": tool.description, "parameters": tool.parameters})


def _ask(model: ChatModel, tool: ToolSpec) -> str:
    """Ask the model without booking it to a case: which one comes first depends on threads."""
    question = [system(PERMISSION), user(wrap_in_tag(TOOL, described(tool)))]
    with use_tracer(Tracer()):
        return visible_text(model.complete(ChatRequest(question, role=ROLE)).message)
