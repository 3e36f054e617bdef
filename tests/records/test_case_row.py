"""A simulated model is marked once, and nothing else is taken for one."""

from __future__ import annotations

import pytest

from agentsys.records.case_row import is_simulated_name, mark_simulated_name, strip_simulated_mark

_FITTED = "simulated, fitted to gpt-4o-mini (629 cases, 55648d15)"
"""As earlier versions called an agent that drew from published runs; records of it may be stored."""


@pytest.mark.parametrize("name", ["simulated", "simulated+susceptibility=0.5", "simulated [runs/b]", _FITTED])
def test_a_name_that_says_so_itself_is_not_marked_again(name: str) -> None:
    assert mark_simulated_name(name, simulated=True) == name
    assert is_simulated_name(name)


@pytest.mark.parametrize("name", ["gpt-4o", "simulated", "simulated-anneal", "simulated+x=1"])
def test_a_real_model_is_never_shown_as_a_simulated_one(name: str) -> None:
    assert not is_simulated_name(mark_simulated_name(name, simulated=False))
    assert strip_simulated_mark(mark_simulated_name(name, simulated=False)) == name
