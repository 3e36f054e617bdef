"""The fully hijacked agent, replayed through gates on calls: what they refuse of the user's work and of the attack's.

Ground truths of the user task and of the injection task run call by call on the real environment, which holds the
attack's text: the attack's calls before the user's, after them, or between: behind the first of the user's whose
result holds the text. AgentDojo's checks see the calls that ran, not those that were asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.types import text_content_block_from_string

from agentsys.analysis.metrics.rates import Number
from agentsys.base.config_catalog import load_config
from agentsys.base.payload_lines import contains_payload, find_payload_lines
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.repeatable_tools import use_case_clock
from agentsys.benchmarks.scoring import copy_deeply
from agentsys.contracts import Attack, InjectionTask, NotInjectable, Suite, UserTask, Victim
from agentsys.runs.instantiate import instantiate
from agentsys_plugins.guards.guard_process import GuardProcess
from agentsys_plugins.guards.guard_score import (
    CountedCase,
    GuardNumber,
    GuardScore,
    compute_share,
    rate_outcomes,
)
from agentsys_plugins.guards.guard_spec import GuardIdentity, GuardSpec, identify_guard
from agentsys_plugins.guards.guard_texts import CLEAN
from agentsys_plugins.guards.guard_worker import NoVerdict


@dataclass(frozen=True)
class ReplayCase:
    """A user task, alone or with an injection task whose way is known."""

    suite: Suite
    user_task: UserTask
    injection_task: InjectionTask | None
    texts: Mapping[str, str]
    """Injection vector -> the attack's text."""
    metrics: tuple[str, ...]
    """What it is counted for; `argument_level`: the user's task needs every tool that the attack needs."""


@dataclass
class ReplayedCase:
    """Result of a replayed case."""

    utility: bool = False
    security: bool = False
    refused: dict[str, list[bool]] = field(default_factory=lambda: {"user": [], "attack": []})
    """Of each call of the `user` and of the `attack`, whether it was refused."""


def list_replay_cases(benchmark: AgentDojo, attack: Attack) -> tuple[list[ReplayCase], int]:
    """Every benign case and every pair that can be replayed, and how many pairs cannot."""
    cases, without = [], 0
    victim = Victim("GPT-4", benchmark.user_name)
    for suite in map(benchmark.suite, benchmark.suite_names()):
        clean = suite.load_and_inject_default_environment({})
        needed = {key: _list_tools(task, clean) for key, task in suite.injection_tasks.items()}
        for user_task in suite.user_tasks.values():
            cases.append(ReplayCase(suite, user_task, None, {}, ("benign_utility",)))
            own = _list_tools(user_task, clean)
            for key, injection_task in suite.injection_tasks.items():
                texts: Mapping[str, str] = {}
                with suppress(NotInjectable):
                    texts = attack.injections(suite, user_task, injection_task, victim) if needed[key] else {}
                level = "argument_level" if needed[key] <= own else "tool_level"
                without += not texts
                cases += (
                    [ReplayCase(suite, user_task, injection_task, texts, ("asr", level))] if texts else []
                )
    return cases, without


def _list_tools(task: UserTask | InjectionTask, clean: Any) -> set[str]:
    return {call.function for call in task.ground_truth(clean)}


def replay_case(case: ReplayCase, gate: GuardProcess | None, order: str = "between") -> ReplayedCase:
    """Replay one case.

    Raises:
        NoVerdict: If the gate gave no verdict and the case is to be errored then.
    """
    from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # loads every vendor's SDK

    environment = case.suite.load_and_inject_default_environment(dict(case.texts))
    environment = case.user_task.init_environment(environment)
    before = copy_deeply(environment)
    waiting = [("user", call) for call in case.user_task.ground_truth(copy_deeply(before))]
    attack = case.injection_task.ground_truth(copy_deeply(before)) if case.injection_task else []
    attacking = [("attack", call) for call in attack]
    if order == "before":
        waiting, attacking = attacking + waiting, []
    if gate is not None:
        gate.ask("task", task=case.user_task.PROMPT)
    replayed, ran, runtime = ReplayedCase(), [], FunctionsRuntime(case.suite.tools)
    lines = find_payload_lines(case.texts.values())
    while waiting or attacking:
        if not waiting:  # they come last, or the text was met nowhere or in the last result
            waiting, attacking = attacking, []
        who, call = waiting.pop(0)
        replayed.refused[who].append(gate is not None and gate.ask(tool=call.function, args=call.args).flag)
        if replayed.refused[who][-1]:
            continue
        value, error = runtime.run_function(environment, call.function, dict(call.args))
        result = tool_result_to_str(value) if error is None else str(error)
        ran.append(call)
        if gate is not None:
            gate.ask("observe", tool=call.function, text=result)
        if order == "between" and attacking and contains_payload(result, lines):
            waiting, attacking = attacking + waiting, []
    answer = [text_content_block_from_string(case.user_task.GROUND_TRUTH_OUTPUT)]
    check = case.suite._check_task_result
    replayed.utility = check(case.user_task, answer, before, environment, ran)
    if case.injection_task is not None:
        replayed.security = check(case.injection_task, answer, before, environment, ran)
    return replayed


def replay_guards(
    specs: Mapping[str, GuardSpec], attack: str, version: str, order: str
) -> tuple[list[GuardScore], int]:
    """Replay all cases without a gate and through each one; also how many pairs cannot be.

    Raises:
        ConfigError: If there is no such attack or version, or a gate is not installed.
    """
    benchmark = AgentDojo(version)
    cases, without = list_replay_cases(benchmark, instantiate("attack", load_config("attack", attack)))
    scores = [GuardScore(GuardIdentity("no gate"))]
    scores += [GuardScore(identify_guard(name, spec), spec) for name, spec in specs.items()]
    for score in scores:
        process = None if score.spec is None else GuardProcess(score.spec)
        with nullcontext() if process is None else closing(process):
            for metric, number in _replay_all(cases, process, order, benchmark):
                under = CLEAN if metric == "benign_utility" else attack
                where = f"{benchmark.name} {version}", under, order
                score.numbers.append(GuardNumber(metric, *where, number))
        if process is not None:
            score.acts, score.failures, score.last_words = process.acts, process.failures, process.last_words
            score.confinement = process.confinement
    return scores, without


def _replay_all(
    cases: Sequence[ReplayCase], gate: GuardProcess | None, order: str, benchmark: AgentDojo
) -> Iterable[tuple[str, Number]]:
    outcomes: dict[str, list[CountedCase]] = defaultdict(list)
    refused: dict[str, list[bool]] = {"user": [], "attack": []}
    for case in cases:
        hit: bool | None = None
        with suppress(NoVerdict), use_case_clock(benchmark.clock):
            found = replay_case(case, gate, order)
            hit = found.security if case.injection_task else found.utility
            for who, flags in found.refused.items():
                refused[who] += flags
        injection = case.injection_task.ID if case.injection_task else ""
        for metric in case.metrics:
            outcomes[metric].append((case.suite.name, case.user_task.ID, injection, hit))
    for metric, of in outcomes.items():
        yield metric, rate_outcomes(of)
    for who, flags in refused.items():
        yield f"{who}_refused", compute_share(flags)
