"""What a variant says of itself: as it is set, and every prompt it uses."""

from __future__ import annotations

import pytest
from scripted_for_defense import LABELS, ScriptedModel, Tools

from agentsys.defense.agentsys import AgentSys, MainAgent
from agentsys.defense.no_isolation import GuardedAgent
from agentsys.defense.privileges import PrivilegeBook
from agentsys.defense.settings import AgentSysSettings


def test_a_variant_describes_itself_as_it_is_set() -> None:
    isolated, flat = AgentSys().description(), AgentSys(isolation=False).description()
    assert isolated.startswith("The main agent reads the user's request and never a raw tool output.")
    assert flat.startswith("One agent works for the user and reads every tool output raw")
    assert AgentSys(gate="schema").description() != isolated


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"max_depth": 1}, "A worker has no tools."),
        ({"max_depth": 2}, "A worker may call tools itself, down to depth 2"),
        ({"validator": False}, "No validator judges the calls that a worker proposes."),
        ({"sanitizer": False}, "A denied call ends the subtask; nothing is cut out of outputs."),
    ],
)
def test_each_option_has_its_sentence(options: dict[str, object], sentence: str) -> None:
    assert sentence in AgentSys(**options).description()  # type: ignore[arg-type]
    assert sentence not in AgentSys().description()


def test_the_prompts_are_those_of_the_parts_that_are_on() -> None:
    every = AgentSys().prompts()
    assert every and all(isinstance(text, str) and text for text in every.values())
    assert len(AgentSys(validator=False, sanitizer=False).prompts()) < len(every)


def test_a_worker_is_told_of_tools_only_where_it_may_call_some() -> None:
    assert "worker_tools" in AgentSys(max_depth=2).prompts()
    assert "worker_tools" not in AgentSys(max_depth=1).prompts()


@pytest.mark.parametrize(
    ("options", "sorts"),
    [
        ({}, True),
        ({"validator": False, "sanitizer": False}, False),
        ({"validator": False, "sanitizer": False, "worker_tools": "on_request"}, True),
        ({"validator": False, "sanitizer": False, "worker_tools": "on_request", "max_depth": 1}, False),
        ({"validator": False, "sanitizer": False, "repeats": "kept"}, True),
    ],
)
def test_tools_are_sorted_only_where_it_matters_which_only_read(
    options: dict[str, object], sorts: bool
) -> None:
    assert AgentSys(**options).settings.sorts_tools is sorts  # type: ignore[arg-type]
    assert ("privileges" in AgentSys(**options).prompts()) is sorts  # type: ignore[arg-type]


@pytest.mark.parametrize("isolation", [True, False])
def test_an_agent_hands_on_what_the_pipeline_gave_it(isolation: bool) -> None:
    agent = MainAgent if isolation else GuardedAgent
    settings = AgentSysSettings.of({"isolation": isolation})
    for given, handed in (({"kept": 1}, {"kept": 1}), (None, {})):
        model = ScriptedModel({"main": ["ok"], "agent": ["ok"], "privileges": [LABELS]})
        element = agent(model, settings, PrivilegeBook())
        found = element.query("Pay", Tools().runtime(), extra_args=given)
        assert found[4] == handed
