"""AgentDyn's own package, where its shared copy is at hand."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from agentsys.benchmarks.agentdyn.benchmark import AgentDyn
from agentsys.benchmarks.agentdyn.plans import PLANS
from agentsys.benchmarks.agentdyn.ways import _accepted

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT.parent / "shared" / "data" / "agentdyn" / "agentdyn-package.tar.gz"
UNSOLVED = {
    "shopping": ["user_task_4", "user_task_6", "user_task_19"],
    "github": ["user_task_5", "user_task_7", "user_task_8", "user_task_11"],
    "dailylife": ["user_task_10"],
}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not PACKAGE.exists():
        pytest.skip(f"AgentDyn's package is not here ({PACKAGE.name})")
    folder = tmp_path_factory.mktemp("agentdyn")
    with tarfile.open(PACKAGE) as packed:
        packed.extractall(folder, filter="data")
    return folder


def test_the_checkout_is_the_known_commit_with_its_suites(checkout: Path) -> None:
    bench = AgentDyn(str(checkout))
    assert bench.version == "5353cf7"
    sizes = {
        name: (len(suite.user_tasks), len(suite.injection_tasks), len(suite.tools))
        for name in bench.suite_names()
        for suite in [bench.suite(name)]
    }
    assert sizes == {"shopping": (20, 9, 39), "github": (20, 9, 34), "dailylife": (20, 10, 27)}


def test_a_way_is_known_to_every_task_but_those_whose_check_no_honest_agent_passes(checkout: Path) -> None:
    bench = AgentDyn(str(checkout))
    found = {}
    for name in bench.suite_names():
        suite = bench.suite(name)
        tasks = [*suite.user_tasks.values(), *suite.injection_tasks.values()]
        found[name] = [task.ID for task in tasks if vars(suite)["way"](task) is None]
        plans = [task for task in tasks if task.ID in PLANS[name]]
        assert len(plans) == len(PLANS[name])
        assert all(_accepted(suite, task, PLANS[name][task.ID]) is not None for task in plans)
    assert found == UNSOLVED


def test_the_page_names_each_task_without_a_way(checkout: Path) -> None:
    page = (ROOT / "docs" / "agentdyn.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    for suite, tasks in UNSOLVED.items():
        numbers = [task.removeprefix("user_task_") for task in tasks]
        told = ", ".join(row.removeprefix(f"{suite} ") for row in rows if row.startswith(f"{suite} "))
        assert told == ", ".join(numbers)
    assert "52 of the 60 user tasks" in page
