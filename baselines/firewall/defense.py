"""`Firewall`: the plain agent between a tool-input and a tool-output firewall, and their simulation."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatAssistantMessage

from agentsys.base.option_checks import check_options
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, ChatRequest, assistant
from agentsys.simulated.script_grounding import leaf_forms, scalar_leaves
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole, remove_injected_passages
from baselines.defense_bases import RoleDefense
from baselines.firewall import firewalls
from baselines.firewall.firewalls import MINIMIZER_QUESTION, FirewallOptions, Minimizer, OutputFirewall
from baselines.tool_boundary.boundary_filter import BoundaryDefense, BoundaryFilter, CallHistory
from baselines.tool_boundary.guard_question import read_fenced_text, read_question
from baselines.tool_boundary.result_rewriter import EMPTIED, WITHHELD

_TASK, _TOOL, _PARAMETERS = "Task: ", "Tool: ", "Its parameters: "
assert all(f"\n{title}" in f"\n{MINIMIZER_QUESTION}" for title in (_TASK, _TOOL, _PARAMETERS))


def play_minimizer(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Pass on arguments whose values the task or its ground truth holds, and those the tool must have.

    The ground truth stands for the results that values were taken from, which a Minimizer does not see.
    """
    question = read_question(request)
    args = json.loads(read_fenced_text(question))
    task = question.partition(_TASK)[2].partition(f"\n\n{_TOOL}")[0]
    required = json.loads(question.partition(f"\n{_PARAMETERS}")[2].partition("\n")[0]).get("required", [])
    script = knowledge.find_task(task)
    leaves = [leaf for call in (script.calls if script else ()) for leaf in scalar_leaves(call.args)]
    known = {form for leaf in leaves for form in leaf_forms(leaf)}

    def is_known(value: Any) -> bool:
        # Of flags and nulls there are no forms: they tell nothing.
        leaves = [leaf_forms(leaf) for leaf in scalar_leaves(value)]
        return all(
            not forms or any(form in known or knowledge.is_grounded(form, task) for form in forms)
            for forms in leaves
        )

    needed = {name: value for name, value in args.items() if name in required or is_known(value)}
    return assistant(json.dumps({"reasoning": "What the task needs.", firewalls.ARGUMENTS_KEY: needed}))


def play_output_sanitizer(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Give the output without the goals that were found in it."""
    output = read_fenced_text(read_question(request), 1)
    clean = remove_injected_passages(output, firewalls.SANITIZER_ROLE, knowledge)
    verdict = {"reasoning": "I looked for instructions.", "was_safe": clean == output}
    return assistant(json.dumps({**verdict, "sanitized_output": clean}, ensure_ascii=False))


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

    roles: ClassVar[Mapping[str, SimulatedRole]] = {
        firewalls.MINIMIZER_ROLE: play_minimizer,
        firewalls.SANITIZER_ROLE: play_output_sanitizer,
    }

    def __init__(self, name: str = "firewall", *, seed: int | None = None, **options: Any) -> None:
        self.name = name
        self.options = check_options(FirewallOptions, name, options, seed=seed or 0)
        if not (self.options.minimizer or self.options.sanitizer):
            raise ConfigError(f"{name}: neither minimizer nor sanitizer is on; use defense=none.")
        if not self.options.sanitizer:
            self.read_tools = None  # type: ignore[assignment, method-assign]
        self.history: CallHistory = self.options.history
        self._warned = threading.Lock()
        """Taken for good by the first case that says something."""

    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> list[BoundaryFilter]:
        """The firewalls that are on."""
        filters: list[BoundaryFilter] = []
        if self.options.minimizer:
            filters.append(Minimizer(model, self.options))
            idle = not any(tool.parameters.model_fields for tool in suite.tools)  # as ASB's
            if idle and self._warned.acquire(blocking=False):  # cases start side by side
                words = "%s: no tool of suite '%s' takes an argument, so the Minimizer is never asked there."
                _LOG.warning(words, self.name, suite.name)
        if self.options.sanitizer:
            filters.append(OutputFirewall(model, self.options))
        return filters

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
            "minimizer": firewalls.MINIMIZER_CONTRACT.prompt,
            "minimizer_question": firewalls.MINIMIZER_QUESTION,
            "refused": firewalls.REFUSED,
            "refused_unchecked": firewalls.REFUSED_UNCHECKED,
        }
        incoming = {
            "sanitizer": firewalls.SANITIZER_CONTRACT.prompt,
            "sanitizer_question": firewalls.SANITIZER_QUESTION,
            "withheld": WITHHELD,
            "emptied": EMPTIED,
        }
        return (outgoing if self.options.minimizer else {}) | (incoming if self.options.sanitizer else {})
