"""`agentsys list`: the names that can stand on the command line, with one line on each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentsys.catalog import GROUPS, description, known
from agentsys.cli.terminal import one_line
from agentsys.errors import ConfigError, unknown_name


def list_configs(
    kind: Annotated[str, typer.Argument(help="models, defenses, attacks, benchmarks or experiments.")],
    config_dir: Annotated[
        list[Path] | None, typer.Option(help="A folder with configs of your own; may be repeated.")
    ] = None,
    format: Annotated[Literal["table", "json"], typer.Option(help="How to print.")] = "table",
) -> None:
    """List what can be run, with one line on each."""
    if kind not in GROUPS:
        raise ConfigError(unknown_name("kind of config", kind, GROUPS))
    group, dirs = GROUPS[kind], config_dir or []
    rows = [(name, description(group, name, dirs)) for name in known(group, dirs)]
    if format == "json":
        print(json.dumps([{"name": name, "description": text} for name, text in rows], indent=2))
        return
    for line in aligned(rows):
        print(line)


def aligned(rows: list[tuple[str, str]]) -> list[str]:
    """Lines of two columns; what does not fit a terminal is left to wrap, so that it can be searched."""
    width = max((len(one_line(name)) for name, _ in rows), default=0)
    return [f"{one_line(name):<{width}}  {one_line(text)}".rstrip() for name, text in rows]
