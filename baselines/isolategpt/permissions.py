"""`PermissionDesk`: the prompts a user would see, answered by policy and kept with the case."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from agentsys.models.trace import span
from baselines.isolategpt.settings import Policy

SPAN = "isolategpt_permission"


class PromptKind(Enum):
    """What a user is asked about."""

    EXEC = "exec"
    """That an app is run."""
    COLLAB = "collab"
    """That an app's answer goes to the app that asked."""


@dataclass(frozen=True)
class PermissionPrompt:
    """One question to the user."""

    kind: PromptKind
    requester: str | None
    """Which spoke wants it; None: the hub itself, for the user."""
    app: str
    """Whose run, or whose answer."""
    expected: bool
    """Whether the plan accounts for it; a user is warned if not."""


@dataclass
class PermissionDesk:
    """Answers the prompts of one task. Nothing that was allowed outlives it."""

    policy: Policy
    asked: list[tuple[PermissionPrompt, bool]] = field(default_factory=list)
    """Every prompt with its answer, in order."""

    def allows(self, prompt: PermissionPrompt) -> bool:
        """The policy's answer, kept as a span."""
        answer = granted(self.policy, prompt)
        self.asked.append((prompt, answer))
        with span(SPAN, prompt.app) as opened:
            opened.decision = as_data(prompt, answer)
        return answer


def granted(policy: Policy, prompt: PermissionPrompt) -> bool:
    """What a user of this kind answers."""
    match policy:
        case "always_allow":
            return True
        case "deny_all":
            return False
        case "expected_only":
            return prompt.expected


def as_data(prompt: PermissionPrompt, answer: bool) -> dict[str, str | bool | None]:
    """A prompt and its answer, JSON-ready."""
    return {**vars(prompt), "kind": prompt.kind.value, "allow": answer}
