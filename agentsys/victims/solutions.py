"""`solutions`: what the solutions of the benchmark call that some runs were made on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.benchmarks.agentdyn.benchmark import AgentDyn
from agentsys.benchmarks.ground_truth.playbook import build_playbook
from agentsys.errors import ConfigError
from agentsys.models.simulated.playbook import Playbook
from agentsys.records.case_row import PROVEN_V1_2, UNRECORDED, CaseRow

_ASSUMED = {UNRECORDED: "v1", PROVEN_V1_2: "v1.2"}
"""What the runs of files without a version are taken to be."""


@dataclass(frozen=True)
class Ways:
    """What a benchmark's own solutions call."""

    tasks: Mapping[str, tuple[str, ...]]
    """`suite/user_task` -> tools, in order."""
    goals: Mapping[str, tuple[str, ...]]
    """`suite/injection_task` -> tools, in order."""
    wordings: Mapping[str, str]
    """`suite/injection_task` -> the goal as it is worded."""


def ways_of(playbook: Playbook) -> Ways:
    """The tools that a playbook's scripts call."""
    return Ways(
        {f"{t.suite}/{t.task_id}": tuple(call.function for call in t.calls) for t in playbook.tasks},
        {f"{g.suite}/{g.task_id}": tuple(call.function for call in g.calls) for g in playbook.goals},
        {f"{g.suite}/{g.task_id}": g.goal for g in playbook.goals},
    )


class Solutions(NamedTuple):
    """The ways, and of which version of the benchmark they are."""

    ways: Ways
    version: str


def solutions(rows: Iterable[CaseRow], version: str | None = None, checkout: str = "fetched") -> Solutions:
    """Load the benchmark of some runs and look at its solutions.

    Args:
        rows: The runs' cases; those of one benchmark.
        version: AgentDojo's version; None: what the records name, `v1` where they name none.
        checkout: AgentDyn's checkout, for runs of its suites.

    Raises:
        ConfigError: If the runs are of another benchmark or of several, or it cannot be loaded.
    """
    found = sorted({(row.benchmark.partition("+")[0], row.version) for row in rows})
    names = {name for name, _ in found}
    if names == {"agentdyn"}:
        benchmark: AgentDojo | AgentDyn = AgentDyn(checkout)
    elif names == {"agentdojo"}:
        stored = {_ASSUMED.get(given, given) for _, given in found}
        if version is None and len(stored) > 1:
            raise ConfigError(f"Runs of several versions ({', '.join(sorted(stored))}): say --version.")
        benchmark = AgentDojo(version or stored.pop())
    else:
        listed = ", ".join(sorted(names)) or "none"
        raise ConfigError(f"A victim is fitted to runs of AgentDojo or of AgentDyn; found: {listed}.")
    suites = [benchmark.suite(name) for name in benchmark.suite_names()]
    return Solutions(ways_of(build_playbook(suites)), benchmark.version)
