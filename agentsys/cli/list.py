"""`agentsys list`: the names that can stand on the command line, with one line on each."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from agentsys.analysis.tables.escaping import between_words
from agentsys.catalog import GROUPS, description, known
from agentsys.cli.output import ConfigDirOption, say, shown_width
from agentsys.cli.show import defense_text
from agentsys.cli.terminal import one_line
from agentsys.errors import ConfigError, unknown_name


def list_configs(
    kind: Annotated[
        str | None,
        typer.Argument(help=f"One of {', '.join(GROUPS)}. Default: how many there are of each."),
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
    group = GROUPS.get(kind) if kind else None
    if kind and not group:
        raise ConfigError(unknown_name("kind of config", kind, GROUPS))
    if group:
        rows = [(name, description(group, name, dirs)) for name in known(group, dirs)]
    else:
        rows = [
            (each, f"{len(known(folder, dirs))}; a line on each: agentsys list {each}")
            for each, folder in GROUPS.items()
        ]
    if long and group != "defense":
        raise ConfigError("--long is for defenses, as in agentsys list defenses --long.")
    if format == "json":
        listed = [{"name": name, "description": text} for name, text in rows]
        more = [{"long": defense_text(name, dirs, [])} if long else {} for name, _ in rows]
        print(json.dumps([one | other for one, other in zip(listed, more, strict=True)], indent=2))
        return
    if long and format == "markdown":
        print("\n\n".join(f"## {one_line(name)}\n\n{defense_text(name, dirs, [])}" for name, _ in rows))
        return
    if long:
        for name, text in rows:
            say(f"{one_line(name)}: {one_line(text)}", hang="  ")
            does = f"  {one_line(defense_text(name, dirs, []))}"
            print(between_words(does, min(shown_width(), 100), "  ") + "\n")
        return
    for line in aligned(rows):
        say(line, hang="    ")


def aligned(rows: list[tuple[str, str]]) -> list[str]:
    """Lines of two columns."""
    width = max((len(one_line(name)) for name, _ in rows), default=0)
    return [f"{one_line(name):<{width}}  {one_line(text)}".rstrip() for name, text in rows]
