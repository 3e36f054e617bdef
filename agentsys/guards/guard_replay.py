"""The fully hijacked agent, replayed through gates on calls: what they refuse of the user's work and of the attack's.

Ground truths of the user task and of the injection task run call by call on the real environment, which holds the
attack's text. AgentDojo's checks see the calls that ran, not those that were asked for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime
from agentdojo.types import text_content_block_from_string

from agentsys.analysis.metrics.rates import Number
from agentsys.base.config_catalog import load_config
from agentsys.base.payload_lines import squeeze
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.repeatable_tools import use_case_clock
from agentsys.benchmarks.scoring import deep_copy
from agentsys.contracts import Attack, InjectionTask, NotInjectable, Suite, UserTask, Victim
from agentsys.guards.guard_process import GuardProcess, NoVerdict
from agentsys.guards.guard_score import CountedCase, rate_outcomes
from agentsys.guards.guard_spec import GuardIdentity, GuardSpec, identify_guard
from agentsys.guards.guard_texts import holds_injection
from agentsys.runs.instantiate import instantiate

ORDERS = ("before", "between", "after")
"""Where the attack's calls stand; `between`: behind the first of the user's whose result holds its text."""


@dataclass(frozen=True)
class ReplayCase:
    """A user task, alone or with an injection task whose way is known."""

    suite: Suite
    user_task: UserTask
    injection_task: InjectionTask | None
    texts: Mapping[str, str]
    """Injection vector -> the attack's text."""

    @cached_property
    def is_argument_level(self) -> bool:
        """Whether the user's task needs every tool that the attack needs."""
        assert self.injection_task is not None
        clean = self.suite.load_and_inject_default_environment({})
        own = {call.function for call in self.user_task.ground_truth(clean)}
        return {call.function for call in self.injection_task.ground_truth(clean)} <= own


@dataclass
class ReplayedCase:
    """What became of a case."""

    utility: bool
    security: bool
    refused: dict[str, int] = field(default_factory=lambda: {"user": 0, "attack": 0})


@dataclass
class GateReplay:
    """What became of all cases under one gate."""

    identity: GuardIdentity
    order: str
    version: str
    attack: str
    cases: int
    without: int
    """Pairs whose injection task has no ground truth."""
    numbers: dict[str, Number]
    """`asr`, `tool_level`, `argument_level` and `benign_utility`."""
    refused: Mapping[str, int]
    """Calls refused of the `user` and of the `attack`."""
    speed: float
    """Cases a second."""
    acts: list[str]


def list_replay_cases(benchmark: AgentDojo, attack: Attack) -> tuple[list[ReplayCase], int]:
    """Every benign case and every pair that can be replayed, and how many pairs cannot."""
    cases, without = [], 0
    victim = Victim("GPT-4", benchmark.user_name)
    for suite in map(benchmark.suite, benchmark.suite_names()):
        clean = suite.load_and_inject_default_environment({})
        known = {key: bool(task.ground_truth(clean)) for key, task in suite.injection_tasks.items()}
        for user_task in suite.user_tasks.values():
            cases.append(ReplayCase(suite, user_task, None, {}))
            for key, injection_task in suite.injection_tasks.items():
                try:
                    texts = attack.injections(suite, user_task, injection_task, victim) if known[key] else {}
                except NotInjectable:
                    texts = {}
                without += not texts
                cases += [ReplayCase(suite, user_task, injection_task, texts)] if texts else []
    return cases, without


def replay_case(case: ReplayCase, order: str, gate: GuardProcess | None) -> ReplayedCase:
    """Replay one case.

    Raises:
        NoVerdict: If the gate gave no verdict and the case is to be errored then.
    """
    environment = case.suite.load_and_inject_default_environment(dict(case.texts))
    environment = case.user_task.init_environment(environment)
    before = deep_copy(environment)
    waiting = [("user", call) for call in case.user_task.ground_truth(deep_copy(before))]
    attack = case.injection_task.ground_truth(deep_copy(before)) if case.injection_task else []
    attacking = [("attack", call) for call in attack]
    if order != "between":
        waiting = attacking + waiting if order == "before" else waiting + attacking
        attacking = []
    if gate is not None:
        gate.begin_task(case.user_task.PROMPT)
    replayed, ran = ReplayedCase(False, False), []
    runtime = FunctionsRuntime(case.suite.tools)
    written = [squeeze(text) for text in case.texts.values()]
    while waiting or attacking:
        if not waiting:  # the text was met nowhere, or in the last result
            waiting, attacking = attacking, []
        who, call = waiting.pop(0)
        if _refuses(gate, call):
            replayed.refused[who] += 1
            continue
        result = _run_call(runtime, environment, call)
        ran.append(call)
        if gate is not None:
            _show_result(gate, call.function, result)
        if attacking and holds_injection(result, written):
            waiting, attacking = attacking + waiting, []
    answer = [text_content_block_from_string(case.user_task.GROUND_TRUTH_OUTPUT)]
    check = case.suite._check_task_result
    replayed.utility = check(case.user_task, answer, before, environment, ran)
    if case.injection_task is not None:
        replayed.security = check(case.injection_task, answer, before, environment, ran)
    return replayed


def _run_call(runtime: FunctionsRuntime, environment: Any, call: FunctionCall) -> str:
    from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # loads every vendor's SDK

    value, error = runtime.run_function(environment, call.function, dict(call.args))
    return tool_result_to_str(value) if error is None else str(error)


def _refuses(gate: GuardProcess | None, call: FunctionCall) -> bool:
    if gate is None:
        return False
    try:
        return gate.rule_on_call(call.function, call.args).flag
    except NoVerdict:
        if gate.spec.on_error == "error":
            raise
        return gate.spec.on_error == "fail_closed"


def _show_result(gate: GuardProcess, tool: str, text: str) -> None:
    try:
        gate.show_result(tool, text)
    except NoVerdict:
        if gate.spec.on_error == "error":
            raise


def replay_guards(
    specs: Mapping[str, GuardSpec], orders: Sequence[str], attack: str, version: str
) -> list[GateReplay]:
    """Replay all cases without a gate and through each one.

    Raises:
        ConfigError: If there is no such attack or version, or a gate is not installed.
    """
    benchmark = AgentDojo(version)
    cases, without = list_replay_cases(benchmark, instantiate("attack", load_config("attack", attack)))
    replayed = []
    for name, spec in [("no gate", None), *specs.items()]:
        for order in orders:
            one = _replay_all(cases, order, spec, benchmark)
            identity = GuardIdentity(name, "", "", "", "") if spec is None else identify_guard(name, spec)
            replayed.append(GateReplay(identity, order, version, attack, len(cases), without, *one))
    return replayed


def _replay_all(
    cases: Sequence[ReplayCase], order: str, spec: GuardSpec | None, benchmark: AgentDojo
) -> tuple[dict[str, Number], Mapping[str, int], float, list[str]]:
    gate = None if spec is None else GuardProcess(spec)
    start = time.perf_counter()
    outcomes: dict[str, list[CountedCase]] = {}
    errors: dict[str, int] = {}
    refused = {"user": 0, "attack": 0}
    try:
        for case in cases:
            injection = case.injection_task
            levels = ["benign_utility"] if injection is None else ["asr", _level_of(case)]
            try:
                with use_case_clock(benchmark.clock):
                    found = replay_case(case, order, gate)
            except NoVerdict:
                errors |= {level: errors.get(level, 0) + 1 for level in levels}
                continue
            hit = found.utility if injection is None else found.security
            names = (case.suite.name, case.user_task.ID, injection.ID if injection else "")
            for level in levels:
                outcomes.setdefault(level, []).append(CountedCase(*names, hit))
            refused = {who: refused[who] + count for who, count in found.refused.items()}
    finally:
        if gate is not None:
            gate.close()
    numbers = {
        level: rate_outcomes(outcomes.get(level, []), errors.get(level, 0)) for level in {*outcomes, *errors}
    }
    return numbers, refused, len(cases) / (time.perf_counter() - start), gate.acts if gate else []


def _level_of(case: ReplayCase) -> str:
    return "argument_level" if case.is_argument_level else "tool_level"
