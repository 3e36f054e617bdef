"""The simulated model as a chat model: options, roles, usage, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import yaml
from simulated_playbook import FOUND, PLAYBOOK, asked

from agentsys.errors import ConfigError
from agentsys.extensions import shipped_config_dir
from agentsys.models.chat import ChatRequest, Scene, assistant, text_of
from agentsys.simulated.simulated_model import SimulatedModel
from agentsys.simulated.simulated_role import SimulatedKnowledge

CARD_FIELDS = {"_target_", "prose_name", "chat_family", "simulated", "context_tokens", "price", "cache"}


def test_the_shipped_yaml_builds_it_and_says_that_it_is_simulated() -> None:
    node = yaml.safe_load((shipped_config_dir() / "model" / "simulated.yaml").read_text(encoding="utf-8"))
    assert node["simulated"] is True
    assert node["_target_"] == f"{SimulatedModel.__module__}.{SimulatedModel.__qualname__}"
    built = SimulatedModel(**{key: value for key, value in node.items() if key not in CARD_FIELDS})
    assert built.options == SimulatedModel().options


@pytest.mark.parametrize(
    "options", [{"susceptibility": 1.5}, {"sanitizer_recall": -0.1}, {"susceptibility": "gpt"}]
)
def test_a_probability_out_of_range_is_one_clear_line(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(options))} .*0.0 to 1.0"):
        SimulatedModel(**options)


def test_without_a_playbook_it_says_so() -> None:
    with pytest.raises(ConfigError, match="no playbook"):
        SimulatedModel().for_scene(Scene("bank", "u", None, "none")).complete(asked())


def test_roles_are_played_by_their_handlers_and_unknown_ones_by_a_plain_agent() -> None:
    def worker(request: ChatRequest, knowledge: SimulatedKnowledge) -> Any:
        return assistant(f"seed {knowledge.options.seed}")

    model = (
        SimulatedModel()
        .with_playbook(lambda: PLAYBOOK, {"worker": worker})
        .for_scene(Scene("bank", "u", None, "none", seed=7))
    )
    assert text_of(model.complete(asked(role="worker")).message) == "seed 7"
    assert model.complete(asked(role="spoke")).message["tool_calls"]


def test_many_threads_get_the_replies_one_thread_gets() -> None:
    model = SimulatedModel(susceptibility=0.5).with_playbook(lambda: PLAYBOOK, {})
    requests = [asked(*FOUND[: 2 * (number % 2)]) for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        together = [reply.message for reply in pool.map(model.complete, requests)]
    assert together == [model.complete(request).message for request in requests]
