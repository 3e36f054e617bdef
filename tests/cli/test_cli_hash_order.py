"""Hash order is fixed for commands that run tools, and only for those."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from agentsys.hash_order import fix_hash_order

ASK = """import sys; from agentsys.hash_order import fix_hash_order
fix_hash_order(sys.argv[1:]); print(hash("x"))"""


def hash_seen_by(*arguments: str, seed: str | None = None) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    environment |= {} if seed is None else {"PYTHONHASHSEED": seed}
    done = subprocess.run(
        [sys.executable, "-c", ASK, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_two_processes_that_run_cases_hash_alike() -> None:
    assert hash_seen_by("run", "limit=1") == hash_seen_by("run", "limit=1") == hash_seen_by("serve")


def test_a_seed_of_the_users_own_stays() -> None:
    assert hash_seen_by("run", seed="7") != hash_seen_by("run")


def test_other_commands_are_not_started_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("started again"))
    fix_hash_order(["results", "run"])
    fix_hash_order([])


def test_the_command_is_started_again_before_it_imports_what_it_runs_on() -> None:
    code = """import os, sys
sys.argv = ["agentsys", "run"]
os.execv = lambda *_: sys.exit(3 if "typer" in sys.modules or "tempfile" in sys.modules else 0)
from agentsys.__main__ import main
main()"""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONHASHSEED"}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
