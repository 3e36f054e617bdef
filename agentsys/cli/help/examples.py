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
    "view": (
        "agentsys view",
        "agentsys view results/runs",
    ),
    "fit": (
        "agentsys fit runs/gpt-4o-mini --name mini --validate",
        "agentsys fit runs/gpt-4o-mini --name mini --against runs/gpt-4o-mini-progent",
    ),
    "plan-size": (
        "agentsys plan-size --difference 5 --power 0.8",
        "agentsys plan-size model=gpt-4o-mini --difference 10 --victim gpt-4o-mini",
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
    "cache": (
        "agentsys cache info results/runs",
        "agentsys cache export results/runs replies.tar.gz",
        "agentsys cache import replies.tar.gz shared_cache",
    ),
    "cache info": (
        "agentsys cache info results/runs",
        "agentsys cache info shared_cache",
    ),
    "cache export": (
        "agentsys cache export results/runs replies.tar.gz",
        "agentsys cache export shared_cache replies.tar.gz",
    ),
    "cache import": (
        "agentsys cache import replies.tar.gz shared_cache",
        "agentsys cache import published.tar.gz shared_cache",
    ),
    "pack": ("agentsys pack results/runs", "agentsys pack results/runs/quickstart"),
    "unpack": ("agentsys unpack results/runs", "agentsys unpack results/runs/quickstart"),
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
