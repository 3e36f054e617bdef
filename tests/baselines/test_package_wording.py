"""Sentences of agentdojo's own defenses, read from the package where `wording: package` says so."""

from __future__ import annotations

import inspect

import pytest
from agentdojo.agent_pipeline import agent_pipeline, pi_detector

from agentsys.base.config_catalog import load_config
from agentsys.errors import ConfigError
from agentsys.runs.instantiate import instantiate
from baselines.defense_bases import package_tool_filter_question, package_withheld_notice
from baselines.detectors.defense import NOTICE
from baselines.spotlighting.defense import SpotlightingCompat
from baselines.tool_filter import QUESTION


def test_the_sentences_stand_in_the_installed_package_letter_by_letter() -> None:
    assert package_tool_filter_question() == agent_pipeline.TOOL_FILTER_PROMPT
    assert f'"{package_withheld_notice()}"' in inspect.getsource(pi_detector)
    pieces = inspect.getsource(agent_pipeline.AgentPipeline.from_config)
    said = SpotlightingCompat().prompts()["system_message_addition"]
    assert all(piece in pieces for piece in (said[:30], said[-20:]))
    assert not said.startswith(" ")


@pytest.mark.parametrize(
    ("preset", "text"),
    [("tool_filter", QUESTION), ("protectai", NOTICE), ("piguard", NOTICE)],
)
def test_a_compat_preset_speaks_in_the_packages_words_and_the_preset_itself_in_ours(
    preset: str, text: str
) -> None:
    own, compat = (
        instantiate("defense", load_config("defense", name)).prompts()
        for name in (preset, f"{preset}_compat")
    )
    package = package_tool_filter_question() if preset == "tool_filter" else package_withheld_notice()
    assert text in own.values() and package not in own.values()
    assert package in compat.values() and text not in compat.values()


def test_an_unknown_wording_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'theirs'.*own.*package"):
        instantiate("defense", {**load_config("defense", "tool_filter"), "wording": "theirs"})
