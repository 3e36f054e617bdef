"""Hands scripted models what they need to know: ground truths from the benchmark, roles from the defenses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol, runtime_checkable

from agentsys.abilities import PlaysRoles
from agentsys.benchmarks.ground_truth.playbook import build_playbook
from agentsys.contracts import Benchmark
from agentsys.models.chat import ChatModel
from agentsys.models.simulated.playbook import Playbook
from agentsys.models.simulated.role import SimulatedRole


@runtime_checkable
class Scriptable(Protocol):
    """A model that plays from a script (the simulated one)."""

    def scripted(self, playbook: Callable[[], Playbook], roles: Mapping[str, SimulatedRole]) -> ChatModel:
        """A copy that can play these roles, and makes itself the script when it needs it."""
        ...


def make_scripter(benchmark: Benchmark, players: Iterable[object]) -> Callable[[ChatModel], ChatModel]:
    """Make what finishes each built provider: scripted ones get playbook and roles, others stay."""
    roles = collect_simulated_roles([benchmark, *players])

    def finish(model: ChatModel) -> ChatModel:
        if not isinstance(model, Scriptable):
            return model
        return model.scripted(partial(build_benchmark_playbook, benchmark), roles)

    return finish


def collect_simulated_roles(players: Iterable[object]) -> dict[str, SimulatedRole]:
    """The simulated roles that benchmarks, defenses and attacks bring along."""
    roles: dict[str, SimulatedRole] = {}
    for player in players:
        if isinstance(player, PlaysRoles):
            roles.update(player.simulated_roles())
    return roles


def build_benchmark_playbook(benchmark: Benchmark) -> Playbook:
    """The ground truths of every suite of a benchmark."""
    return build_playbook([benchmark.suite(name) for name in benchmark.suite_names()])
