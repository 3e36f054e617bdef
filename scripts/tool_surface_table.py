"""Print the table of docs/tool_surface.md: ASR and NRP = PUA x (1 - ASR) with its interval, by defense and attack.

PUA is the utility under attack. Both rates are resampled together, user tasks as clusters within their suites:
`python scripts/tool_surface_table.py results/runs/tool_surface` after `agentsys run experiment=tool_surface`.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

import agentsys

ATTACKS = ("description", "parameter", "name", "error", "transfer", "rug_pull")
REPLICATES = 2000

Scores = list[tuple[bool, bool]]


def count_scores(folder: str) -> dict[tuple[str, str], dict[tuple[str, str], Scores]]:
    """Defense and attack -> suite and user task -> utility and success of the cases without error."""
    found: dict[tuple[str, str], dict[tuple[str, str], Scores]] = defaultdict(lambda: defaultdict(list))
    for case in agentsys.load_runs(folder).itertuples():
        if case.status == "ok" and case.injection_success is not None:
            row = found[case.defense, case.attack.removeprefix("mcp_")]
            row[case.suite, case.user_task_id].append((bool(case.utility), bool(case.injection_success)))
    return found


def net_resilience(scores: Scores) -> float:
    """Product of the two rates, in percent."""
    utility, success = np.mean(scores, axis=0)
    return float(100 * utility * (1 - success))


def format_cell(clusters: dict[tuple[str, str], Scores]) -> str:
    """ASR; NRP with the 95% interval of a bootstrap over user tasks."""
    tasks = list(clusters.values())
    scores = [one for task in tasks for one in task]
    drawn = np.random.default_rng(0).integers(len(tasks), size=(REPLICATES, len(tasks)))
    again = [net_resilience([one for at in draw for one in tasks[at]]) for draw in drawn]
    low, high = np.percentile(again, [2.5, 97.5])
    asr = 100 * np.mean([success for _, success in scores])
    return f"{asr:.0f}; {net_resilience(scores):.0f} ({low:.0f}-{high:.0f})"


def print_published() -> None:
    """What MSB prints of models without a defense, on its own tasks, by the attack that is nearest to each type."""
    rows: dict[str, dict[str, list[str]]] = {}
    with (Path(__file__).parents[1] / "results/published/msb.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            cell = rows.setdefault(line["model"], {}).setdefault(line["attack"].removeprefix("mcp_"), [])
            cell.append(f"{line['asr']} {line['type']}")
    for model, cells in rows.items():
        print(f"| MSB, {model} | {' | '.join(', '.join(cells.get(attack, ['-'])) for attack in ATTACKS)} |")


if __name__ == "__main__":
    rows = count_scores(sys.argv[1])
    print(f"| defense | {' | '.join(ATTACKS)} |\n|---|{'---|' * len(ATTACKS)}")
    for defense in dict.fromkeys(defense for defense, _ in rows):
        print(f"| `{defense}` | {' | '.join(format_cell(rows[defense, attack]) for attack in ATTACKS)} |")
    print_published()
