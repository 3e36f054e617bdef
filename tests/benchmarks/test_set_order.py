"""Lists that AgentDojo's tools make of sets have one order, whatever Python's hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_runs import records_in

from agentsys.benchmarks.repeatable_tools import InsertionOrderedSet

# The task makes an event, whose participants are a set; agents and workers read them.
RUN = """
import sys, agentsys
done = agentsys.run([
    "model=simulated", "benchmark.suites=[workspace]", "user_tasks=[20]", "injection_tasks=[1]",
    "attack=none,important_instructions",
    "defense=none,agentsys,camel,drift,fides,firewall,isolategpt,melon,middleware,progent,tool_filter",
    "logdir=" + sys.argv[1],
])
assert done.finished == 22 and not done.errors, done
"""


@pytest.mark.slow
def test_records_are_the_same_under_any_hash_seed(tmp_path: Path) -> None:
    seeds = ("0", "1", "random")
    for seed in seeds:
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run(
            [sys.executable, "-c", RUN, str(tmp_path / seed)], env=environment, check=True, timeout=600
        )
    first, *others = (records_in(tmp_path / seed) for seed in seeds)
    assert len(first) == 22
    assert others == [first] * 2


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-5, 5)))
def test_members_come_in_the_order_in_which_they_were_first_seen(first: list[int], more: list[int]) -> None:
    found = InsertionOrderedSet(first)
    for one in more:
        found.add(one)
    assert list(found) == list(dict.fromkeys([*first, *more]))
    assert found == {*first, *more} and len(found) == len({*first, *more})
    for gone in first:
        found.discard(gone)
    assert list(found) == [one for one in dict.fromkeys(more) if one not in first]


def test_what_operations_make_of_it_is_a_set() -> None:
    assert isinstance(InsertionOrderedSet("ab"), set)
    assert InsertionOrderedSet("ab") | {"c"} == {"a", "b", "c"}
