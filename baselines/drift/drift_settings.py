"""`DriftSettings`: the options of a variant, the mended defects, and the permissions of tools.

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


class DriftFix(Enum):
    """A mended defect; what the reference does otherwise stands behind it, and in docs/baselines/drift.md."""

    SCAN_ALL_RESULTS = "scan_all_results"  # It looks through a turn's last result only.
    MASK_ERRORS = "mask_errors"  # A span that it cuts from an error is back in the next turn.
    SKIP_EMPTY_SPANS = "skip_empty_spans"  # Empty and non-text items put a space everywhere.
    READ_DETECTION_STRICTLY = "read_detection_strictly"  # A detection that is no list means clean.
    REQUIRE_A_MATCH = "require_a_match"  # A detection has worked if the length changed, by a strip too.
    PARSE_BEFORE_REPAIR = "parse_before_repair"  # Calls are always split at every comma.
    COUNT_FROM_BATCH = "count_from_batch"  # A batch is held against the entry of its last call.
    FORMAT_ONCE = "format_once"  # The checklist is rewritten each turn; plan and checklist drift apart.
    CHECK_EVERY_CALL = "check_every_call"  # Behind a call without required values the batch passes unseen.
    COMMIT_ACCEPTED = "commit_accepted"  # A refused batch counts as achieved.
    TELL_REPEATS = "tell_repeats"  # A repeated call ends the run without a word.
    REFUSE_UNKNOWN_TOOLS = "refuse_unknown_tools"  # A tool that does not exist is put into the plan.
    READ_VERDICTS_STRICTLY = "read_verdicts_strictly"  # A word or letter anywhere in a reply is a verdict.
    SHOW_FIRST_PLAN = "show_first_plan"  # The judge sees the plan only as extended since.
    SAY_WHAT_WAS_WRONG = (
        "say_what_was_wrong"  # An unreadable reply is taken as it is, or asked for in the same words.
    )
    FLAG_REFUSALS = "flag_refusals"  # The loop goes on after any message that holds the refusal's mark.


NO_FIXES: frozenset[DriftFix] = frozenset()
ALL_FIXES: frozenset[DriftFix] = frozenset(DriftFix)

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


def read_permission_reply(reply: str, *, strictly: bool) -> ToolPermission:
    """Read the permission that a reply names.

    Args:
        reply: The classifier's words; a letter, if it keeps to its instructions.
        strictly: What says nothing is Write. Otherwise a B anywhere is
            Write, then a C anywhere Execute, and all else Read, as in the reference implementation.
    """
    if strictly:
        return find_permission(reply) or ToolPermission.WRITE
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
        self, model: ChatModel, tools: Sequence[ToolSpec], *, strictly: bool, retries: int = 0
    ) -> Mapping[str, ToolPermission]:
        """Give each tool's permission, from memory or from the model (one question per tool)."""
        permissions = {}
        with self._guard:
            for tool in tools:
                line = write_tool_line(tool)
                key = (model.name, line, strictly)
                if key not in self._known:
                    with use_tracer(Tracer()):  # Booked to no case: which one comes first depends on threads.
                        asked = [system(PERMISSION_CONTRACT.prompt), user(wrap_in_tag(FUNCTION_TAG, line))]
                        reply = PERMISSION_CONTRACT.ask(model, asked, retries).words
                    self._known[key] = read_permission_reply(reply, strictly=strictly)
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
    fixes: frozenset[DriftFix] = ALL_FIXES
    """Which of the reference's defects are mended."""
    permissions: Mapping[str, ToolPermission] = field(default_factory=lambda: MappingProxyType({}))
    judge_arguments: bool = False
    unreadable_detection: UnreadableDetection = "withhold"
    message_cap: AtLeast1 = 20
    max_rounds: AtLeast1 = 15
    parse_attempts: AtLeast1 = 3
    format_attempts: AtLeast1 = 3
    detector_calls: AtLeast1 = 2
    """Most questions to the detector about one result."""

    @property
    def says_what_was_wrong(self) -> bool:
        """Whether an unreadable reply is asked for again, in words that say what was wrong with it."""
        return DriftFix.SAY_WHAT_WAS_WRONG in self.fixes
