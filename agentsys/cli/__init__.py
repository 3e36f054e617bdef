"""The `agentsys` command: one module per subcommand, each imported only when it is used.

What lives here: reading the command line and printing. What is computed lives elsewhere, and
nothing imports this room. Text that we did not write is printed through `terminal`.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentsys import __version__
from agentsys.cli.lazy_commands import make_lazy_group
from agentsys.cli.terminal import filter_logs, ignore_closed_output, replace_unencodable, run_to_exit_status
from agentsys.extensions import CommandSection, CommandSource, group_commands, shipped_docs_dir

_CORE_SECTIONS = (
    CommandSection(
        "Run",
        10,
        {
            "demo": CommandSource(
                ".demo_command:demo_command",
                "See an attack work, and stopped. No key, a minute.",
                ("agentsys demo", "agentsys demo --no-browser"),
            ),
            "init": CommandSource(
                ".init_command:init_command",
                "Set up a model of yours; --check: the installation.",
                ("agentsys init --url http://127.0.0.1:8000/v1", "agentsys init --check --ping"),
            ),
            "run": CommandSource(
                ".run_command:run_cases_command",
                "Run cases: models x defenses x attacks x benchmarks.",
                (
                    "agentsys run experiment=quickstart",
                    "agentsys run defense=none,agentsys attack=none,direct limit_per_suite=5",
                    "agentsys run model=gpt-4o-mini 'defense=glob(agentsys_*)' --dry-run",
                ),
            ),
            "list": CommandSource(
                ".list_show_command:list_command",
                "List what can be run, with one line on each.",
                ("agentsys list defenses --long", "agentsys list models --format json"),
            ),
            "show": CommandSource(
                ".list_show_command:app",
                "Show a config, a defense's prompts, an attack's text.",
                (
                    "agentsys show prompts agentsys",
                    "agentsys show config defense=none,agentsys limit_per_suite=3",
                ),
            ),
            "fetch": CommandSource(
                ".fetch_command:fetch_command",
                "Download public runs and data, checked.",
                (
                    "agentsys fetch agentdojo-runs gpt-4o-mini-2024-07-18",
                    "agentsys fetch drift-runs --to data",
                    "agentsys fetch asb",
                ),
            ),
        },
    ),
    CommandSection(
        "Read what was run",
        20,
        {
            "results": CommandSource(
                ".results_command:results_command",
                "Tabulate stored runs, ours or AgentDojo's.",
                (
                    "agentsys results results/runs",
                    "agentsys results results/runs --format csv --out results.csv",
                    "agentsys results results/runs --by cost",
                    "agentsys results results/runs/searches --by budget --figure figures/budget",
                ),
            ),
            "check": CommandSource(
                ".check_command:check_command",
                "Can these runs be believed? One page, one verdict.",
                (
                    "agentsys check results/runs",
                    "agentsys check paper.zip",
                    "agentsys check https://example.org/paper.zip",
                ),
            ),
            "compare": CommandSource(
                ".compare_command:compare_command",
                "Compare defenses, models, attacks or runs.",
                (
                    "agentsys compare results/runs --baseline none",
                    "agentsys compare results/runs --format json",
                ),
            ),
            "report": CommandSource(
                ".report_command:report_command",
                "Write one HTML file: numbers and trajectories.",
                (
                    "agentsys report results/runs",
                    "agentsys report results/runs --out report.html --max-cases 500",
                ),
            ),
            "table": CommandSource(
                ".paper_command:table_command",
                "A table of the paper, ours beside the printed one.",
                (
                    "agentsys table 2 results/runs",
                    "agentsys table 7 results/runs --format latex --out table7.tex",
                ),
            ),
            "figure": CommandSource(
                ".paper_command:figure_command",
                "A figure of the paper: PDF, PNG and numbers.",
                (
                    "agentsys figure 3 results/runs",
                    "agentsys figure 4 results/runs --model gpt-4o-mini --out figures",
                ),
            ),
        },
    ),
)
SECTIONS = group_commands(_CORE_SECTIONS)
"""Every command, in the order in which a user needs them, under the headings of `agentsys --help`."""
COMMANDS = {name: source for section in SECTIONS.values() for name, source in section.items()}

app = typer.Typer(
    cls=make_lazy_group(SECTIONS),
    help="A research harness for defenses of LLM agents against indirect prompt injection.",
    epilog=f"Begin with: agentsys demo (no key, no network)\n\nPages, named docs/...: {shipped_docs_dir()}",
    no_args_is_help=True,
    # Its tracebacks show local variables, and those may hold keys.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command of `sys.argv`; exits with 2 after a user's slip, 130 after Ctrl-C."""
    ignore_closed_output()
    replace_unencodable()
    filter_logs()
    sys.exit(run_to_exit_status(lambda: app(standalone_mode=False, prog_name="agentsys")))


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"agentsys {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    pass
