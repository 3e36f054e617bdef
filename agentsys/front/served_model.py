"""`served_model`: the simulated model as `agentsys serve` offers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from agentsys.attacks.attacker import JUDGE_ROLE, ATTACKER_ROLE
from agentsys.attacks.attacker.simulated import play_attacker
from agentsys.attacks.attacker.topic import play_attacker_judge
from agentsys.catalog import list_config_names
from agentsys.catalog import load_config as yaml_node
from agentsys.errors import ConfigError
from agentsys.models.chat import ChatModel, Scene
from agentsys.models.simulated.model import SimulatedModel
from agentsys.runs.compose import compose
from agentsys.runs.instantiate import instantiate
from agentsys.runs.references import load_defense_config
from agentsys.runs.scripted import build_benchmark_playbook, collect_simulated_roles


def build_served_model(*, version: str, options: Mapping[str, Any], overrides: Sequence[str] = ()) -> ChatModel:
    """The simulated model as `agentsys serve` offers it: all suites of a benchmark, all defenses' roles.

    Args:
        version: AgentDojo's benchmark version, where that is the benchmark.
        options: The simulated model's parameters, as in configs/model/simulated.yaml.
        overrides: The benchmark to know instead, as for a run, e.g. `benchmark=asb`.

    Raises:
        ConfigError: If an override is about something else, or not understood.
    """
    seed = int(options.get("seed", 0))
    chosen = {**yaml_node("benchmark", "agentdojo"), "version": version}
    benchmark = instantiate("benchmark", _resolve_benchmark(overrides) if overrides else chosen)
    defenses = [instantiate("defense", load_defense_config(name)) for name in list_config_names("defense")]
    parameters = {key: value for key, value in options.items() if key != "seed"}
    model = SimulatedModel(name="simulated", **parameters).with_playbook(
        # The benchmark last: a defense that plays the agent itself must not take it away from it.
        partial(build_benchmark_playbook, benchmark),
        {**collect_simulated_roles([*defenses, benchmark]), ATTACKER_ROLE: play_attacker, JUDGE_ROLE: play_attacker_judge},
    )
    model.warm_up()
    return model.for_scene(Scene("", "", None, "", seed=seed))


def _resolve_benchmark(overrides: Sequence[str]) -> Mapping[str, Any]:
    """The config of the benchmark that overrides choose."""
    for override in overrides:
        if not override.startswith(("benchmark=", "benchmark.")):
            raise ConfigError(f"{override}: only the benchmark can be chosen here, e.g. benchmark=asb.")
    found = compose(overrides)
    if len(found) > 1:
        raise ConfigError(f"{' '.join(overrides)}: one benchmark at a time; start a server for each.")
    return found[0].benchmark
