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

from agentsys.benchmarks.set_order import FirstSeen

ROOT = Path(__file__).parents[2]

# The task makes an event, whose participants are a set; agent and worker read them.
OPTIONS = [
    "benchmark.suites=[workspace]",
    "user_tasks=[20]",
    "model=simulated",
    "defense=none,agentsys",
    "attack=none",
]
SMALL_RUN = """
import sys
from agentsys.runs.session import prepare
sys.path.insert(0, "tests/support")
from small_runs import Silent
assert prepare(sys.argv[1:]).execute(Silent()).errors == 0
"""


def started(words: list[str], seed: str | None) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if seed is None else {"PYTHONHASHSEED": seed})
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_runs_from_python_under_any_hash_seed_give_the_records_of_the_command(tmp_path: Path) -> None:
    for seed in ("0", "1", "random"):
        started([sys.executable, "-c", SMALL_RUN, *OPTIONS, f"logdir={tmp_path / seed}"], seed)
    started([sys.executable, "-m", "agentsys", "run", *OPTIONS, f"logdir={tmp_path / 'command'}"], None)
    command = records_in(tmp_path / "command")
    assert len(command) == 2
    assert [records_in(tmp_path / seed) == command for seed in ("0", "1", "random")] == [True] * 3


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-5, 5)))
def test_members_come_in_the_order_in_which_they_were_first_seen(first: list[int], more: list[int]) -> None:
    found = FirstSeen(first)
    found.update(more)
    assert list(found) == list(dict.fromkeys([*first, *more]))
    assert found == {*first, *more} and len(found) == len({*first, *more})
    for gone in first:
        found.discard(gone)
    assert list(found) == [one for one in dict.fromkeys(more) if one not in first]


def test_it_is_a_set_to_those_who_ask() -> None:
    assert isinstance(FirstSeen("ab"), set) and isinstance({"a"}, FirstSeen)
    assert FirstSeen("ab") | {"c"} == {"a", "b", "c"}
    assert not isinstance(["a"], FirstSeen)
