"""Runs one case: builds environment and pipeline, runs AgentDojo's task and score, and collects the result."""

from __future__ import annotations

import hashlib
import json
import logging
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.errors import AbortAgentError
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import EmptyEnv, Function, FunctionsRuntime, TaskEnvironment
from agentdojo.logging import LOGGER_STACK
from agentdojo.types import ChatMessage

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
from agentsys.benchmarks.scoring import are_equal, copy_deeply, take_judged_messages
from agentsys.benchmarks.traced_tools import TracedRuntime, add_receipts, book_runs_on, writes_receipts
from agentsys.contracts import (
    AttackKind,
    FinishedCase,
    InjectionTask,
    NotInjectable,
    Suite,
    UserTask,
    UserTurns,
)
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, Consequence, ModelCodeFailed, ModelError, Scene, user
from agentsys.models.pipeline_elements import (
    ElementSequence,
    LoopState,
    LoopStep,
    QueryResult,
    is_element_sequence,
)
from agentsys.models.trace import Span, Tracer, use_tracer
from agentsys.runs.build_record import CaseRun, format_traceback, make_case_run
from agentsys.runs.case_watch import ExposureWatch
from agentsys.runs.plan import Job

_log = logging.getLogger(__name__)
_Made = TypeVar("_Made")


class PipelineFailed(Exception):
    """A defense's own code raised; the cause is chained."""


class AttackFailed(Exception):
    """An attack's own code raised; the cause is chained."""


class SearchFailed(Exception):
    """An attempt of the search for a case's text ended in an error, and so does the case.

    Args:
        kind: The attempt's error kind.
        message: The attempt's error.
        ends_run: True if every further case would fail alike.
        ends_cell: True if every further case of its cell would fail alike.
    """

    def __init__(self, kind: str, message: str, *, ends_run: bool, ends_cell: bool = False) -> None:
        super().__init__(message)
        self.kind, self.ends_run, self.ends_cell = kind, ends_run, ends_cell


_ERROR_KINDS = {ModelCodeFailed: "model", PipelineFailed: "defense", AttackFailed: "attack"}


class SearchStopped(Exception):
    """The run is ending; the next run continues the search from here."""


def run_case(job: Job) -> CaseRun:
    """Run and score one case. An error inside it becomes part of the result and is not raised."""
    _log.debug("begins: %s", job.case.key)
    run = make_case_run(job)
    run_guarded(run, lambda: play_case(run))
    return run


def run_guarded(run: CaseRun, action: Callable[[], None]) -> None:
    """Run `action` under the case's trace and time it; an error becomes part of the run.

    Raises:
        SearchStopped: As `action` does.
    """
    LOGGER_STACK.set([])  # agentdojo 0.1.35: the default stack is one list shared by all threads.
    run.started, start = time.time(), time.perf_counter()
    with use_tracer(run.tracer):
        try:
            action()
        except SearchStopped:
            raise
        except SearchFailed as error:
            _mark_failed(run, error.kind, str(error))
            run.ends_run, run.ends_cell = error.ends_run, error.ends_cell
        except ModelError as error:
            _mark_failed(run, error.kind.value, str(error))
            run.ends_run = error.kind.consequence is Consequence.END_RUN
            run.ends_cell = error.kind.consequence is Consequence.END_CELL
        except ConfigError as error:
            # Only the user can correct this (`attack=manual` without a terminal): every case of this cell fails
            # alike, and other cells need not.
            _mark_failed(run, "config", str(error))
            run.ends_cell = True
        except NotInjectable as error:
            _mark_failed(run, "not_injectable", str(error))
        except InjectionBreaksEnvironment as error:
            _mark_failed(run, "injection_breaks_environment", str(error))
        except (ModelCodeFailed, PipelineFailed, AttackFailed) as error:
            _mark_broken(run, _ERROR_KINDS[type(error)], error.__cause__)
        except Exception as error:  # noqa: BLE001 - a checker's bug must not lose the other cases
            _mark_broken(run, "scorer", error)
    run.duration_s = time.perf_counter() - start


def play_case(run: CaseRun, texts: Mapping[str, str] | None = None, rerun_index: int = 0) -> None:
    """Run the agent on the case and score it. Called under `run_guarded`.

    Args:
        run: The result, which is filled in.
        texts: Injection vector -> text that a search chose; None: the attack writes them.
        rerun_index: 0 for the first run with these texts; part of the cache key, so that re-runs are not answered
            from the cache.
    """
    case, cell = run.job.case, run.job.cell
    suite = cell.benchmark.suite(case.suite)
    user_task = suite.user_tasks[case.user_task_id]
    injection_task = suite.injection_tasks[case.injection_task_id] if case.injection_task_id else None
    scene = make_case_scene(run.job)
    recorded = cell.stack.read_recorded_injections(scene)
    if recorded is not None:
        run.written = recorded
    elif texts is not None:
        run.written = dict(texts)
    elif injection_task is not None:
        write = partial(cell.attack.injections, suite, user_task, injection_task, cell.victim)
        run.written = dict(run_foreign_code(write, AttackFailed, NotInjectable))
    if recorded is None and injection_task is not None and cell.attack.searched:
        scene = _make_scene_of_wording(scene, run, user_task, injection_task)
    scene = replace(scene, rerun=rerun_index)
    run.watch = ExposureWatch(run.written, (user_task.PROMPT,), getattr(injection_task, "GOAL", None))
    run.tracer.watchers.append(run.watch)
    run.tracer.receipts = [] if writes_receipts(suite) else None
    injected = drop_tool_places(run.written)
    loaded = suite.load_and_inject_default_environment(injected)
    before = copy_deeply(loaded)
    model = cell.stack.for_scene(scene)
    driven = suite.driven(model, user_task, injection_task)
    user_simulator = partial(suite.user_turns, model, user_task, injection_task)
    pipeline = run_foreign_code(lambda: cell.defense.pipeline(driven, suite), PipelineFailed)
    run.judges_thoughts = cell.stack.judges_thoughts(scene)
    observed = ObservedPipeline(pipeline, run.tracer, user_simulator, judges_thoughts=run.judges_thoughts)
    # Random numbers depend on these alone, so that they are the same under every defense, model and attack.
    key = cell.settings.seed, case.suite, case.user_task_id, case.injection_task_id, case.epoch
    drawn = _load_recorded_draws(run, scene, suite, user_task) if suite.draws_at_random else ()
    generator = CaseRandom(key, drawn)
    try:
        with use_case_clock(cell.benchmark.clock), use_case_random(generator):
            tasks = user_task, injection_task, injected
            run.utility, run.security = suite.run_task_with_pipeline(
                observed,
                *tasks,
                runtime_class=_choose_runtime(run, suite, driven),
                environment=loaded,
            )
    finally:
        run.messages, run.attempts, run.drawn = observed.messages, observed.attempts, generator.drawn_numbers
    _measure_end(run, (user_task, injection_task), observed, before, model)


def _measure_end(
    run: CaseRun,
    tasks: tuple[UserTask, InjectionTask | None],
    observed: ObservedPipeline,
    before: Any,
    model: ChatModel,
) -> None:
    """Fill in what depends on the final environment: the suite's and the attack's own scores, and `noop`."""
    environment = observed.environment
    (user_task, injection_task), cell = tasks, run.job.cell
    suite = cell.benchmark.suite(run.job.case.suite)
    if injection_task is None:
        run.security = False
    elif cell.attack.kind is AttackKind.DENIAL_OF_SERVICE:
        run.security = not run.utility
    fresh = user_task.init_environment(before)
    run.noop = environment is not None and are_equal(fresh, environment)
    if environment is None:
        return
    facts = fresh, environment, observed.judged_messages, run.tracer, model
    finished = FinishedCase(user_task, injection_task, *facts, run.utility, run.security, cell.attack.kind)
    measured = suite.measured(finished)
    run.utility, run.security, run.measured = measured.utility, measured.security, measured.facts
    if injection_task is not None:
        own = cell.attack.has_succeeded(suite, finished)
        run.security = run.security if own is None else own


def _choose_runtime(
    run: CaseRun, suite: Suite, model: ChatModel
) -> Callable[[Sequence[Function]], TracedRuntime]:
    """Return the function that builds the case's runtime: the attack may change the tools, the defense read them."""
    attack, defense = run.job.cell.attack, run.job.cell.defense

    def build(tools: Sequence[Function]) -> TracedRuntime:
        poisoned = attack.poison_tools(tools, run.written) if run.job.case.injection_task_id else tools
        if poisoned is not tools or defense.reads_tools:
            run.watch.own_tools = {tool.name: tool.description for tool in suite.tools}
        if poisoned is not tools:
            tools = poisoned if run.tracer.receipts is None else add_receipts(poisoned)
        if defense.reads_tools:
            tools = run_foreign_code(partial(defense.read_tools, tools, suite, model), PipelineFailed)
        return TracedRuntime(tools)

    return build


def run_foreign_code(work: Callable[[], _Made], failure: type[Exception], *let_by: type[Exception]) -> _Made:
    """Run code of a defense or an attack.

    Args:
        work: Calls that code.
        failure: Raised, with the cause chained, in place of any exception that is not let through.
        let_by: Exceptions let through besides errors of models and ConfigError.
    """
    passes: tuple[type[Exception], ...] = (ModelError, ModelCodeFailed, ConfigError, *let_by)
    try:
        return work()
    except passes:
        raise
    except (Exception, SystemExit) as error:
        raise failure(f"{type(error).__name__}: {error}") from error


def _make_scene_of_wording(
    scene: Scene, run: CaseRun, user_task: UserTask, injection_task: InjectionTask
) -> Scene:
    """Build the scene of a searched text.

    The simulated model's obedience then depends on the wording alone, so that a replayed artefact gives the same
    cases. The start text gets the scene of the attack that wrote it.
    """
    cell = run.job.cell
    plain = choose_start_attack(injection_task)
    suite = cell.benchmark.suite(run.job.case.suite)
    if run.written == plain.injections(suite, user_task, injection_task, cell.victim):
        return replace(scene, attack=plain.name)
    text = json.dumps(dict(run.written), sort_keys=True)
    return replace(scene, attack="", payload=hashlib.sha256(text.encode()).hexdigest()[:16])


def make_case_scene(job: Job) -> Scene:
    """Describe the case for scripted models."""
    case = job.case
    seed = job.cell.settings.seed
    return Scene(case.suite, case.user_task_id, case.injection_task_id, case.attack, case.epoch, seed)


def _load_recorded_draws(
    run: CaseRun, scene: Scene, suite: Suite, user_task: UserTask
) -> Sequence[str | None]:
    """Recover the random numbers of a recorded case that is replayed; empty for other cases."""
    results = run.job.cell.stack.read_recorded_results(scene)
    calls = [(result.function, result.args) for result in results]

    def execute() -> list[str]:
        loaded = suite.load_and_inject_default_environment(drop_tool_places(run.written))
        repeated = repeat_calls(suite, user_task.init_environment(loaded), calls)
        return [error or str(tool_result_to_str(value)) for value, error in repeated]

    return find_recorded_draws(execute, [result.text for result in results]) if results else ()


def _mark_failed(run: CaseRun, kind: str, message: str) -> None:
    # The message is only in the record: it may quote a server.
    _log.info("errored (%s): %s", kind, run.job.case.key)
    run.utility = run.security = False
    run.error_kind, run.error = kind, message
    run.messages = run.messages or run.tracer.last_main_messages


def _mark_broken(run: CaseRun, kind: str, error: BaseException | None) -> None:
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    where = f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else "unknown place"
    _mark_failed(run, kind, f"{type(error).__name__}: {error} ({where})")
    run.traceback = format_traceback(error)


MAX_TURNS = 100
"""Most user turns of a case; after that it ends in an error, as a user who never stops would cost without end."""

TURN_SPAN = "turn"
"""Kind of the span around each user turn after the first."""


class ObservedPipeline(BasePipelineElement):  # type: ignore[misc]
    """Runs a defense's pipeline and keeps its result.

    AgentDojo runs a pipeline up to three times if its last message is empty, on the environment as the previous run
    left it; each run is an attempt with a root span of kind `run`. With several user turns an attempt is the whole
    conversation: the pipeline is run once per turn, with the turn as its query and all messages so far.

    Args:
        pipeline: The defense's pipeline.
        tracer: The case's trace.
        user: Makes the simulated user of one attempt; None: the task is the only user turn.
        judges_thoughts: True if checks see the last message's thoughts, too.
    """

    def __init__(
        self,
        pipeline: BasePipelineElement,
        tracer: Tracer,
        user: Callable[[], UserTurns | None] | None,
        *,
        judges_thoughts: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self.tracer = tracer
        self.user = user
        self.judges_thoughts = judges_thoughts
        self.name = pipeline.name
        self.attempts = 0
        self.messages: Sequence[ChatMessage] = ()
        self.environment: TaskEnvironment | None = None

    @property
    def judged_messages(self) -> Sequence[ChatMessage]:
        """The messages of the last attempt that the checks see."""
        return take_judged_messages(self.messages, with_thoughts=self.judges_thoughts)

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: TaskEnvironment = EmptyEnv(),  # noqa: B008 - AgentDojo's own signature
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> QueryResult:
        """Run one attempt.

        Raises:
            AbortAgentError: As the pipeline does; AgentDojo scores the messages it carries.
            ModelError, ModelCodeFailed, ConfigError: As the pipeline does.
            PipelineFailed: If the pipeline raised anything else.
        """
        query_args = query, runtime, env, list(messages), extra_args or {}
        self.tracer.attempt = self.attempts
        self.attempts += 1
        user_simulator = None if self.user is None else self.user()
        with self.tracer.span("run") as root:
            try:
                result = self._run_turn(root, self.pipeline, query_args)
                if user_simulator is not None:
                    result = self._run_user_turns(root, user_simulator, query_args[1], result)
                return (*result[:3], self.judged_messages, result[4])
            except AbortAgentError as abort:
                root.messages = self.messages = abort.messages
                self.environment = abort.task_environment
                root.decision = {**root.decision, "aborted": str(abort)}
                raise

    def _run_user_turns(
        self, root: Span, user_simulator: UserTurns, runtime: FunctionsRuntime, result: QueryResult
    ) -> QueryResult:
        """Run the user's further turns, until there are none.

        Each turn begins with all tools, even if a defense removed some in the turn before.
        """
        pipeline = continue_pipeline(self.pipeline)
        root.decision = {"turns": 1}
        while (utterance := user_simulator.next_turn(result[3])) is not None:
            number = root.decision["turns"] + 1
            if number > MAX_TURNS:
                raise EndlessUser(f"the user of the case went on after {MAX_TURNS} turns")
            root.decision = {"turns": number}
            with self.tracer.span(TURN_SPAN, str(number)):
                result = self._run_turn(root, pipeline, (utterance, runtime, *result[2:]))
        return result

    def _run_turn(self, root: Span, pipeline: BasePipelineElement, query_args: QueryResult) -> QueryResult:
        with book_runs_on(query_args[2], self.tracer):
            result: QueryResult = run_foreign_code(
                lambda: pipeline.query(*query_args), PipelineFailed, AbortAgentError
            )
        root.messages = self.messages = result[3]
        self.environment = result[2]
        return result


class EndlessUser(Exception):
    """A benchmark's simulated user exceeded MAX_TURNS."""


def continue_pipeline(
    pipeline: BasePipelineElement, earlier: Sequence[ChatMessage] = ()
) -> BasePipelineElement:
    """Adapt a pipeline to continue a conversation; `earlier` messages, if any, are inserted before the user's.

    AgentDojo's `SystemMessage` refuses a conversation that has begun (0.1.35), and its `InitQuery` warns about it, so
    the first is removed and the second replaced. Elements of other classes get the conversation as it is, and add
    the user's words themselves or through `InitQuery`.
    """
    if not any(map(is_element_sequence, type(pipeline).__mro__)):
        return pipeline
    elements = [
        _AppendUserTurn(earlier) if isinstance(element, InitQuery) else element
        for element in pipeline.elements
        if earlier or not isinstance(element, SystemMessage)
    ]
    return ElementSequence(elements, pipeline.name)


class _AppendUserTurn(LoopStep):
    def __init__(self, earlier: Sequence[ChatMessage]) -> None:
        self._earlier = earlier

    def step(self, at: LoopState) -> LoopState:
        return at.with_messages(*self._earlier, user(at.query))
