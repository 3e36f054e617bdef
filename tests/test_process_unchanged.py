"""Importing agentsys and running a case leave the process as they found it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
from agentsys.serve_agent import guard
imported = state()
done = run(["model=simulated", "defense=none,agentsys", "attack=important_instructions",
            "benchmark.suites=[banking]", "user_tasks=[0]", "injection_tasks=[0]", "logdir=runs"])
assert (done.finished, done.errors) == (2, 0), done
results("runs")
print(json.dumps([changes(start, imported), changes(imported, state())]))
"""


@pytest.mark.slow
def test_neither_an_import_nor_a_run_changes_what_others_in_the_process_see(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    on_import, on_run = json.loads(done.stdout.splitlines()[-1])
    assert on_import == {}
    assert on_run == {}
