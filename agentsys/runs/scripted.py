"""Hands scripted models what they need to know: ground truths from the benchmark, roles from the defenses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from agentsys.benchmarks.playbook import build_playbook
from agentsys.config_dir import shipped_config_dir
from agentsys.contracts import Benchmark
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel
from agentsys.models.simulated.playbook import Playbook
from agentsys.models.simulated.role import SimulatedRole


@runtime_checkable
class Scriptable(Protocol):
    """A model that plays from a script (the simulated one)."""

    def scripted(self, playbook: Playbook, roles: Mapping[str, SimulatedRole]) -> ChatModel:
        """A copy that knows the script and can play these roles."""
        ...


def scripting(benchmark: Benchmark, players: Iterable[object]) -> Callable[[ChatModel], ChatModel]:
    """What to do to each provider once it is built: scripted ones get playbook and roles, others stay."""
    roles = roles_of([benchmark, *players])

    def finish(model: ChatModel) -> ChatModel:
        return model.scripted(playbook_of(benchmark), roles) if isinstance(model, Scriptable) else model

    return finish


def roles_of(players: Iterable[object]) -> dict[str, SimulatedRole]:
    """The simulated roles that benchmarks, defenses and attacks bring along."""
    roles: dict[str, SimulatedRole] = {}
    for player in players:
        bring = getattr(player, "simulated_roles", None)
        if bring is not None:
            roles.update(bring())
    return roles


def playbook_of(benchmark: Benchmark) -> Playbook:
    """The ground truths of every suite of a benchmark."""
    return build_playbook([benchmark.suite(name) for name in benchmark.suite_names()])


def served_model(*, version: str, options: Mapping[str, Any], overrides: Sequence[str] = ()) -> ChatModel:
    """The simulated model as `agentsys serve` offers it: all suites of a benchmark, all defenses' roles.

    Args:
        version: AgentDojo's benchmark version, where that is the benchmark.
        options: The simulated model's parameters, as in configs/model/simulated.yaml.
        overrides: The benchmark to know instead, as for a run, e.g. `benchmark=asb`.

    Raises:
        ConfigError: If an override is about something else, or not understood.
    """
    from agentsys.attacks.attacker import JUDGE, ROLE
    from agentsys.attacks.attacker.simulated import play_attacker
    from agentsys.attacks.attacker.topic import play_judge
    from agentsys.catalog import node as yaml_node
    from agentsys.models.chat import Scene
    from agentsys.models.simulated.model import SimulatedModel
    from agentsys.runs.cell import instantiate

    seed = int(options.get("seed", 0))
    chosen = {**yaml_node("benchmark", "agentdojo"), "version": version}
    benchmark = instantiate("benchmark", _overridden(overrides) if overrides else chosen)
    names = sorted(path.stem for path in (shipped_config_dir() / "defense").glob("*.yaml"))
    defenses = [instantiate("defense", yaml_node("defense", name)) for name in names]
    parameters = {key: value for key, value in options.items() if key != "seed"}
    model = SimulatedModel(name="simulated", **parameters).scripted(
        playbook_of(benchmark), {**roles_of([benchmark, *defenses]), ROLE: play_attacker, JUDGE: play_judge}
    )
    return model.for_scene(Scene("", "", None, "", seed=seed))


def _overridden(overrides: Sequence[str]) -> Mapping[str, Any]:
    """The config of the benchmark that overrides choose."""
    from agentsys.runs.compose import compose

    for override in overrides:
        if not override.startswith(("benchmark=", "benchmark.")):
            raise ConfigError(f"{override}: only the benchmark can be chosen here, e.g. benchmark=asb.")
    found = compose(overrides)
    if len(found) > 1:
        raise ConfigError(f"{' '.join(overrides)}: one benchmark at a time; start a server for each.")
    return found[0].benchmark
