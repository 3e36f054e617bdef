"""`ASB`: the benchmark, one suite per agent, in one of four modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from agentsys.benchmarks.asb.agent import AsbAgent, AttackTool
from agentsys.benchmarks.asb.driver import AsbMode
from agentsys.benchmarks.asb.measured import AsbCriterion
from agentsys.benchmarks.asb.source import load_asb_data
from agentsys.benchmarks.asb.suite import ASBSuite
from agentsys.benchmarks.options import choose_suites
from agentsys.declared_facts import ASB_FACTS
from agentsys.errors import ConfigError, require_known_name, find_enum_member
from agentsys.models.simulated.role import SimulatedRole

_SUBSETS: Mapping[str, Callable[[AttackTool], bool]] = {
    "all": lambda tool: True,
    "aggressive": lambda tool: tool.aggressive,
    "non_aggressive": lambda tool: not tool.aggressive,
}


class ASB:
    """Implements `agentsys.contracts.Benchmark`.

    The mode, and a criterion other than `execution`, are part of the benchmark's name: results of
    two modes never meet in one column.

    Args:
        mode: `faithful`, `clean_plan`, `hidden_tool` or `react` (see agentsys.benchmarks.asb.driver).
        data: `sample` (comes with the package), `fetched` (after `agentsys fetch asb`) or a folder.
        tasks: How many of each agent's tasks, from the first; `all` for all of them.
        attack_tools: `all`, `aggressive` or `non_aggressive`.
        criterion: What a record's scores state: `execution` or `text`. Both are always measured.
        suites: The agents to offer; None means all of the data set.
        user_name: The user's name as attacks address it.
        refusal_judge: Whether a model judges if the agent declined to help.
        simulated_planner: What the simulated model plans: `honest` or `chooses_attack_tool`.

    Raises:
        ConfigError: If an option or an agent is not known, or the data set cannot be read.
    """

    injection = "exact"
    """Injected texts are put in as they are, without a YAML file in between."""
    facts = ASB_FACTS

    def __init__(
        self,
        mode: str = "react",
        data: str = "sample",
        tasks: int | str = 1,
        attack_tools: str = "all",
        criterion: str = "execution",
        suites: Sequence[str] | None = None,
        user_name: str = "the user",
        refusal_judge: bool | None = None,
        simulated_planner: str = "honest",
    ) -> None:
        self.mode = find_enum_member("benchmark.mode", mode, AsbMode)
        self.criterion = find_enum_member("benchmark.criterion", criterion, AsbCriterion)
        text = "" if self.criterion is AsbCriterion.EXECUTION else f"+{self.criterion.value}"
        self.name = f"asb-{self.mode.value}{text}"
        self.user_name = user_name
        self.simulated_planner = simulated_planner
        self._tasks = _task_count(tasks)
        self._judged = _parse_refusal_judge(refusal_judge)
        loaded, self.version = load_asb_data(str(data))
        self._wanted = _SUBSETS[require_known_name("benchmark.attack_tools", attack_tools, _SUBSETS)]
        agents = {agent.name: agent for agent in loaded.agents}
        self._suites = {
            name: self._suite(agents[name]) for name in choose_suites("agent of benchmark.suites", suites, agents)
        }

    def _suite(self, agent: AsbAgent) -> ASBSuite:
        attacks = [place for place, tool in enumerate(agent.attack_tools) if self._wanted(tool)]
        return ASBSuite(
            agent,
            self.mode,
            tasks=self._tasks,
            attacks=attacks,
            criterion=self.criterion,
            judge_refusals=self._judged,
        )

    def suite_names(self) -> Sequence[str]:
        """The offered agents, in the data set's order."""
        return tuple(self._suites)

    def suite(self, name: str) -> ASBSuite:
        """One agent's suite, the same object on every call."""
        return self._suites[require_known_name(f"agent of {self.name} {self.version}", name, self._suites)]

    def simulated_roles(self) -> Mapping[str, SimulatedRole]:
        """Play the planner and the judge in the simulated model."""
        from agentsys.benchmarks.asb.simulated import asb_roles

        return asb_roles(self.simulated_planner)


def _task_count(tasks: int | str) -> int | None:
    """Number of tasks of each agent; None for all."""
    if tasks == "all":
        return None
    if isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
        raise ConfigError(f"benchmark.tasks={tasks}: give a number from 1 (ASB's own grid: 1), or all.")
    return tasks


def _parse_refusal_judge(refusal_judge: object) -> bool:
    """A slip of the pen must not cost a call per case."""
    if refusal_judge is not None and not isinstance(refusal_judge, bool):
        raise ConfigError(f"benchmark.refusal_judge={refusal_judge}: give true or false.")
    return bool(refusal_judge)
