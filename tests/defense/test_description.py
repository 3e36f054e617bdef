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
