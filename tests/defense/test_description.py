"""What a variant says of itself: as it is set, and every prompt it uses."""

from __future__ import annotations

import pytest

from agentsys.defense.agentsys import AgentSys


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
    assert sentence in AgentSys(**options).description()
    assert sentence not in AgentSys().description()


def test_the_prompts_are_those_of_the_parts_that_are_on() -> None:
    every = AgentSys().prompts()
    assert every and all(isinstance(text, str) and text for text in every.values())
    assert len(AgentSys(validator=False, sanitizer=False).prompts()) < len(every)
