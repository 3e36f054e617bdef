"""`Tasks`: what a record was about, as one version of the benchmark has it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from agentdojo.task_suite import load_suites

from agentsys.audit.rescoring.trajectories.trajectory import Trajectory
from agentsys.audit.rescoring.trajectories.unusable import RecordFault, Unusable
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.agentdyn.benchmark import AgentDyn
from agentsys.contracts import InjectionTask, Suite, UserTask
from agentsys.errors import ConfigError

_EXACT_LABEL = "exact"
"""In a benchmark's label: the way of injection. Whatever else stands in it is a fix that changes runs."""


_AGENTDYN, _LAST_MESSAGE = "agentdyn", "last_message"


class RecordTasks(NamedTuple):
    """The tasks of one record."""

    user: UserTask | InjectionTask
    """An injection task where that was run alone."""
    injection: InjectionTask | None


@lru_cache(maxsize=16)
def load_agentdojo(version: str, label: str = "agentdojo") -> AgentDojo:
    """One version, loaded once per process.

    Args:
        version: A version that the package registers.
        label: The benchmark's label, as a case has it: `agentdojo`, or with the options that change what
            models read.

    Raises:
        ConfigError: If there is no such version, or the label is not one of AgentDojo's.
    """
    _, *options = label.split("+")
    fixes = [option for option in options if option != _EXACT_LABEL]
    built = AgentDojo(version, injection=_EXACT_LABEL if _EXACT_LABEL in options else "folded", fixes=fixes)
    if built.name != label:
        raise ConfigError(f"'{label}' is not a label of agentdojo's; the same options make '{built.name}'")
    return built


@lru_cache(maxsize=4)
def load_agentdyn(source: str, label: str) -> AgentDyn:
    """AgentDyn from a checkout, loaded once per process.

    Args:
        source: `fetched`, or the checkout's folder.
        label: The benchmark's label, as a case has it.

    Raises:
        ConfigError: If there is no checkout, or the label is not one of AgentDyn's.
    """
    _, *options = label.split("+")
    rule = {"answer": _LAST_MESSAGE} if _LAST_MESSAGE in options else {}
    built = AgentDyn(source, injection=_EXACT_LABEL if _EXACT_LABEL in options else "folded", **rule)
    if built.name != label:
        raise ConfigError(f"'{label}' is not a label of agentdyn's; the same options make '{built.name}'")
    return built


def is_agentdyn(label: str) -> bool:
    """Whether a benchmark's label is one of AgentDyn's."""
    return label.partition("+")[0] == _AGENTDYN


def takes_last_assistant(label: str) -> bool:
    """Whether the answer is the last assistant message, wherever that stands, under a benchmark's label."""
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
    if is_agentdyn(trajectory.benchmark):
        get_checkout_version(trajectory)
        suite: Suite = load_agentdyn(trajectory.checkout, trajectory.benchmark).suite(trajectory.suite)
        return suite
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


def label_denies_service(attack: str) -> bool:
    """Whether an attack's label names one of AgentDojo's denials of service, options aside."""
    from agentdojo.attacks.attack_registry import ATTACKS

    name = re.match(r"\w+", attack)
    registered = ATTACKS.get(name[0]) if name else None
    return bool(registered is not None and registered.is_dos_attack)
