"""`agentsys list`: the names that can stand on the command line, with one line on each."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from agentsys.analysis.tables.escaping import between_words
from agentsys.catalog import CONFIG_GROUPS, read_description, list_config_names
from agentsys.cli.output import ConfigDirOption, print_line, table_width
from agentsys.cli.show import describe_defense_named
from agentsys.cli.terminal import escape_to_line
from agentsys.errors import ConfigError, unknown_name


def list_command(
    kind: Annotated[
        str | None,
        typer.Argument(help=f"One of {', '.join(CONFIG_GROUPS)}. Default: how many there are of each."),
    ] = None,
    config_dir: ConfigDirOption = None,
    format: Annotated[
        Literal["table", "json", "markdown"], typer.Option(help="How to print; markdown: with --long.")
    ] = "table",
    long: Annotated[
        bool,
        typer.Option("--long", help="Defenses: also what each does, as a defense-aware attacker hears it."),
    ] = False,
) -> None:
    """List what can be run, with one line on each."""
    dirs = config_dir or []
    group = CONFIG_GROUPS.get(kind) if kind else None
    if kind and not group:
        raise ConfigError(unknown_name("kind of config", kind, CONFIG_GROUPS))
    if group:
        rows = [(name, read_description(group, name, dirs)) for name in list_config_names(group, dirs)]
    else:
        rows = [
            (each, f"{len(list_config_names(folder, dirs))}; a line on each: agentsys list {each}")
            for each, folder in CONFIG_GROUPS.items()
        ]
    if long and group != "defense":
        raise ConfigError("--long is for defenses, as in agentsys list defenses --long.")
    if format == "json":
        listed = [{"name": name, "description": text} for name, text in rows]
        more = [{"long": describe_defense_named(name, dirs, [])} if long else {} for name, _ in rows]
        print(json.dumps([one | other for one, other in zip(listed, more, strict=True)], indent=2))
        return
    if long and format == "markdown":
        print("\n\n".join(f"## {escape_to_line(name)}\n\n{describe_defense_named(name, dirs, [])}" for name, _ in rows))
        return
    if long:
        for name, text in rows:
            print_line(f"{escape_to_line(name)}: {escape_to_line(text)}", hang="  ")
            does = f"  {escape_to_line(describe_defense_named(name, dirs, []))}"
            print(between_words(does, min(table_width(), 100), "  ") + "\n")
        return
    for line in align_columns(rows):
        print_line(line, hang="    ")


def align_columns(rows: list[tuple[str, str]]) -> list[str]:
    """Lines of two columns."""
    width = max((len(escape_to_line(name)) for name, _ in rows), default=0)
    return [f"{escape_to_line(name):<{width}}  {escape_to_line(text)}".rstrip() for name, text in rows]
