"""The `agentsys` command: one module per subcommand, each imported only when it is used.

What lives here: reading the command line and printing. What is computed lives elsewhere, and
nothing imports this room. Text that we did not write is printed through `terminal`. `agentsys --help` need not
wait for any command, and what the shell offers after TAB is found without them.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from agentsys import __version__
from agentsys.base.config_catalog import CONFIG_GROUPS, list_config_names, list_setting_names
from agentsys.cli.terminal import filter_logs, ignore_closed_output, replace_unencodable, run_to_exit_status
from agentsys.errors import ConfigError, unknown_name
from agentsys.extensions import (
    CommandSection,
    CommandSource,
    explain_absent_guests,
    find_shipped_docs_dir,
    group_commands,
)

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
            "new": CommandSource(
                ".new_command:new_command",
                "Write a defense, attack, metric, guard or model of yours.",
                ("agentsys new defense my_filter", "agentsys new guard my_detector --to work"),
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
                    "agentsys results results/runs/searches --by budget",
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
                    "agentsys report results/runs --follow",
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

FORMER_COMMANDS = {
    "verify": "check BUNDLE",
    "doctor": "init --check",
    "guard": "guards scan FILE",
    "measures": "results DIR --by cost",
    "budget": "results DIR --by budget",
    "help": "--help",
}
"""Name of a command that went -> what to type."""


class LazyCommand(TyperCommand):
    """Stands for a command in the overview; becomes the real one when its arguments are parsed."""

    def __init__(self, name: str, source: CommandSource, section: str | None = None) -> None:
        super().__init__(name, help=source.summary, callback=None, rich_help_panel=section)
        self._source = source

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which click then runs."""
        command = _load_command(self._source, info_name)
        if self._source.examples:
            command.epilog = format_examples(*self._source.examples)
        return command.make_context(info_name, args, parent=parent, **extra)


def make_lazy_group(sections: Mapping[str, Mapping[str, CommandSource]]) -> type[TyperGroup]:
    """A typer group class whose commands are these, shown in this order under the sections' names."""
    stand_ins = {
        name: LazyCommand(name, source, section)
        for section, sources in sections.items()
        for name, source in sources.items()
    }

    class LazyGroup(TyperGroup):
        """Finds commands by name in `sections`."""

        def list_commands(self, ctx: Any) -> list[str]:
            """The names, in the order given."""
            return list(stand_ins)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """The command's stand-in.

            Raises:
                ConfigError: For a name that is none of ours.
            """
            if cmd_name in stand_ins:
                return stand_ins[cmd_name]
            if cmd_name.startswith("-"):  # an option in the wrong place: click explains
                return None
            if cmd_name in FORMER_COMMANDS:
                raise ConfigError(f"agentsys {cmd_name} is now: agentsys {FORMER_COMMANDS[cmd_name]}")
            if cmd_name in list_config_names("experiment"):
                raise ConfigError(f"'{cmd_name}' is an experiment: agentsys run experiment={cmd_name}")
            raise ConfigError(unknown_name("command", cmd_name, stand_ins) + explain_absent_guests())

    return LazyGroup


def format_examples(*lines: str) -> str:
    """The end of a command's help: lines to type."""
    # A blank line ends a line of the epilog; single ones are filled up.
    return "\n\n".join(["Examples:", *lines])


def _load_command(source: CommandSource, name: str | None) -> Any:
    module, _, attribute = source.target.partition(":")
    found = getattr(importlib.import_module(module, "agentsys.cli"), attribute)
    if isinstance(found, typer.Typer):
        return get_command(found)
    single = typer.Typer(add_completion=False)
    single.command(name, help=found.__doc__ or source.summary)(found)
    return get_command(single)


_NESTED = ("benchmark.version", "benchmark.suites", "executor.workers", "budget.usd")
"""Keys that are often set, below the top ones."""


def complete_names(group: str) -> Callable[[str], Iterable[str]]:
    """Make what offers the shipped names of a config group."""

    def list_offered(incomplete: str) -> Iterable[str]:
        return [name for name in list_config_names(group) if name.startswith(incomplete)]

    return list_offered


def complete_overrides(ctx: Any, incomplete: str) -> list[str]:
    """Offer `defense=`, then `defense=agentsys`; after a comma the next name of the list.

    Args:
        ctx: The context of the command, with the words before.
        incomplete: The word under the cursor. Bash breaks words at `=`: then it is what follows, `=` stands
            among the words before, and a cursor just behind it is on an empty word.
    """
    before = [word for value in ctx.params.values() if isinstance(value, list) for word in value]
    if not incomplete and before and (names := _group_names(str(before[-1]))):
        return names
    if len(before) > 1 and before[-1] == "=":
        return _complete_list(str(before[-2]), incomplete)
    key, given, value = incomplete.partition("=")
    if given:
        return [f"{key}={text}" for text in _complete_list(key, value)]
    return [f"{key}=" for key in (*list_setting_names(), *_NESTED) if key.startswith(incomplete)]


def _group_names(group: str) -> list[str]:
    return list_config_names(group) if group in CONFIG_GROUPS.values() else []


def _complete_list(group: str, value: str) -> list[str]:
    """Every way to end a list of names of which the last is not whole."""
    done, comma, last = value.rpartition(",")
    return [f"{done}{comma}{name}" for name in _group_names(group) if name.startswith(last)]


app = typer.Typer(
    cls=make_lazy_group(SECTIONS),
    help="A research harness for defenses of LLM agents against indirect prompt injection.",
    epilog=f"Begin with: agentsys demo (no key, no network)\n\nPages, named docs/...: {find_shipped_docs_dir()}",
    no_args_is_help=True,
    # Its tracebacks show local variables, and those may hold keys.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


_LOOK_FOR_GARBAGE_AFTER = 50_000
"""New objects after which Python looks for cycles among them."""


def main() -> None:
    """Run the command of `sys.argv`; exits with 2 after a user's slip, 130 after Ctrl-C."""
    # Modules make a million objects that stay: looking for garbage among them took a fifth of a command's
    # start, and once more that long at its end.
    gc.set_threshold(_LOOK_FOR_GARBAGE_AFTER)
    ignore_closed_output()
    replace_unencodable()
    filter_logs()
    status = run_to_exit_status(lambda: app(standalone_mode=False, prog_name="agentsys"))
    gc.freeze()
    sys.exit(status)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"agentsys {__version__}")
        raise typer.Exit


@app.callback()
def _take_global_options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version.")
    ] = False,
) -> None:
    pass
