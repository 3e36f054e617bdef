"""Lines to type, as the help of each command ends with them."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "agentsys run experiment=quickstart",
        "agentsys run defense=none,agentsys attack=none,important_instructions limit=5",
        "agentsys run model=gpt-4o-mini 'defense=glob(agentsys_*)' --dry-run",
    ),
    "results": (
        "agentsys results results/runs",
        "agentsys results results/runs --format csv --out results.csv",
    ),
    "table": (
        "agentsys table 2 results/runs",
        "agentsys table 7 results/runs --format latex --out table7.tex",
    ),
    "figure": (
        "agentsys figure 3 results/runs",
        "agentsys figure 4 results/runs --model gpt-4o-mini --out figures",
    ),
    "compare": (
        "agentsys compare results/runs --baseline none",
        "agentsys compare results/runs --format json",
    ),
    "measures": (
        "agentsys measures results/runs",
        "agentsys measures results/runs --format csv --out measures.csv",
    ),
    "budget": (
        "agentsys budget results/runs/searches",
        "agentsys budget results/runs/searches --figure figures/budget",
    ),
    "report": (
        "agentsys report results/runs",
        "agentsys report results/runs --out report.html --max-cases 500",
    ),
    "list": (
        "agentsys list defenses --long",
        "agentsys list models --format json",
    ),
    "show": (
        "agentsys show prompts agentsys",
        "agentsys show config defense=none,agentsys limit=3",
    ),
    "show config": (
        "agentsys show config defense=none,agentsys limit=3",
        "agentsys show config results results/runs --fixed",
    ),
    "show defense": (
        "agentsys show defense agentsys",
        "agentsys show defense mine --config-dir conf --plugin-path .",
    ),
    "show prompts": (
        "agentsys show prompts agentsys",
        "agentsys show prompts mine --config-dir conf --plugin-path .",
    ),
    "show attack": (
        "agentsys show attack direct --suite banking --user-task 0 --injection-task 0",
        "agentsys show attack dos --suite slack --user-task 1 --injection-task 1",
    ),
    "fetch": (
        "agentsys fetch agentdojo-runs gpt-4o-mini-2024-07-18",
        "agentsys fetch drift-runs --to data",
        "agentsys fetch asb",
    ),
    "doctor": (
        "agentsys doctor",
        "agentsys doctor --ping",
    ),
}
"""Command -> the lines."""
