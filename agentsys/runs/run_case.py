"""One case from start to record: environment, pipeline, AgentDojo's run and score, what happened."""

from __future__ import annotations

import hashlib
import json
import logging
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import Function
from agentdojo.logging import LOGGER_STACK
from agentdojo.types import ChatMessage

from agentsys.abilities import ChecksSuccess, LeadsUsers, MeasuresCases, PoisonsTools, ReadsTools, WrapsModels
from agentsys.attacks.attack_search import searches_texts
from agentsys.attacks.attacker_search import choose_start_attack
from agentsys.attacks.injection_vectors import drop_tool_places
from agentsys.benchmarks.case_watch import ExposureWatch
from agentsys.benchmarks.environment_loader import InjectionBreaksEnvironment
from agentsys.benchmarks.repeatable_tools import (
    CaseRandom,
    find_clock_start,
    find_recorded_draws,
    has_random_draws,
    repeat_calls,
    use_case_clock,
    use_case_random,
)
from agentsys.benchmarks.scoring import are_equal, deep_copy
from agentsys.benchmarks.traced_tools import TracedRuntime, add_receipts, writes_receipts
from agentsys.contracts import (
    AttackKind,
    FinishedCase,
    InjectionTask,
    NotInjectable,
    Suite,
    UserTask,
)
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, Consequence, ModelCodeFailed, ModelError, Scene
from agentsys.models.trace import Tracer, use_tracer
from agentsys.records.schema import AttemptFacts, SearchFacts
from agentsys.runs.observed_pipeline import ObservedPipeline, PipelineFailed
from agentsys.runs.plan import Job

_log = logging.getLogger(__name__)
_Made = TypeVar("_Made")


@dataclass
class CaseRun:
    """Result of running a case; `build_record` turns it into what is stored."""

    job: Job
    tracer: Tracer
    watch: ExposureWatch
    written: Mapping[str, str]
    """Injection vector -> text as the attack wrote it."""
    drawn: Sequence[str] = ()
    """Numbers that its tools drew at random, in order."""
    utility: bool = False
    security: bool = False
    """True means that the injection task was carried out, as in AgentDojo."""
    measured: Mapping[str, Any] = field(default_factory=dict)
    """What the suite measures besides the two scores."""
    messages: Sequence[ChatMessage] = ()
    attempts: int = 0
    noop: bool = False
    error: str | None = None
    error_kind: str | None = None
    traceback: str | None = None
    """Where somebody's code broke."""
    ends_run: bool = False
    """Whether every further case would fail alike (a bad key)."""
    ends_cell: bool = False
    """Whether every further case of its cell would fail alike (a defense that cannot be built here)."""
    started: float = 0.0
    """Seconds since the epoch."""
    duration_s: float = 0.0
    attempt: AttemptFacts | None = None
    """Where it is an attempt of a search."""
    search: SearchFacts | None = None
    """Where its text was searched for."""


_LONGEST_TRACEBACK = 20_000


class AttackFailed(Exception):
    """An attack's own code raised; the cause is chained."""


class SearchFailed(Exception):
    """An attempt of the search for a case's text ended in an error, and so does the case.

    Args:
        kind: The attempt's error kind.
        message: The attempt's error.
        ends_run: Whether every further case would fail alike.
        ends_cell: Whether every further case of its cell would.
    """

    def __init__(self, kind: str, message: str, *, ends_run: bool, ends_cell: bool = False) -> None:
        super().__init__(message)
        self.kind, self.ends_run, self.ends_cell = kind, ends_run, ends_cell


_ERROR_KINDS = {ModelCodeFailed: "model", PipelineFailed: "defense", AttackFailed: "attack"}


class SearchStopped(Exception):
    """The run is ending; the search goes on from here in the next one."""


def run_case(job: Job) -> CaseRun:
    """Run and score one case. Whatever goes wrong inside it is part of the result, not an exception."""
    _log.debug("begins: %s", job.case.key)
    run = new_case_run(job)
    run_guarded(run, lambda: play_case(run))
    return run


def new_case_run(job: Job) -> CaseRun:
    """A run in which nothing has happened yet."""
    return CaseRun(job, Tracer(case=job.case.key, usage_log=job.cell.books), ExposureWatch({}), {})


def run_guarded(run: CaseRun, action: Callable[[], None]) -> None:
    """Do something for a case under its trace; whatever goes wrong becomes part of the run.

    Raises:
        SearchStopped: As `action` does.
    """
    LOGGER_STACK.set([])  # agentdojo 0.1.35: the default stack is one list shared by all threads
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
        except ConfigError as error:
            # Something only the user can mend (`attack=manual` without a terminal): every case of this cell
            # would meet it, and no other cell need.
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


def play_case(run: CaseRun, texts: Mapping[str, str] | None = None, again: int = 0) -> None:
    """Run the agent on the case and score it. Called under `run_guarded`.

    Args:
        run: The run, which is filled in.
        texts: Injection vector -> text, where a search chose it; None: what the attack writes.
        again: Which further run of the case with this text it is; it gets no reply of the others'.
    """
    case, cell = run.job.case, run.job.cell
    suite = cell.benchmark.suite(case.suite)
    user_task = suite.user_tasks[case.user_task_id]
    injection_task = suite.injection_tasks[case.injection_task_id] if case.injection_task_id else None
    scene = case_scene(run.job)
    recorded = cell.stack.recorded_injections(scene)
    if recorded is not None:
        run.written = recorded
    elif texts is not None:
        run.written = dict(texts)
    elif injection_task is not None:
        run.written = _write_injections(run.job, suite, user_task, injection_task)
    if recorded is None and injection_task is not None and searches_texts(cell.attack):
        scene = _scene_of_wording(scene, run, user_task, injection_task)
    scene = replace(scene, rerun=again)
    run.watch = ExposureWatch(run.written, (user_task.PROMPT,), getattr(injection_task, "GOAL", None))
    attacked = injection_task is not None and isinstance(cell.attack, PoisonsTools)
    if attacked or (isinstance(cell.defense, ReadsTools) and cell.defense.reads_tools):
        run.watch.own_tools = {tool.name: tool.description for tool in suite.tools}
    run.tracer.watchers.append(run.watch)
    run.tracer.receipts = [] if writes_receipts(suite) else None
    injected = drop_tool_places(run.written)
    loaded = suite.load_and_inject_default_environment(injected)
    before = deep_copy(loaded)
    model = cell.stack.for_scene(scene)
    driven = suite.driven(model, user_task, injection_task) if isinstance(suite, WrapsModels) else model
    talker = (
        partial(suite.user_turns, model, user_task, injection_task) if isinstance(suite, LeadsUsers) else None
    )
    pipeline = _guard_defense(lambda: cell.defense.pipeline(driven, suite))
    observed = ObservedPipeline(pipeline, run.tracer, talker)
    # What its random numbers depend on: the same under every defense, model and attack.
    key = cell.settings.seed, case.suite, case.user_task_id, case.injection_task_id, case.epoch
    drawn = _load_recorded_draws(run, scene, suite, user_task) if has_random_draws(suite) else ()
    generator = CaseRandom(key, drawn)
    try:
        with use_case_clock(find_clock_start(cell.benchmark)), use_case_random(generator):
            tasks = user_task, injection_task, injected
            run.utility, run.security = suite.run_task_with_pipeline(
                observed,
                *tasks,
                runtime_class=_choose_runtime(run, suite, driven, attacked=attacked),
                environment=loaded,
            )
    finally:
        run.messages, run.attempts, run.drawn = observed.messages, observed.attempts, generator.drawn_numbers
    _measure_end(run, (user_task, injection_task), observed.environment, before, model)


def _measure_end(
    run: CaseRun,
    tasks: tuple[UserTask, InjectionTask | None],
    environment: Any,
    before: Any,
    model: ChatModel,
) -> None:
    """Fill in what follows from the environment at the end, beside AgentDojo's two scores."""
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
    facts = fresh, environment, run.messages, run.tracer, model
    finished = FinishedCase(user_task, injection_task, *facts, run.utility, run.security, cell.attack.kind)
    if isinstance(suite, MeasuresCases):
        measured = suite.measured(finished)
        run.utility, run.security, run.measured = measured.utility, measured.security, measured.facts
    if injection_task is not None and isinstance(cell.attack, ChecksSuccess):
        own = cell.attack.has_succeeded(suite, finished)
        run.security = run.security if own is None else own


def _choose_runtime(
    run: CaseRun, suite: Suite, model: ChatModel, *, attacked: bool
) -> Callable[[Sequence[Function]], TracedRuntime]:
    """What makes the case's runtime of the suite's tools: as the attack has them, as the defense lets them by."""
    attack, defense = run.job.cell.attack, run.job.cell.defense

    def build(tools: Sequence[Function]) -> TracedRuntime:
        if attacked and isinstance(attack, PoisonsTools):
            poisoned = attack.poison_tools(tools, run.written)
            tools = poisoned if run.tracer.receipts is None else add_receipts(poisoned)
        if isinstance(defense, ReadsTools) and defense.reads_tools:
            tools = _guard_defense(lambda: defense.read_tools(tools, suite, model))
        return TracedRuntime(tools)

    return build


def _write_injections(
    job: Job, suite: Suite, user_task: UserTask, injection_task: InjectionTask
) -> dict[str, str]:
    try:
        return dict(job.cell.attack.injections(suite, user_task, injection_task, job.cell.victim))
    except (NotInjectable, ModelError, ModelCodeFailed, ConfigError):
        raise
    except (Exception, SystemExit) as error:
        raise AttackFailed from error


def _guard_defense(work: Callable[[], _Made]) -> _Made:
    """Do what a defense's own code does.

    Raises:
        PipelineFailed: If that raised what no defense may raise.
    """
    try:
        return work()
    except (ModelError, ModelCodeFailed, ConfigError):
        raise
    except (Exception, SystemExit) as error:
        raise PipelineFailed(f"{type(error).__name__}: {error}") from error


def _scene_of_wording(
    scene: Scene, run: CaseRun, user_task: UserTask, injection_task: InjectionTask
) -> Scene:
    """The scene of a searched text.

    What is obeyed depends on the wording alone, so that a replayed artefact gives the same cases. With the
    start text it is the scene of the attack whose text that is.
    """
    cell = run.job.cell
    plain = choose_start_attack(injection_task)
    suite = cell.benchmark.suite(run.job.case.suite)
    if run.written == plain.injections(suite, user_task, injection_task, cell.victim):
        return replace(scene, attack=plain.name)
    text = json.dumps(dict(run.written), sort_keys=True)
    return replace(scene, attack="", payload=hashlib.sha256(text.encode()).hexdigest()[:16])


def case_scene(job: Job) -> Scene:
    """The case as scripted models are told of it."""
    case = job.case
    seed = job.cell.settings.seed
    return Scene(case.suite, case.user_task_id, case.injection_task_id, case.attack, case.epoch, seed)


def _load_recorded_draws(
    run: CaseRun, scene: Scene, suite: Suite, user_task: UserTask
) -> Sequence[str | None]:
    """What the tools drew when the case was recorded, where a recorded run is replayed."""
    results = run.job.cell.stack.recorded_results(scene)
    calls = [(result.function, result.args) for result in results]

    def execute() -> list[str]:
        loaded = suite.load_and_inject_default_environment(drop_tool_places(run.written))
        again = repeat_calls(suite, user_task.init_environment(loaded), calls)
        return [error or str(tool_result_to_str(value)) for value, error in again]

    return find_recorded_draws(execute, [result.text for result in results]) if results else ()


def _mark_failed(run: CaseRun, kind: str, message: str) -> None:
    # Not the message, which may hold what a server said: it is in the record.
    _log.info("errored (%s): %s", kind, run.job.case.key)
    run.utility = run.security = False
    run.error_kind, run.error = kind, message
    run.messages = run.messages or run.tracer.last_main_messages


def _mark_broken(run: CaseRun, kind: str, error: BaseException | None) -> None:
    """Code raised what it should not have: whoever mends it needs its traceback."""
    _mark_failed(run, kind, f"{type(error).__name__}: {error} ({_error_location(error)})")
    run.traceback = format_traceback(error)


def format_traceback(error: BaseException | None) -> str:
    """Python's own traceback, the middle of a very long one (a runaway recursion) left out."""
    text = "".join(traceback.format_exception(error))
    half = _LONGEST_TRACEBACK // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n[...]\n{text[-half:]}"


def _error_location(error: BaseException | None) -> str:
    """File and line an exception came from."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    return f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else "unknown place"
