"""Plans that search, and what they leave on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small_runs import Canonical, records_in

from agentsys.records.case import ATTEMPTS
from agentsys.runs.run_session import Session, prepare_session

BANKING = ["model=simulated", "benchmark.suites=[banking]", "attack=pair"]
TWO_TASKS = [*BANKING, "user_tasks=[0,1]", "injection_tasks=[0,5]"]
PER_CASE = [*BANKING, "attack.mode=per_case", "user_tasks=[0,1]", "injection_tasks=[0]"]
ONE_HOME = "attack.search_on=1"


def cases_in(folder: Path) -> dict[str, Canonical]:
    return {path: record for path, record in records_in(folder).items() if ATTEMPTS not in path}


def attempts_in(folder: Path) -> dict[str, list[Canonical]]:
    """Search -> its attempts' records, in order."""
    found: dict[str, list[Canonical]] = {}
    for path, record in records_in(folder).items():
        if ATTEMPTS in path:
            found.setdefault(path.rpartition("/")[0], []).append(record)
    return found


def outcome(record: Canonical) -> tuple[Any, ...]:
    return record["utility"], record["security"], record["messages"], record["injections"]


def own_configs(tmp_path: Path, attack: str = "") -> list[Path]:
    """Configs of the counting attack and defense of `deadly_for_searches`."""
    for group, text in {
        "attack": "_target_: deadly_for_searches.CountedPair\nname: pair\nmode: per_case\nartefact: null\n"
        + attack,
        "defense": "_target_: deadly_for_searches.CountedDefense\n",
    }.items():
        (tmp_path / "conf" / group).mkdir(parents=True, exist_ok=True)
        (tmp_path / f"conf/{group}/counted.yaml").write_text(f"{text}folder: {tmp_path}\n")
    return [tmp_path / "conf"]


def counting(tmp_path: Path, *overrides: str, folder: str = "runs") -> Session:
    return prepare_session(
        [
            "model=simulated",
            "benchmark.suites=[banking]",
            "attack=counted",
            "defense=counted",
            "executor.workers=1",
            *overrides,
            f"logdir={tmp_path / folder}",
        ],
        config_dirs=own_configs(tmp_path),
    )
