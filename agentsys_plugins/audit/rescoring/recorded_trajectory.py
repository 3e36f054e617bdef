"""`Trajectory`: what one record says was done, and the tasks it was about.

A trajectory holds the calls that ran, those a check may see, and the answer. `Unusable` says why a record
cannot be scored again. Suites and tasks are those of one version of the benchmark, loaded once per process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from agentdojo.task_suite import load_suites
from agentdojo.types import MessageContentBlock

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.contracts import Benchmark, InjectionTask, Suite, UserTask
from agentsys.errors import ConfigError
from agentsys.extensions import FETCHED
from agentsys.records.case_row import SIMULATED_MARK, shorten_name
from agentsys.records.stored_file import Producer


class RecordFault(StrEnum):
    """Why a record is left out. Each kind is counted apart; none is folded into an agreement."""

    UNREADABLE = "unreadable"
    """Not JSON, or a part of it has the wrong type."""
    UNFINISHED = "unfinished"
    """No scores, or no last assistant message."""
    HOLLOW = "hollow"
    """Scores beside an empty list of messages: nothing to execute."""
    ERROR = "error"
    """The run ended in an error; what it stored as scores was not judged."""
    NOT_HERE = "not in this version"
    """A suite, task or injection vector that the version does not have."""
    OTHER_BENCHMARK = "other benchmark"
    """Scored by something else than AgentDojo's checks."""
    OTHER_FORM = "many cases in one file"
    """A dump, Inspect's log or ASB's results: `agentsys results` reads them, and nothing executes their calls."""
    CHECK_FAILED = "check failed"
    """The environment could not be loaded, or a check raised an exception."""
    REPEATED = "repeated"
    """Another file of the same case was counted already."""


class Unusable(Exception):
    """A record that is skipped."""

    def __init__(self, obstacle: RecordFault, reason: str) -> None:
        super().__init__(reason)
        self.obstacle = obstacle


@dataclass(frozen=True)
class RecordedCall:
    """One tool call."""

    function: str
    args: Mapping[str, Any]
    text: str | None = None
    """What the record says the tool returned (its error, where it failed); None where it does not say."""
    failed: bool = False
    """Whether that is an error."""


@dataclass(frozen=True)
class Trajectory:
    """One recorded case, ready to be done again."""

    source: str
    """Path of the file."""
    form: Producer
    benchmark: str
    """`agentdojo`, or our label with the options that change what models read."""
    version: str | None
    """The version it was scored with; None where the file names none."""
    pipeline: str
    suite: str
    user_task_id: str
    """An injection task's id where that was run as if a user had asked for it."""
    injection_task_id: str | None
    attack: str
    """`none` in benign cases."""
    injections: Mapping[str, str] | None
    """Injection vector -> text; None where the file does not record what was injected."""
    executed: tuple[RecordedCall, ...]
    """Every call that reached a tool, in order; with inner agents' calls where the file has them."""
    seen_by_checks: tuple[RecordedCall, ...]
    """The calls that checks which look at calls are given."""
    answer: tuple[MessageContentBlock, ...]
    """The last assistant message as it was judged: whole by AgentDojo and DRIFT, without thoughts by us."""
    prompt: str | None
    """The first user message."""
    tool_texts: tuple[str, ...]
    """Contents and errors of the tool messages, as the agent was shown them."""
    utility: bool
    security: bool | None
    """As recorded; None in benign cases, where the stored value means nothing."""
    error: str | None = None
    """What ended the run; its scores then mean nothing."""
    data_hash: str | None = None
    """Hash of the suite's data when the case was run; only our own records have it."""
    clock: datetime | None = None
    """Where the clock that its tools read began; None where that is not known, or was the machine's."""
    drawn: tuple[str, ...] = ()
    """Codes and numbers that its tools drew at random, in order; empty where the file does not say."""
    checkout: str = FETCHED
    """Folder of AgentDyn's checkout to score with, for records of its suites."""
    simulated: bool = False
    """Whether a simulated model was behind it: no LLM's result."""
    ran: tuple[RecordedCall, ...] | None = None
    """Of the scored run, the calls that ran, where a record without receipts shows it."""
    exposed_raw: bool | None = None
    """Whether a tool returned the payload, as `load_runs` says; None in benign cases and where unknown."""

    @property
    def shown_pipeline(self) -> str:
        """The pipeline's name as tables must show it: simulated ones and DRIFT's, which name none, marked."""
        defense = " (drift)" if self.form == "drift" else ""
        return f"{shorten_name(self.pipeline)}{defense}{SIMULATED_MARK if self.simulated else ''}"

    @property
    def is_benign(self) -> bool:
        """True if nothing was injected."""
        return self.injection_task_id is None

    @property
    def is_injection_task_alone(self) -> bool:
        """True if an injection task was run as if a user had asked for it."""
        return self.user_task_id.startswith("injection_task_")

    @property
    def name(self) -> str:
        """Suite, tasks and attack, e.g. `banking user_task_1 x injection_task_2 (direct)`."""
        if self.injection_task_id is None:
            return f"{self.suite} {self.user_task_id}"
        return f"{self.suite} {self.user_task_id} x {self.injection_task_id} ({self.attack})"


_AGENTDYN, _LAST_MESSAGE, _EXACT = "agentdyn", "last_message", "exact"
"""In a benchmark's label: its name, the rule of the answer, the way of injection."""


class RecordTasks(NamedTuple):
    """The tasks of one record."""

    user: UserTask | InjectionTask
    """An injection task where that was run alone."""
    injection: InjectionTask | None


@lru_cache(maxsize=16)
def load_agentdojo(version: str, label: str = "agentdojo") -> AgentDojo:
    """Load one version, once per process.

    Raises:
        ConfigError: If there is no such version, or the label is not one of AgentDojo's.
    """
    _, *options = label.split("+")
    # Whatever else stands in a label than the way of injection is a fix that changes runs.
    fixes = [option for option in options if option != _EXACT]
    benchmark = AgentDojo(version, injection=_EXACT if _EXACT in options else "folded", fixes=fixes)
    _check_label(label, benchmark.name)
    return benchmark


@lru_cache(maxsize=4)
def load_agentdyn(source: str, label: str) -> Benchmark:
    """Load AgentDyn from a checkout (`fetched`, or a folder), once per process.

    Raises:
        ConfigError: If there is no checkout, the label is not one of AgentDyn's, or the guest is not installed.
    """
    try:
        from agentsys_plugins.agentdyn.agentdyn_benchmark import AgentDyn
    except ModuleNotFoundError:
        raise ConfigError("runs on AgentDyn need the guest agentdyn, which is not installed.") from None
    _, *options = label.split("+")
    rule = {"answer": _LAST_MESSAGE} if _LAST_MESSAGE in options else {}
    benchmark = AgentDyn(source, injection=_EXACT if _EXACT in options else "folded", **rule)
    _check_label(label, benchmark.name)
    return benchmark


def _check_label(label: str, name: str) -> None:
    if name != label:
        kind = name.partition("+")[0]
        raise ConfigError(f"'{label}' is not a label of {kind}'s; the same options make '{name}'")


def is_agentdyn(label: str) -> bool:
    """True if a benchmark's label is one of AgentDyn's."""
    return label.partition("+")[0] == _AGENTDYN


def is_answer_last_assistant_message(label: str) -> bool:
    """True if the answer is the last assistant message, wherever that stands, under a benchmark's label."""
    return is_agentdyn(label) and _LAST_MESSAGE not in label.split("+")


def get_checkout_version(trajectory: Trajectory) -> str:
    """The version that a record of AgentDyn is scored under: that of the checkout.

    Raises:
        Unusable: If there is no checkout, or a record of ours was made with another one.
    """
    try:
        version = load_agentdyn(trajectory.checkout, trajectory.benchmark).version
    except ConfigError as error:
        raise Unusable(RecordFault.NOT_HERE, str(error).replace("benchmark.source", "--checkout")) from None
    if trajectory.form == "agentsys" and trajectory.version != version:
        reason = (
            f"made with agentdyn {trajectory.version}; this checkout is {version}: give --checkout FOLDER"
        )
        raise Unusable(RecordFault.NOT_HERE, reason)
    return version


def list_versions() -> list[str]:
    """Every version the installed package registers, oldest first."""
    return [name for name, suites in load_suites._SUITES.items() if suites]


def find_suite(trajectory: Trajectory, version: str) -> Suite:
    """The suite of a record in a version; of AgentDyn's in its checkout.

    Raises:
        Unusable: If the version has none of this name, or the record is of another benchmark.
        ConfigError: If there is no such version.
    """
    bench: Benchmark
    if is_agentdyn(trajectory.benchmark):
        version = get_checkout_version(trajectory)
        bench = load_agentdyn(trajectory.checkout, trajectory.benchmark)
    else:
        load_agentdojo(version)  # an unknown version is the user's slip, an unknown label the record's
        try:
            bench = load_agentdojo(version, trajectory.benchmark)
        except ConfigError:
            reason = f"benchmark {trajectory.benchmark[:80]} is not re-scored"
            raise Unusable(RecordFault.OTHER_BENCHMARK, reason) from None
    if trajectory.suite not in bench.suite_names():
        raise Unusable(RecordFault.NOT_HERE, f"{version} has no suite {trajectory.suite}")
    return bench.suite(trajectory.suite)


def find_tasks(trajectory: Trajectory, suite: Suite, version: str) -> RecordTasks:
    """The tasks of a record in a version's suite.

    Raises:
        Unusable: If the version lacks one of them.
    """
    injection_id = trajectory.injection_task_id
    table = suite.injection_tasks if trajectory.is_injection_task_alone else suite.user_tasks
    for known, wanted in ((table, trajectory.user_task_id), (suite.injection_tasks, injection_id)):
        if wanted is not None and wanted not in known:
            raise Unusable(RecordFault.NOT_HERE, f"{version} has no {wanted} in {suite.name}")
    injection = None if injection_id is None else suite.injection_tasks[injection_id]
    return RecordTasks(table[trajectory.user_task_id], injection)


def is_denial_in_label(attack: str) -> bool:
    """True if an attack's label names one of AgentDojo's denials of service, options aside."""
    from agentdojo.attacks.attack_registry import ATTACKS

    name = re.match(r"\w+", attack)
    return bool(name and name[0] in ATTACKS and ATTACKS[name[0]].is_dos_attack)
