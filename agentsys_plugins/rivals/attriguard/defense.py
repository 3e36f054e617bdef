"""`AttriGuard`: the plain agent, whose calls are attributed to the task or to others, and its simulation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatAssistantMessage

from agentsys.base.option_checks import check_options
from agentsys.models.chat import ChatModel, ChatRequest, assistant
from agentsys.simulated.scripted_agent import play_plain_agent
from agentsys.simulated.simulated_role import SimulatedKnowledge, SimulatedRole, remove_injected_passages
from agentsys_plugins.rivals.attriguard.attribution_audit import (
    ATTENUATOR,
    ATTENUATOR_CONTRACTS,
    JUDGE_CONTRACT,
    JUDGE_ROLE,
    LEVELS,
    REFUSAL,
    SHADOW,
    AttributionAudit,
    AuditOptions,
)
from baselines.defense_bases import RoleDefense
from baselines.tool_boundary.boundary_filter import BoundaryDefense, BoundaryFilter
from baselines.tool_boundary.result_rewriter import WITHHELD, read_fenced_text, read_question


def play_shadow(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Answer as the simulated agent does: under its role, so that every random draw is the same."""
    return play_plain_agent(replace(request, role="agent"), knowledge)


def play_attenuator(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Return the text without the goals found in it."""
    text = read_fenced_text(read_question(request))
    return assistant(remove_injected_passages(text, ATTENUATOR, knowledge).strip() or "Nothing is reported.")


def play_attribution_judge(request: ChatRequest, knowledge: SimulatedKnowledge) -> ChatAssistantMessage:
    """Answer true for a call of the user task's ground truth."""
    lines = read_question(request)
    task = knowledge.find_task(lines.partition("\n\nProposed call: ")[0])
    call = json.loads(lines.partition("\n\nProposed call: ")[2].partition("\n")[0])

    def as_text(value: Any) -> str:
        return json.dumps(value, sort_keys=True, default=str).casefold()

    scripts = [script for script in (task.calls if task else ()) if script.function == call["tool"]]
    right = any(
        all(as_text(call["args"].get(name)) == as_text(value) for name, value in script.args.items())
        for script in scripts
    )
    return assistant(json.dumps({"legitimate": right, "reason": "I compared it with the task."}))


class AttriGuard(BoundaryDefense, RoleDefense):
    """Causal attribution of tool calls by a shadow run on weakened tool results.

    Args:
        level: How much results are weakened: 1 (risky syntax), 2 (orders become reports, too) or 3 (and
            conditions go).
        survival: Calls that survive besides the same: `strict` none; `fuzzy` those of the same tool that the
            judge calls legitimate; `hyper_fuzzy` those of any tool.
        external_tools: Tools whose results are weakened: all `unless_own`, or a `fixed` list.
        audit_after_empty: Whether a step is audited that follows one whose results were all empty.
        attenuate_errors: Whether error texts count as results.
        on_unreadable: A judge's reply that cannot be read: `block`, or `as_published`.
        audit: Which calls are audited: `all`, or `writes` alone.
        attenuation_temperature: Of the model that weakens; null: the model's own.
        judge: What is read of the judge: its `json`, or `logprobs` (is "true" as likely as "false"?).
        duplicates: Same calls of one batch: `separate` verdicts and results, or `merged`.
        retries: How often a model is asked again where its reply cannot be read.
        seed: What the marks around untrusted text depend on; a run fills in its own.

    Source: arXiv 2603.10749; artifact 10.5281/zenodo.20308739.
    """

    roles: ClassVar[Mapping[str, SimulatedRole]] = {
        SHADOW: play_shadow,
        ATTENUATOR: play_attenuator,
        JUDGE_ROLE: play_attribution_judge,
    }

    reads_tools = None

    def __init__(self, name: str = "attriguard", *, seed: int | None = None, **options: Any) -> None:
        self.name = name
        self.options = check_options(AuditOptions, name, options, seed=seed or 0)

    @property
    def needs_conversation(self) -> bool:
        """True: the shadow run repeats it."""
        return True

    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> list[BoundaryFilter]:
        """Build the audit between the agent and its tools."""
        return [AttributionAudit(model, self.options)]

    def description(self) -> str:
        """Describe how calls are attributed, and how those not caused by the task are handled."""
        options = self.options
        weak = {
            1: "risky syntax turned into prose",
            2: "risky syntax turned into prose and orders into reports",
            3: "risky syntax turned into prose, conditions taken out and orders turned into reports",
        }[options.level]
        survives = {
            "strict": "no other call survives",
            "fuzzy": "of other calls those of a tool that it proposes survive if a judge, who sees no result,"
            " calls them legitimate",
            "hyper_fuzzy": "of other calls those survive that a judge, who sees no result, calls legitimate",
        }[options.survival]
        which = {"all": "each call", "writes": "each call that does more than read"}[options.audit]
        return (
            "One agent reads the request and every tool result raw, in one conversation. Once a tool has"
            f" returned what somebody else may have written, {which} is audited before it runs. The agent is"
            " asked again in a shadow of the conversation in which a model has rewritten those results, with"
            f" {weak}; nothing that the shadow proposes is run. A call that the shadow proposes too, with the"
            f" same arguments, survives; {survives}. A call that does not survive is refused, and the agent"
            " is told the request again. The final answer is not audited."
        )

    def prompts(self) -> dict[str, str]:
        """Every text this defense says to a model, by name."""
        steps = {step: ATTENUATOR_CONTRACTS[step].prompt for step in LEVELS[self.options.level]}
        judge = {} if self.options.survival == "strict" else {"judge": JUDGE_CONTRACT.prompt}
        return {**steps, **judge, "refusal": REFUSAL, "withheld": WITHHELD}
