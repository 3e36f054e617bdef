"""`fix_hash_order`: the same order of sets in every process that runs tools.

Imports next to nothing: a process that is started again has imported all it has for nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

_RUNS_TOOLS = {"audit", "run", "serve", "verify"}
_VARIABLE = "PYTHONHASHSEED"


def fix_hash_order(arguments: Sequence[str]) -> None:
    """Start this very process again with a fixed hash seed, if the command runs tools and has none.

    The same command gives the same run. What AgentDojo's tools make of sets has an order of its own
    (agentsys.benchmarks.set_order), from Python too. A plug-in that writes a set into a prompt would
    still ask another question in each process, and no reply kept from an earlier run would fit it.
    """
    if _VARIABLE in os.environ or not _RUNS_TOOLS.intersection(arguments[:1]):
        return
    os.environ[_VARIABLE] = "0"
    os.execv(sys.executable, sys.orig_argv)
