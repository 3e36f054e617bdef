"""`PermissionDesk`: the prompts a user would see, answered by policy and kept with the case."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from agentsys.models.trace import span
from baselines.isolategpt.settings import PermissionPolicy

PERMISSION_SPAN = "isolategpt_permission"


class PermissionKind(Enum):
    """What a user is asked about."""

    EXEC = "exec"
    """That an app is run."""
    COLLAB = "collab"
    """That an app's answer goes to the app that asked."""


@dataclass(frozen=True)
class PermissionPrompt:
    """One question to the user."""

    kind: PermissionKind
    requester: str | None
    """Which spoke wants it; None: the hub itself, for the user."""
    app: str
    """Whose run, or whose answer."""
    expected: bool
    """Whether the plan accounts for it; a user is warned if not."""


@dataclass
class PermissionPrompter:
    """Answers the prompts of one task. Nothing that was allowed outlives it."""

    policy: PermissionPolicy
    asked: list[tuple[PermissionPrompt, bool]] = field(default_factory=list)
    """Every prompt with its answer, in order."""

    def is_allowed(self, prompt: PermissionPrompt) -> bool:
        """The policy's answer, kept as a span."""
        answer = answer_permission(self.policy, prompt)
        self.asked.append((prompt, answer))
        with span(PERMISSION_SPAN, prompt.app) as opened:
            opened.decision = permission_as_data(prompt, answer)
        return answer


def answer_permission(policy: PermissionPolicy, prompt: PermissionPrompt) -> bool:
    """What a user of this kind answers."""
    match policy:
        case "always_allow":
            return True
        case "deny_all":
            return False
        case "expected_only":
            return prompt.expected


def permission_as_data(prompt: PermissionPrompt, answer: bool) -> dict[str, str | bool | None]:
    """A prompt and its answer, JSON-ready."""
    return {**vars(prompt), "kind": prompt.kind.value, "allow": answer}
