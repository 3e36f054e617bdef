"""Commands that are imported when they are used: `agentsys --help` need not wait for any of them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from agentsys.errors import ConfigError, unknown_name
from agentsys.extensions import CommandSource


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
            raise ConfigError(unknown_name("command", cmd_name, stand_ins))

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
