"""Commands that are imported when they are used, and what the shell offers after TAB.

`agentsys --help` need not wait for any command.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from agentsys.base.config_catalog import CONFIG_GROUPS, list_config_names, list_setting_names
from agentsys.errors import ConfigError, unknown_name
from agentsys.extensions import CommandSource

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


_NESTED = ("benchmark.version", "benchmark.suites", "executor.workers", "budget.usd")
"""Keys that are often set, below the top ones."""


def complete_names(group: str) -> Callable[[str], Iterable[str]]:
    """Make what offers the shipped names of a config group."""

    def offered(incomplete: str) -> Iterable[str]:
        return [name for name in list_config_names(group) if name.startswith(incomplete)]

    return offered


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
