"""`DriftSettings`: the options of a variant, and the permissions of tools.

`PermissionCache` asks a model once for each tool whether a call reads, writes or executes.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Literal

from agentsys.base.option_checks import AtLeast1
from agentsys.models.chat import ChatModel, ToolSpec, system, user
from agentsys.models.prompted_tools import wrap_in_tag
from agentsys.models.reply_contract import ReplyContract
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


_NAMED = re.compile(r"\W*(?:answer\W+)?(?:([ABC])\b\W*)?(read|write|execute)?\W*", re.IGNORECASE)
_LETTERS = {"A": ToolPermission.READ, "B": ToolPermission.WRITE, "C": ToolPermission.EXECUTE}


def find_permission(reply: str) -> ToolPermission | None:
    """The permission of which a reply is the letter, the word or both ("A. Read"); None: of none, or of two."""
    named = _NAMED.fullmatch(reply)
    by_letter, by_word = named.groups() if named else (None, None)
    read = {_LETTERS[by_letter.upper()]} if by_letter else set[ToolPermission]()
    read |= {ToolPermission(by_word.capitalize())} if by_word else set()
    return read.pop() if len(read) == 1 else None


def read_permission_reply(reply: str, *, compat: bool) -> ToolPermission:
    """Read the permission that a reply names; what says nothing is Write."""
    if not compat:
        return find_permission(reply) or ToolPermission.WRITE
    # Reference: a B anywhere is Write, then a C anywhere Execute, and all else Read.
    return next((_LETTERS[letter] for letter in "BC" if letter in reply), ToolPermission.READ)


PERMISSION_CONTRACT = ReplyContract(
    PERMISSION_ROLE, *PERMISSION, find_permission, schema={"enum": list(_LETTERS)}
)
"""What the classifier of tools answers."""


@dataclass
class PermissionCache:
    """Permissions of toolsets, each asked for once, by however many threads.

    In memory only: another run asks again, so give the permissions in the config where runs must not
    depend on it.
    """

    _known: dict[tuple[str, str, bool], ToolPermission] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def load_permissions(
        self, model: ChatModel, tools: Sequence[ToolSpec], *, compat: bool
    ) -> Mapping[str, ToolPermission]:
        """Give each tool's permission, from memory or from the model (one question per tool)."""
        permissions = {}
        with self._guard:
            for tool in tools:
                line = write_tool_line(tool)
                key = (model.name, line, compat)
                if key not in self._known:
                    with use_tracer(Tracer()):  # Booked to no case: which one comes first depends on threads.
                        asked = [system(PERMISSION_CONTRACT.prompt), user(wrap_in_tag(FUNCTION_TAG, line))]
                        reply = PERMISSION_CONTRACT.ask(model, asked, 0 if compat else 1).words
                    self._known[key] = read_permission_reply(reply, compat=compat)
                permissions[tool.name] = self._known[key]
        return permissions


def write_tool_line(tool: ToolSpec) -> str:
    """Write a tool as one line of JSON."""
    return json.dumps({"name": tool.name, "description": tool.description, "parameters": tool.parameters})


UnreadableDetection = Literal["withhold", "keep"]


@dataclass(frozen=True)
class DriftSettings:
    """The options of one variant of DRIFT, which `Drift` explains."""

    build_constraints: bool = True
    dynamic_validation: bool = True
    injection_isolation: bool = True
    compat: bool = False
    """Whether the reference's defects are kept; each is told behind `# Reference:` where it would be."""
    permissions: Mapping[str, ToolPermission] = field(default_factory=lambda: MappingProxyType({}))
    judge_arguments: bool = False
    unreadable_detection: UnreadableDetection = "withhold"
    message_cap: AtLeast1 = 20
    max_rounds: AtLeast1 = 15
    parse_attempts: AtLeast1 = 3
    format_attempts: AtLeast1 = 3
    detector_calls: AtLeast1 = 2
    """Most questions to the detector about one result."""
