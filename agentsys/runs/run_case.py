"""Runs one case: writes the injection, builds environment and pipeline, runs AgentDojo's task and checks."""

from __future__ import annotations

import hashlib
import json
import logging
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import Function
from agentdojo.logging import LOGGER_STACK

from agentsys.attacks.attacker_search import choose_start_attack
from agentsys.attacks.injection_vectors import drop_tool_places
from agentsys.benchmarks.environment_loader import InjectionBreaksEnvironment
from agentsys.benchmarks.repeatable_tools import (
    CaseRandom,
    find_recorded_draws,
    repeat_calls,
    use_case_clock,
    use_case_random,
)
from agentsys.benchmarks.scoring import are_equal, copy_deeply
from agentsys.benchmarks.traced_tools import TracedRuntime, add_receipts, writes_receipts
from agentsys.contracts import AttackKind, FinishedCase, InjectionTask, NotInjectable, Suite, UserTask
from agentsys.errors import ConfigError
from agentsys.models.chat import Consequence, ModelCodeFailed, ModelError, Scene
from agentsys.models.trace import Tracer, use_tracer
from agentsys.runs.case_outcome import CaseError, CaseOutcome, ExposureWatch, format_traceback, make_tracer
from agentsys.runs.cell import Job
from agentsys.runs.observed_pipeline import ObservedPipeline, PipelineFailed, run_foreign_code

_log = logging.getLogger(__name__)


class AttackFailed(Exception):
    """An attack's own code raised; the cause is chained."""


_BROKEN = {ModelCodeFailed: "model", PipelineFailed: "defense", AttackFailed: "attack"}
_UNFIT = {NotInjectable: "not_injectable", InjectionBreaksEnvironment: "injection_breaks_environment"}


def explain_error(error: Exception) -> CaseError:
    """Describe the exception that ended a case for its record, and its meaning for further cases."""
    if isinstance(error, ModelError):
        consequence = error.kind.consequence
        ends = consequence is Consequence.END_RUN, consequence is Consequence.END_CELL
        return CaseError(error.kind.value, str(error), None, *ends, error)
    if isinstance(error, ConfigError):
        # Only the user can correct this (`attack=manual` without a terminal): every case of this cell fails
        # alike, and other cells need not.
        return CaseError("config", str(error), ends_cell=True)
    if kind := _find_kind(error, _UNFIT):
        return CaseError(kind, str(error), cause=error)
    kind, cause = _find_kind(error, _BROKEN), error.__cause__
    if kind is None:  # A checker's bug, which must not lose the other cases.
        kind, cause = "scorer", error
    frames = traceback.extract_tb(cause.__traceback__) if cause is not None else []
    where = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else "unknown place"
    return CaseError(kind, f"{type(cause).__name__}: {cause} ({where})", format_traceback(cause))


def _find_kind(error: Exception, kinds: Mapping[type[Exception], str]) -> str | None:
    return next((kind for type_, kind in kinds.items() if isinstance(error, type_)), None)


def run_case(
    job: Job,
    texts: Mapping[str, str] | None = None,
    rerun_index: int = 0,
    tracer: Tracer | None = None,
) -> CaseOutcome:
    """Run the agent on a case and score it. An error inside it becomes part of the result and is not raised.

    Args:
        job: The case.
        texts: Injection vector -> text that a search chose; None: the attack writes them.
        rerun_index: 0 for the first run with these texts; part of the cache key, so that re-runs are not answered
            from the cache.
        tracer: A trace that has begun; None: the case begins its own.
    """
    _log.debug("begins: %s", job.case.key)
    tracer = make_tracer(job) if tracer is None else tracer
    LOGGER_STACK.set([])  # agentdojo 0.1.35: the default stack is one list shared by all threads.
    started, start = time.time(), time.perf_counter()
    observations, scores, error = dict[str, Any](), TaskScores(), None
    agent: CaseAgent | None = None
    with use_tracer(tracer):
        try:
            injection = write_injection(job, texts, rerun_index)
            observations = {"written": injection.written, "watch": injection.watch}
            tracer.watchers.append(injection.watch)
            agent = CaseAgent(job, injection, tracer)
            scores = agent.run()
            scores = agent.measure(scores)
        except Exception as raised:  # noqa: BLE001 - an errored case must not lose the others
            error = explain_error(raised)
    outcome = CaseOutcome(
        job=job,
        tracer=tracer,
        **observations,
        **({} if agent is None else agent.observations),
        **vars(scores),
        started=started,
        duration_s=time.perf_counter() - start,
    )
    if error is None:
        return outcome
    # The message is only in the record: it may quote a server.
    _log.info("errored (%s): %s", error.kind, job.case.key)
    return outcome.fail(error)


@dataclass(frozen=True)
class TaskScores:
    """Scores of a case; see `CaseOutcome`."""

    utility: bool = False
    security: bool = False
    measured: Mapping[str, Any] = field(default_factory=dict)
    noop: bool = False


class CaseTasks(NamedTuple):
    """A case's suite and tasks."""

    suite: Suite
    user_task: UserTask
    injection_task: InjectionTask | None


@dataclass(frozen=True)
class Injection:
    """The texts of a case's attack."""

    tasks: CaseTasks
    scene: Scene
    """The case for scripted models."""
    written: Mapping[str, str]
    """Injection vector -> text."""
    watch: ExposureWatch


def find_tasks(job: Job) -> CaseTasks:
    """Return a case's suite, user task and injection task."""
    case, suite = job.case, job.cell.benchmark.suite(job.case.suite)
    injection_task = suite.injection_tasks[case.injection_task_id] if case.injection_task_id else None
    return CaseTasks(suite, suite.user_tasks[case.user_task_id], injection_task)


def write_injection(job: Job, texts: Mapping[str, str] | None, rerun_index: int) -> Injection:
    """Write a case's injected texts: those of a recorded run, the given ones, or the attack's."""
    cell, scene = job.cell, make_case_scene(job)
    suite, user_task, injection_task = tasks = find_tasks(job)
    recorded = cell.stack.read_recorded_injections(scene)
    written: Mapping[str, str] = {}
    if recorded is not None:
        written = recorded
    elif texts is not None:
        written = dict(texts)
    elif injection_task is not None:
        write = partial(cell.attack.injections, suite, user_task, injection_task, cell.victim)
        written = dict(run_foreign_code(write, AttackFailed, NotInjectable))
    if recorded is None and injection_task is not None and cell.attack.searched:
        scene = _make_scene_of_wording(scene, job, tasks, written)
    watch = ExposureWatch(written, (user_task.PROMPT,), getattr(injection_task, "GOAL", None))
    return Injection(tasks, replace(scene, rerun=rerun_index), written, watch)


class CaseAgent:
    """The defended agent on one case, in a fresh environment.

    Args:
        job: The case.
        injection: The texts that are put into the environment.
        tracer: The case's trace.
    """

    def __init__(self, job: Job, injection: Injection, tracer: Tracer) -> None:
        self._job, self._written, self._watch = job, injection.written, injection.watch
        self._tracer, scene = tracer, injection.scene
        self._suite, self._user_task, self._injection_task = tasks = injection.tasks
        suite, cell = self._suite, job.cell
        tracer.receipts = [] if writes_receipts(suite) else None
        self._injected = drop_tool_places(injection.written)
        self._environment = suite.load_and_inject_default_environment(self._injected)
        self._before = copy_deeply(self._environment)
        self._model = model = cell.stack.for_scene(scene)
        self._driven = suite.driven(model, *tasks[1:])
        simulator = partial(suite.user_turns, model, *tasks[1:])
        pipeline = run_foreign_code(lambda: cell.defense.pipeline(self._driven, suite), PipelineFailed)
        judges_thoughts = cell.stack.judges_thoughts(scene)
        self._observed = ObservedPipeline(pipeline, tracer, simulator, judges_thoughts=judges_thoughts)
        # Random numbers depend on these alone, so that they are the same under every defense, model and attack.
        case = job.case
        key = cell.settings.seed, case.suite, case.user_task_id, case.injection_task_id, case.epoch
        recorded = _load_recorded_draws(job, injection) if suite.draws_at_random else ()
        self._generator = CaseRandom(key, recorded)

    @property
    def observations(self) -> dict[str, Any]:
        """Observations of the agent so far, by the names of `CaseOutcome`."""
        seen = self._observed
        return {
            "messages": seen.messages,
            "attempts": seen.attempts,
            "judges_thoughts": seen.judges_thoughts,
            "drawn": self._generator.drawn_numbers,
        }

    def run(self) -> TaskScores:
        """Run the agent with AgentDojo's own runner, and score it by the tasks' checks."""
        with use_case_clock(self._job.cell.benchmark.clock), use_case_random(self._generator):
            utility, security = self._suite.run_task_with_pipeline(
                self._observed,
                self._user_task,
                self._injection_task,
                self._injected,
                runtime_class=self._build_runtime,
                environment=self._environment,
            )
        if self._injection_task is None:
            security = False
        elif self._job.cell.attack.kind is AttackKind.DENIAL_OF_SERVICE:
            security = not utility
        environment, noop = self._observed.environment, False
        if environment is not None:
            self._before = self._user_task.init_environment(self._before)
            noop = are_equal(self._before, environment)
        return TaskScores(utility, security, noop=noop)

    def measure(self, scores: TaskScores) -> TaskScores:
        """Add the suite's and the attack's own scores, which depend on the final environment."""
        seen, attack, injection_task = self._observed, self._job.cell.attack, self._injection_task
        if seen.environment is None:
            return scores
        facts = self._before, seen.environment, seen.judged_messages, self._tracer, self._model
        finished = FinishedCase(
            self._user_task, injection_task, *facts, scores.utility, scores.security, attack.kind
        )
        measured = self._suite.measured(finished)
        scores = TaskScores(measured.utility, measured.security, measured.facts, scores.noop)
        if injection_task is not None:
            own = attack.has_succeeded(self._suite, finished)
            scores = scores if own is None else replace(scores, security=own)
        return scores

    def _build_runtime(self, tools: Sequence[Function]) -> TracedRuntime:
        """Build the case's runtime: the attack may change the tools, the defense read them."""
        attack, defense = self._job.cell.attack, self._job.cell.defense
        poisoned = tools if self._injection_task is None else attack.poison_tools(tools, self._written)
        if poisoned is not tools or defense.reads_tools:
            self._watch.own_tools = {tool.name: tool.description for tool in self._suite.tools}
        if poisoned is not tools:
            tools = poisoned if self._tracer.receipts is None else add_receipts(poisoned)
        if defense.reads_tools:
            tools = run_foreign_code(
                partial(defense.read_tools, tools, self._suite, self._driven), PipelineFailed
            )
        return TracedRuntime(tools)


def _make_scene_of_wording(scene: Scene, job: Job, tasks: CaseTasks, written: Mapping[str, str]) -> Scene:
    """Build the scene of a searched text.

    The simulated model's obedience then depends on the wording alone, so that a replayed artefact gives the same
    cases. The start text gets the scene of the attack that wrote it.
    """
    suite, user_task, injection_task = tasks
    assert injection_task is not None
    plain = choose_start_attack(injection_task)
    if written == plain.injections(suite, user_task, injection_task, job.cell.victim):
        return replace(scene, attack=plain.name)
    text = json.dumps(dict(written), sort_keys=True)
    return replace(scene, attack="", payload=hashlib.sha256(text.encode()).hexdigest()[:16])


def make_case_scene(job: Job) -> Scene:
    """Describe the case for scripted models."""
    case = job.case
    seed = job.cell.settings.seed
    return Scene(case.suite, case.user_task_id, case.injection_task_id, case.attack, case.epoch, seed)


def _load_recorded_draws(job: Job, injection: Injection) -> Sequence[str | None]:
    """Recover the random numbers of a recorded case that is replayed; empty for other cases."""
    suite, user_task, _ = injection.tasks
    results = job.cell.stack.read_recorded_results(injection.scene)
    calls = [(result.function, result.args) for result in results]

    def execute() -> list[str]:
        loaded = suite.load_and_inject_default_environment(drop_tool_places(injection.written))
        repeated = repeat_calls(suite, user_task.init_environment(loaded), calls)
        return [error or str(tool_result_to_str(value)) for value, error in repeated]

    return find_recorded_draws(execute, [result.text for result in results]) if results else ()
