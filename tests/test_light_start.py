"""Commands that only list, help or tabulate do not import what takes seconds: benchmark, SDKs, statistics."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from command_output import run_program
from provider_sdks import provider_sdks
from stored_cases import store_published

from agentsys.cli import COMMANDS
from agentsys.records.case_reader import WORTH_AN_INDEX

SEE_IMPORTS = """
import gc, json, sys
from agentsys.cli import main
looks = sum(one['collections'] for one in gc.get_stats())
for line in json.loads(sys.argv[1]):
    sys.argv[1:] = line
    status = 0
    try:
        main()
    except SystemExit as stop:
        status = stop.code
    print()
    print(json.dumps({"line": line, "status": status, "modules": sorted(sys.modules),
                      "kept": gc.get_freeze_count(),
                      "looks": sum(one["collections"] for one in gc.get_stats()) - looks}))
"""
SDKS = {"cohere"} | provider_sdks()
BENCHMARK_AND_SDKS = {"agentdojo", "langchain"} | SDKS
NEEDED_FOR_TABLES = {"pandas", "numpy"}
NEEDED_TO_COMPOSE = {"hydra", "omegaconf"}
STATISTICS = {"scipy.special", "scipy.optimize", "scipy.linalg", "pandas"}
KINDS = ("models", "defenses", "attacks", "benchmarks", "experiments")


def imported_by(*lines: tuple[str, ...], cwd: Path) -> list[set[str]]:
    """Modules in memory when each of these commands has ended well, one after the other in one process."""
    done = run_program([sys.executable, "-c", SEE_IMPORTS, json.dumps(lines)], cwd, 180)
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"line": ')]
    assert [one["line"] for one in seen] == [list(line) for line in lines]
    assert [one["line"] for one in seen if one["status"]] == [], done.stdout + done.stderr
    # Of the objects that imports make nearly all stay: they are hardly looked through, and not freed at the end.
    assert all(one["looks"] < one["kept"] / 10_000 for one in seen), seen
    return [set(one["modules"]) for one in seen]


def test_the_sdks_are_found_in_the_providers_code() -> None:
    assert provider_sdks() >= {"openai", "anthropic", "google.genai", "litellm"}


def test_help_and_lists_import_nothing_heavy(tmp_path: Path) -> None:
    """Those that may import least come first: what one has imported stays."""
    light: list[tuple[str, ...]] = [("--help",), ("--version",), *(("list", kind) for kind in KINDS)]
    compute: list[tuple[str, ...]] = [("results", "--help"), ("compare", "--help")]
    helps: list[tuple[str, ...]] = [(name, "--help") for name in COMMANDS]
    most = BENCHMARK_AND_SDKS | {"pandas", "matplotlib", "hydra"}
    heavy = {
        **dict.fromkeys(light, most | NEEDED_FOR_TABLES | NEEDED_TO_COMPOSE),
        **dict.fromkeys(compute, most | STATISTICS),
        **{line: most for line in helps if line not in compute},
    }
    seen = zip(heavy, imported_by(*heavy, cwd=tmp_path), strict=True)
    assert {line: found for line, modules in seen if (found := modules & heavy[line])} == {}


BENIGN = {"attack_type": None, "injection_task_id": None}


def test_results_need_neither_benchmark_nor_sdk_nor_hydra_and_what_the_index_knows_no_formats_of_files(
    tmp_path: Path,
) -> None:
    for number in range(WORTH_AN_INDEX):
        path = store_published(tmp_path / "runs", user_task_id=f"user_task_{number}", **BENIGN)
        os.utime(path, (1e9, 1e9))
    (tmp_path / "runs" / ".agentsys").mkdir()
    results = "results", str(tmp_path / "runs"), "--format", "csv"
    for used in (True, False):
        (modules,) = imported_by(results, cwd=tmp_path)
        assert (
            modules & (BENCHMARK_AND_SDKS | NEEDED_TO_COMPOSE | {"rich.console", "yaml", "pandas"}) == set()
        )
        for name in ("schema", "agentdojo_format"):
            assert (f"agentsys.records.{name}" in modules) is used


@pytest.mark.slow
def test_a_finished_run_needs_nothing_that_runs_cases(tmp_path: Path) -> None:
    run = ("run", "benchmark.suites=[banking]", "limit_per_suite=1", f"logdir={tmp_path / 'runs'}")
    runs_cases = {"agentsys.runs.run_case", "agentsys.runs.executors"}
    for modules, needed in zip(
        (*imported_by(run, cwd=tmp_path), *imported_by(run, cwd=tmp_path)), (runs_cases, set()), strict=True
    ):
        assert modules & runs_cases == needed


# What others in the process can see. AgentDojo and its SDKs are imported first: what they change is theirs.
LOOK = """
import ast, gc, json, logging, os, signal, sys, threading, warnings
import agentdojo.agent_pipeline, agentdojo.task_suite.load_suites, hydra, pandas, scipy.special

def state():
    return {
        "meta_path": [repr(one) for one in sys.meta_path],
        "path_hooks": [repr(one) for one in sys.path_hooks],
        "path": list(sys.path),
        "ast": {name: id(value) for name, value in vars(ast).items()},
        "scipy.special": {name: id(value) for name, value in vars(scipy.special).items()},
        "kinds": sorted(name for name, one in sys.modules.items() if type(one) is not type(sys)),
        "gc": [gc.get_threshold(), gc.get_freeze_count(), gc.isenabled(), len(gc.callbacks)],
        "environ": dict(os.environ),
        "warnings": [str(one) for one in warnings.filters],
        "logging": [[repr(one) for one in logging.root.handlers], logging.root.level, logging.root.disabled],
        "hooks": [repr(one) for one in (sys.excepthook, sys.unraisablehook, threading.excepthook)],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval()],
        "signals": {number.name: repr(signal.getsignal(number)) for number in signal.valid_signals()
                    if hasattr(number, "name")},
        "cwd": os.getcwd(),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "started": sys.orig_argv,
    }

def changes(before, after):
    return {name: [before[name], after[name]] for name in before if before[name] != after[name]}

start = state()
import agentsys
from agentsys import ComparedDefenses, Run, compare, load_runs, results, run, table
from agentsys_plugins.serve import guard
imported = state()
done = run(["model=simulated", "defense=none,agentsys", "attack=important_instructions",
            "benchmark.suites=[banking]", "user_tasks=[0]", "injection_tasks=[0]", "logdir=runs"])
assert (done.finished, done.errors) == (2, 0), done
results("runs")
print(json.dumps([changes(start, imported), changes(imported, state())]))
"""


@pytest.mark.slow
def test_neither_an_import_nor_a_run_changes_what_others_in_the_process_see(tmp_path: Path) -> None:
    done = run_program([sys.executable, "-c", LOOK], tmp_path, 180)
    assert done.returncode == 0, done.stderr
    on_import, on_run = json.loads(done.stdout.splitlines()[-1])
    assert on_import == {}
    assert on_run == {}
