"""Commands that only list or tabulate do not import the benchmark and the SDKs, which take seconds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from provider_sdks import provider_sdks

SEE_IMPORTS = """
import json, sys
from agentsys.cli import main
status = 0
try:
    main()
except SystemExit as stop:
    status = stop.code
print()
print(json.dumps({"status": status, "modules": sorted(sys.modules)}))
"""
BENCHMARK_AND_SDKS = {"agentdojo", "cohere", "langchain"} | provider_sdks()
NEEDED_FOR_TABLES = {"pandas", "numpy"}
NEEDED_TO_COMPOSE = {"hydra", "omegaconf"}


def imported_by(*arguments: str, cwd: Path) -> set[str]:
    """Modules in memory when `agentsys <arguments>` has ended well."""
    done = subprocess.run(
        [sys.executable, "-c", SEE_IMPORTS, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert not seen["status"], done.stdout + done.stderr
    return set(seen["modules"])


def test_the_sdks_are_found_in_the_providers_code() -> None:
    assert provider_sdks() >= {"openai", "anthropic", "google.genai", "litellm"}


KINDS = ("models", "defenses", "attacks", "benchmarks", "experiments")


@pytest.mark.parametrize("arguments", [("--help",), *(("list", kind) for kind in KINDS)], ids=" ".join)
def test_help_and_lists_import_nothing_heavy(arguments: tuple[str, ...], tmp_path: Path) -> None:
    heavy = BENCHMARK_AND_SDKS | NEEDED_FOR_TABLES | NEEDED_TO_COMPOSE
    assert imported_by(*arguments, cwd=tmp_path) & heavy == set()


STATISTICS = {"scipy.special", "scipy.optimize", "scipy.linalg", "pandas"}


@pytest.mark.parametrize("command", ["results", "compare", "plan-size"])
def test_help_of_commands_that_compute_does_not_import_what_they_compute_with(
    command: str, tmp_path: Path
) -> None:
    assert imported_by(command, "--help", cwd=tmp_path) & (STATISTICS | BENCHMARK_AND_SDKS) == set()


RUN = {
    "suite_name": "banking",
    "pipeline_name": "gpt-4o-mini-2024-07-18",
    "user_task_id": "user_task_0",
    "injection_task_id": None,
    "attack_type": None,
    "injections": {},
    "messages": [],
    "error": None,
    "utility": True,
    "security": True,
    "duration": 1.0,
    "benchmark_version": "v1.2.2",
}


def test_results_of_published_runs_need_neither_benchmark_nor_sdk_nor_hydra(tmp_path: Path) -> None:
    folder = tmp_path / str(RUN["pipeline_name"]) / "banking" / "user_task_0" / "none"
    folder.mkdir(parents=True)
    (folder / "none.json").write_text(json.dumps(RUN))
    modules = imported_by("results", str(tmp_path), "--format", "csv", cwd=tmp_path)
    assert modules & (BENCHMARK_AND_SDKS | NEEDED_TO_COMPOSE) == set()
