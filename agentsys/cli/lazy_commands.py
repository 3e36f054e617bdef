"""Commands that are imported when they are used, and the example lines that end their help.

`agentsys --help` need not wait for any of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from agentsys.errors import ConfigError, unknown_name
from agentsys.extensions import CommandSource

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


class LazyCommand(TyperCommand):
    """Stands for a command in the overview; becomes the real one when its arguments are parsed."""

    def __init__(self, name: str, source: CommandSource, section: str | None = None) -> None:
        super().__init__(name, help=source.summary, callback=None, rich_help_panel=section)
        self._source = source

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which click then runs."""
        command = _load_command(self._source, info_name)
        _add_examples(command, info_name or "", self._source.examples)
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
            raise ConfigError(unknown_name("command", cmd_name, stand_ins))

    return LazyGroup


def _add_examples(command: Any, name: str, lines: Sequence[str] = ()) -> None:
    """Let the help of a command, and those of its subcommands, end with lines to type."""
    if lines := lines or EXAMPLES.get(name, ()):
        # A blank line ends a line of the epilog; single ones are filled up.
        command.epilog = "\n\n".join(["Examples:", *lines])
    for subcommand, found in getattr(command, "commands", {}).items():
        _add_examples(found, f"{name} {subcommand}")


def _load_command(source: CommandSource, name: str | None) -> Any:
    module, _, attribute = source.target.partition(":")
    found = getattr(importlib.import_module(module, "agentsys.cli"), attribute)
    if isinstance(found, typer.Typer):
        return get_command(found)
    single = typer.Typer(add_completion=False)
    single.command(name, help=found.__doc__ or source.summary)(found)
    return get_command(single)
