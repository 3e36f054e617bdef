"""Every command that `agentsys` has, as it is typed."""

from __future__ import annotations

from agentsys.cli import COMMANDS
from agentsys.cli.lazy_commands import LazyCommand


def all_commands() -> set[str]:
    """Every command that has a help, subcommands included."""
    found = set(COMMANDS)
    for name, source in COMMANDS.items():
        context = LazyCommand(name, source).make_context(name, ["--help-not-asked"], resilient_parsing=True)
        found |= {f"{name} {sub}" for sub in getattr(context.command, "commands", {})}
    return found
