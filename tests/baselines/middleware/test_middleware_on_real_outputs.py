"""Clean outputs of real benchmarks pass byte for byte, and hardly any is taken for an attack."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from real_results import agentdojo_results, asb_outputs

from baselines.middleware import Guard, Screened

ROOT = Path(__file__).parents[3]
SHARED = ROOT.parent / "shared/data"
AGENTDYN = SHARED / "agentdyn/agentdyn-package.tar.gz"
ASB_DATA = SHARED / "asb"
COLLECT = """
import json, sys
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.task_suite import load_suites
found = set()
for version in sys.argv[1:]:
    for suite in load_suites.get_suites(version).values():
        for task in suite.user_tasks.values():
            env = task.init_environment(suite.load_and_inject_default_environment({}))
            runtime = FunctionsRuntime(suite.tools)
            for call in task.ground_truth(env):
                value, error = runtime.run_function(env, call.function, call.args)
                found.add(error or tool_result_to_str(value))
print(json.dumps(sorted(found)))
"""


def ground_truth_outputs(versions: Iterable[str], path: str | None = None) -> list[str]:
    """Every distinct text that ground-truth calls of user tasks bring, in a process of its own."""
    environment = os.environ | ({"PYTHONPATH": path} if path else {})
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *versions],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return [str(text) for text in json.loads(done.stdout.splitlines()[-1])]


def changed(texts: Iterable[str]) -> list[Screened]:
    guard = Guard()
    seen = [guard.text(text) for text in texts]
    assert all(one.text is one.original for one in seen if not one.changed)
    return [one for one in seen if one.changed]


def test_no_clean_output_of_agentdojo_is_changed_or_noticed() -> None:
    outputs = {found.error or found.text for found in agentdojo_results(["banking", "slack", "travel"])}
    assert len(outputs) > 80
    assert changed(outputs) == []
    guard = Guard()
    assert [text for text in outputs if guard.text(text).score >= 3] == []


@pytest.mark.parametrize("data", ["sample", pytest.param(str(ASB_DATA), id="shared")])
def test_no_output_of_asbs_tools_is_changed(data: str) -> None:
    if data != "sample" and not ASB_DATA.is_dir():
        pytest.skip("ASB's own data is not here")
    assert changed(asb_outputs(data)) == []


@pytest.mark.slow
def test_the_share_on_the_page_is_that_of_all_outputs(tmp_path: Path) -> None:
    if not AGENTDYN.is_file() or not ASB_DATA.is_dir():
        pytest.skip("AgentDyn's package or ASB's data is not here")
    with tarfile.open(AGENTDYN) as packed:
        packed.extractall(tmp_path, filter="data")
    # AgentDyn's package holds AgentDojo's four suites beside its own.
    outputs = set(ground_truth_outputs(["v1.2.2"], path=str(tmp_path / "src")))
    outputs |= set(asb_outputs(str(ASB_DATA)))
    found = changed(outputs)
    assert all("display:none" in one.original for one in found)
    assert len(found) < 0.01 * len(outputs)
    # How many there are depends on the clock, which some of AgentDojo's tools stamp their results with.
    page = (ROOT / "docs" / "baselines" / "middleware.md").read_text(encoding="utf-8")
    said = re.search(r"over (\d+) texts: all but (\d+) pass byte for byte \(([\d.]+)% are changed\)", page)
    assert said is not None
    assert int(said[1]) < len(outputs) < int(said[1]) + 20
    assert (said[2], said[3]) == (str(len(found)), f"{100 * len(found) / len(outputs):.1f}")
