"""`Minimizer`, the tool-input firewall: a call goes out with no more than the task needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from agentdojo.functions_runtime import FunctionCall

from agentsys.base.option_checks import AtLeast0
from agentsys.models.chat import ChatModel, ChatRequest, system, user
from agentsys.models.loose_json import find_object_with
from agentsys.models.pipeline_elements import describe_tool
from agentsys.models.trace import span
from baselines.border.asking import ask_guard
from baselines.border.elements import CallHistory
from baselines.border.filter import BoundaryFilter, CallRuling, FilterTurn
from baselines.firewall.prompts import MINIMIZER, REFUSED, REFUSED_UNCHECKED, minimizer_question

MINIMIZER_ROLE = "firewall_minimizer"
ARGUMENTS_KEY = "minimized_args"


@dataclass(frozen=True)
class FirewallOptions:
    """What the two firewalls do; see `Firewall`."""

    minimizer: bool = True
    sanitizer: bool = True
    retries: AtLeast0 = 1
    on_unreadable: Literal["stop", "keep"] = "stop"
    on_safe: Literal["original", "sanitized"] = "original"
    allow_added_arguments: bool = False
    history: CallHistory = "proposed"
    seed: int = 0


def read_minimized_arguments(reply: str) -> dict[str, Any] | None:
    """The arguments that a reply passes on; None if it does not say."""
    found = find_object_with(reply, {ARGUMENTS_KEY})
    value = found[ARGUMENTS_KEY] if found is not None else None
    if isinstance(value, str):  # an object written as a text
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


class Minimizer(BoundaryFilter):
    """Asks of each call with arguments which of them may go out. Knows the task and the one call, no more."""

    def __init__(self, model: ChatModel, options: FirewallOptions) -> None:
        self.model, self.options = model, options

    def rule_on_calls(self, turn: FilterTurn, calls: Sequence[FunctionCall]) -> list[CallRuling]:
        """Minimize each call in order."""
        return [self._minimize_call(turn, call) if call.args else CallRuling(call) for call in calls]

    def _minimize_call(self, turn: FilterTurn, call: FunctionCall) -> CallRuling:
        tool = turn.runtime.functions[call.function]
        question = minimizer_question(self.options.seed, turn.query, describe_tool(tool), call.args)
        request = ChatRequest([system(MINIMIZER), user(question)], role=MINIMIZER_ROLE)
        with span("gate", call.function) as node:
            node.decision = {"filter": MINIMIZER_ROLE}
            answer = ask_guard(self.model, request, read_minimized_arguments, self.options.retries)
            node.decision |= {"asked": answer.asked, "unreadable": answer.unreadable}
            if answer.value is None:
                kept = self.options.on_unreadable == "keep"
                node.decision |= {"outcome": "allowed" if kept else "denied", "reason": "unreadable"}
                return CallRuling(call, None if kept else REFUSED_UNCHECKED)
            args, facts = self._apply_reply(call.args, answer.value)
            required = [name for name, field in tool.parameters.model_fields.items() if field.is_required()]
            missing = [name for name in required if name in call.args and name not in args]
            node.decision |= facts
            if missing:
                node.decision |= {"outcome": "denied", "reason": "required argument removed"}
                return CallRuling(call, REFUSED.format(names=", ".join(missing)))
            same = facts["changed"] == facts["dropped"] == [] and args == call.args
            node.decision["outcome"] = "allowed" if same else "rewritten"
            return CallRuling(call if same else call.model_copy(update={"args": args}))

    def _apply_reply(
        self, proposed: Mapping[str, Any], said: Mapping[str, Any]
    ) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """The arguments to run with, and what became of each."""
        args = {
            name: value if _is_same_value(value, said[name]) else said[name]
            for name, value in proposed.items()
            if name in said
        }
        added = [name for name in said if name not in proposed]
        if self.options.allow_added_arguments:
            args |= {name: said[name] for name in added}
        kept = [name for name in proposed if name in said and _is_same_value(proposed[name], said[name])]
        facts = {
            "kept": kept,
            "changed": [name for name in proposed if name in said and name not in kept],
            "dropped": [name for name in proposed if name not in said],
            "added": added,
        }
        return args, facts


def _is_same_value(proposed: Any, said: Any) -> bool:
    """Whether two values are the same; a number may have become a text on the way through a model."""
    return bool(proposed == said) or str(proposed) == str(said)
