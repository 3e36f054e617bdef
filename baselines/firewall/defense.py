"""`Firewall`: the plain agent with a Minimizer, a Sanitizer or both between it and its tools."""

from __future__ import annotations

import logging
import threading
from typing import Any

from agentdojo.task_suite.task_suite import TaskSuite

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel
from baselines.border.defense import BoundaryDefense
from baselines.border.elements import CallHistory
from baselines.border.filter import BoundaryFilter
from baselines.border.rewriter import EMPTIED, WITHHELD
from baselines.firewall import prompts
from baselines.firewall.minimizer import FirewallOptions, Minimizer
from baselines.firewall.sanitizer import OutputFirewall
from baselines.firewall.simulated import ROLES
from baselines.played import RoleDefense

_LOG = logging.getLogger(__name__)


class Firewall(BoundaryDefense, RoleDefense):
    """Tool-input and tool-output firewalls.

    Args:
        name: The defense's name in configs, records and tables.
        minimizer: Whether calls are minimized.
        sanitizer: Whether results are sanitized.
        retries: How often a model is asked again where its reply cannot be read.
        on_unreadable: What follows then: `stop` (the call is refused, the result withheld) or `keep`.
        on_safe: What the agent reads of a result that is called safe: the `original` or the `sanitized` text.
        allow_added_arguments: Whether the Minimizer may add arguments.
        history: Whether the conversation shows calls as `proposed` or as `executed`.
        seed: What the marks around untrusted text depend on; a run fills in its own.

    Raises:
        ConfigError: If an option has a value it cannot have.

    Source: Bhagwatkar et al., arXiv 2510.05244.
    """

    roles = ROLES

    def __init__(self, name: str = "firewall", *, seed: int | None = None, **options: Any) -> None:
        self.name = name
        self.options = check_options(FirewallOptions, name, options, seed=seed or 0)
        if not (self.options.minimizer or self.options.sanitizer):
            raise ConfigError(f"{name}: neither minimizer nor sanitizer is on; use defense=none.")
        self.history: CallHistory = self.options.history
        self._told = threading.Lock()
        """Taken for good by the first case that says something."""

    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> list[BoundaryFilter]:
        """The firewalls that are on."""
        if self.options.minimizer:
            self._log_idle(suite)
        outgoing = [Minimizer(model, self.options)] if self.options.minimizer else []
        incoming = [OutputFirewall(model, self.options)] if self.options.sanitizer else []
        return [*outgoing, *incoming]

    def _log_idle(self, suite: TaskSuite[Any]) -> None:
        """Say once, of a suite whose tools take no arguments (ASB's), that there is nothing to minimize."""
        idle = not any(tool.parameters.model_fields for tool in suite.tools)
        if idle and self._told.acquire(blocking=False):  # cases start side by side
            _LOG.warning(
                "%s: no tool of suite '%s' takes an argument, so the Minimizer is never asked there.",
                self.name,
                suite.name,
            )

    def description(self) -> str:
        """Which firewalls stand where, and what they know."""
        options = self.options
        unread = {"stop": "is stopped", "keep": "passes as it is"}[options.on_unreadable]
        safe = {"original": "as the tool returned it", "sanitized": "as the model wrote it again"}
        minimizer = (
            "Before a call with arguments runs, a model is shown the request, the tool and the arguments, and"
            " writes them again without what the request does not need. A call that loses an argument which"
            " the tool cannot do without is refused."
        )
        sanitizer = (
            "Before the agent reads a result, error texts included, a model is shown the request, the call"
            " and the result, and writes the result again without what tells the agent to do things. A"
            f" result that it calls safe reaches the agent {safe[options.on_safe]}."
        )
        parts = [
            "One agent reads the request and its tool results in one conversation.",
            *([minimizer] if options.minimizer else []),
            *([sanitizer] if options.sanitizer else []),
            "Each question is about one call and nothing is remembered between them.",
            f"Where a reply cannot be read twice, what it was about {unread}.",
            "The models asked read untrusted text raw, and no call is checked against what the user wants.",
        ]
        return " ".join(parts)

    def prompts(self) -> dict[str, str]:
        """Every text this defense says to a model, by name."""
        outgoing = {
            "minimizer": prompts.MINIMIZER,
            "minimizer_question": prompts.MINIMIZER_QUESTION,
            "refused": prompts.REFUSED,
            "refused_unchecked": prompts.REFUSED_UNCHECKED,
        }
        incoming = {
            "sanitizer": prompts.SANITIZER,
            "sanitizer_question": prompts.SANITIZER_QUESTION,
            "withheld": WITHHELD,
            "emptied": EMPTIED,
        }
        return (outgoing if self.options.minimizer else {}) | (incoming if self.options.sanitizer else {})
