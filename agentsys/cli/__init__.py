"""The `agentsys` command: one module per subcommand, each imported only when it is used.

What lives here: reading the command line and printing. What is computed lives elsewhere, and
nothing imports this room. Text that we did not write is printed through `terminal`.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from agentsys import __version__
from agentsys.cli.errors import run_to_exit_status
from agentsys.cli.help.lazy import make_lazy_group
from agentsys.cli.terminal import filter_logs, replace_unencodable, ignore_closed_output
from agentsys.rooms import CommandSource, CommandSection, group_commands

_CORE_SECTIONS = (
    CommandSection(
        "Run",
        10,
        {
            "run": CommandSource(".run:run", "Run cases: models x defenses x attacks x benchmarks."),
            "list": CommandSource(".list:list_configs", "List what can be run, with one line on each."),
            "show": CommandSource(".show:app", "Show a config, a defense's prompts, an attack's text."),
            "fetch": CommandSource(".fetch:fetch", "Download public runs and data, checked."),
            "doctor": CommandSource(
                ".doctor.command:doctor", "Check the installation, keys and a sample case."
            ),
        },
    ),
    CommandSection(
        "Read what was run",
        20,
        {
            "results": CommandSource(".results:results", "Tabulate stored runs, ours or AgentDojo's."),
            "compare": CommandSource(".compare:compare", "Compare defenses, models, attacks or runs."),
            "report": CommandSource(".report:report", "Write one HTML file: numbers and trajectories."),
            "measures": CommandSource(".measures:measures", "Cost and untrusted text of stored runs."),
            "budget": CommandSource(".budget:budget", "Attack success by the queries a search may make."),
            "table": CommandSource(".table:table", "A table of the paper, ours beside the printed one."),
            "figure": CommandSource(".figure:figure", "A figure of the paper: PDF, PNG and numbers."),
        },
    ),
)
SECTIONS = group_commands(_CORE_SECTIONS)
"""Every command, in the order in which a user needs them, under the headings of `agentsys --help`."""
COMMANDS = {name: source for section in SECTIONS.values() for name, source in section.items()}

app = typer.Typer(
    cls=make_lazy_group(SECTIONS),
    help="A research harness for defenses of LLM agents against indirect prompt injection.",
    epilog="Begin with: agentsys run experiment=quickstart (no key, no network)",
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
