"""Writes agentsys/records/data/ground_truth_lengths.json, for every version of the installed AgentDojo.

Run it again when AgentDojo is updated: .venv/bin/python scripts/make_ground_truth_lengths.py
"""

from __future__ import annotations

import json
from pathlib import Path

from agentdojo.task_suite.load_suites import _SUITES

from agentsys.runs.build_record import ground_truth_length

TARGET = Path(__file__).parents[1] / "agentsys" / "records" / "data" / "ground_truth_lengths.json"


def lengths() -> dict[str, dict[str, dict[str, int | None]]]:
    """Version -> suite -> user task -> calls in its ground truth."""
    return {
        version: {
            name: {task: ground_truth_length(suite, task) for task in suite.user_tasks}
            for name, suite in suites.items()
        }
        for version, suites in _SUITES.items()
    }


if __name__ == "__main__":
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(lengths(), indent=1) + "\n")
