"""`GuardDefense`: somebody else's guard, at work between an agent and its tools, from its YAML alone."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from agentdojo.functions_runtime import FunctionCall
from agentdojo.task_suite.task_suite import TaskSuite
from agentdojo.types import ChatToolResultMessage

from agentsys.errors import Unavailable
from agentsys.guards.guard_process import GuardProcess, GuardVerdict, NoVerdict, check_confinement
from agentsys.guards.guard_spec import guard_python, hash_guard, read_guard_spec
from agentsys.models.chat import ChatModel
from agentsys.models.providers.wire_parts import result_text
from agentsys.models.trace import span
from baselines.detectors.defense import ABORTED, NOTICE
from baselines.tool_boundary.boundary_filter import (
    BoundaryDefense,
    BoundaryFilter,
    CallRuling,
    EndCase,
    FilterTurn,
)
from baselines.tool_boundary.result_rewriter import ResultRewriter, RewrittenResult, read_leaves

REFUSED = "The call was refused by a security policy."


class GuardDefense(BoundaryDefense):
    """A guard's YAML as a defense; options are those of `agentsys.guards.guard_spec.GuardSpec`.

    Raises:
        ConfigError: If an option has a value it cannot have.
    """

    def __init__(self, **options: Any) -> None:
        self.spec = read_guard_spec(str(options.get("package") or options.get("kind") or "?"), options)
        self.name = str(self.spec.package or self.spec.kind).partition("==")[0]
        self._lock = threading.Lock()
        self._process: GuardProcess | None = None

    @staticmethod
    def contents(config: Mapping[str, Any]) -> Mapping[str, str]:
        """What a verdict depends on besides the YAML: the hash of all installed files."""
        options = {key: value for key, value in config.items() if key != "_target_"}
        spec = read_guard_spec(str(config.get("package")), options)
        with suppress(Unavailable):  # `ready` says so before the first case
            return {"guard": hash_guard(spec)}
        return {"guard": "not installed"}

    @property
    def needs_conversation(self) -> bool:
        """Whether it ends a case."""
        return self.spec.on_flag == "abort"

    @property
    def process(self) -> GuardProcess:
        """The process that all cases of a run share."""
        with self._lock:
            if self._process is None:
                self._process = GuardProcess(self.spec)
            return self._process

    def ready(self) -> None:
        """Look whether it is installed, and can be kept from the network.

        Raises:
            Unavailable: If not.
        """
        guard_python(self.spec)
        check_confinement(self.spec)

    def boundary_filters(self, model: ChatModel, suite: TaskSuite[Any]) -> Sequence[BoundaryFilter]:
        """The guard between the tools and the agent; a gate's session lasts as long as the case."""
        if self.spec.kind == "call":
            return [GateCalls(GuardProcess(self.spec))]
        return [GuardResults(self.process)]

    def description(self) -> str:
        """Say what is asked of whom, and what follows."""
        spec = self.spec
        who = spec.package or spec.url or " ".join(spec.command)
        asked = (
            "Each call is shown to it before it runs, and each result afterwards; a call that it flags gets an"
            " error in place of a result"
            if spec.kind == "call"
            else f"It reads each {'string of a tool result' if spec.unit == 'field' else 'tool result'}"
            f" before the agent does; what it flags is {_THEN[spec.on_flag]}"
        )
        return (
            f"One agent reads the request and the tool results in one conversation. A guard that others wrote"
            f" ({'our own rules' if who == 'here' else who}) stands between it and its tools, in a process of its"
            f" own. {asked}. Where it gives no verdict, {_FAILS[spec.on_error]}. The guard knows neither the"
            " model nor how the case is scored."
        )

    def prompts(self) -> dict[str, str]:
        """Every text this defense shows to a model, by name."""
        return {"refused": REFUSED} if self.spec.kind == "call" else {"notice": NOTICE, "aborted": ABORTED}


_THEN = {
    "withhold": "replaced by a fixed notice",
    "clean": "replaced by the text that it gives as cleaned",
    "abort": "the end of the case",
}
_FAILS = {
    "error": "the case is errored and counts neither way",
    "fail_open": "everything passes",
    "fail_closed": "nothing passes",
}


class GuardResults(ResultRewriter):
    """Has a guard read results."""

    name: ClassVar[str] = "guard"

    def __init__(self, process: GuardProcess) -> None:
        self.process, self.spec = process, process.spec

    def rewrite_result(self, turn: FilterTurn, result: ChatToolResultMessage, text: str) -> RewrittenResult:
        """Ask about a result, or about each string in it.

        Raises:
            NoVerdict: If it gave no verdict and the case is to be errored then.
        """
        tool, verdicts = result["tool_call"].function, []

        def judge(piece: str) -> str:
            verdicts.append(ask_guard(self.process, lambda: self.process.judge_text(piece, tool, turn.query)))
            return self._left_of(piece, verdicts[-1])

        new = read_leaves(text).replace_strings(judge) if self.spec.unit == "field" else judge(text)
        flagged = any(verdict.flag for verdict in verdicts if verdict)
        scores = [one.score for one in verdicts if one and one.score is not None]
        facts = {"score": max(scores, default=None), "failed": sum(one is None for one in verdicts)}
        facts |= {"acts": list(self.process.acts)} if self.process.acts else {}
        outcome = "clean" if new == text else "withheld" if NOTICE in new else "rewritten"
        return RewrittenResult(new, outcome, len(verdicts), 0, facts, flagged)

    def _left_of(self, piece: str, verdict: GuardVerdict | None) -> str:
        if verdict is None:
            return piece if self.spec.on_error == "fail_open" else NOTICE
        if not verdict.flag:
            return piece
        return verdict.clean if self.spec.on_flag == "clean" and verdict.clean is not None else NOTICE

    def filter_results(
        self, turn: FilterTurn, results: Sequence[ChatToolResultMessage]
    ) -> list[ChatToolResultMessage]:
        """Rewrite each result in order.

        Raises:
            EndCase: If one is flagged and the case is to be aborted.
        """
        new = super().filter_results(turn, results)
        if self.spec.on_flag == "abort" and any(a is not b for a, b in zip(new, results, strict=True)):
            raise EndCase(ABORTED, new)
        return new


class GateCalls(BoundaryFilter):
    """Has a gate rule on calls, and shows it what they returned. Made for one case, with a process of its own."""

    def __init__(self, process: GuardProcess) -> None:
        self.process = process
        self._began = False

    def rule_on_calls(self, turn: FilterTurn, calls: Sequence[FunctionCall]) -> list[CallRuling]:
        """Ask about each call.

        Raises:
            NoVerdict: If it gave no verdict and the case is to be errored then.
        """
        if not self._began:
            ask_guard(self.process, lambda: self.process.begin_task(turn.query))
            self._began = True
        return [CallRuling(call, REFUSED if self._refuses(call) else None) for call in calls]

    def _refuses(self, call: FunctionCall) -> bool:
        with span("detector", call.function) as node:
            verdict = ask_guard(self.process, lambda: self.process.rule_on_call(call.function, call.args))
            failed = verdict is None
            refuses = self.process.spec.on_error == "fail_closed" if verdict is None else verdict.flag
            node.decision = {"filter": "gate", "refused": refuses, "failed": failed}
        return refuses

    def filter_results(
        self, turn: FilterTurn, results: Sequence[ChatToolResultMessage]
    ) -> list[ChatToolResultMessage]:
        """Show what calls returned; nothing is changed."""
        for result in results:
            name, text = result["tool_call"].function, result_text(result)
            ask_guard(self.process, lambda: self.process.show_result(name, text))  # noqa: B023 - asked at once
        return list(results)


def ask_guard(process: GuardProcess, ask: Any) -> Any:
    """What a guard answers; None where it gave no verdict and its YAML says what follows.

    Raises:
        NoVerdict: If the case is to be errored then.
    """
    try:
        return ask()
    except NoVerdict:
        if process.spec.on_error == "error":
            raise
        return None
