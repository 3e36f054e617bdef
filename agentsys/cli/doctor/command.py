"""`agentsys doctor`: is this installation ready, and for which models?"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentsys.cli.doctor.checks import CheckReport, Finding, examine
from agentsys.cli.output import ConfigDirOption, say
from agentsys.cli.terminal import one_line


def doctor(
    logdir: Annotated[Path, typer.Option(help="Where records would be stored.")] = Path("results/runs"),
    config_dir: ConfigDirOption = None,
    ping: Annotated[
        bool, typer.Option("--ping", help="Ask each model that has its key one small question.")
    ] = False,
    format: Annotated[Literal["table", "json"], typer.Option(help="How to print.")] = "table",
) -> None:
    """Check versions, keys, extras and folders, and run one case. Exits with 1 if the case fails."""
    report = examine(logdir, config_dir or [], ping=ping)
    if format == "json":
        print(json.dumps(dataclasses.asdict(report), indent=2))
    else:
        for line in _lines(report):
            say(line, hang="      ")
    if not report.self_check.ok:
        raise typer.Exit(1)


def _lines(report: CheckReport) -> list[str]:
    versions = [
        Finding(name, version is not None, version or "not installed")
        for name, version in report.versions.items()
    ]
    return [
        *_section("Versions", versions),
        *_section("Models", report.models),
        *_section("Extras", report.extras),
        *_section("Folders", report.folders),
        *_section("Self-check", [report.self_check]),
    ]


def _section(title: str, findings: Sequence[Finding]) -> list[str]:
    width = max((len(one_line(f.subject)) for f in findings), default=0)
    rows = [f"  {_MARK[f.ok]} {one_line(f.subject):<{width}}  {one_line(f.detail)}" for f in findings]
    return [title, *rows]


_MARK = {True: "+", False: "-", None: "?"}
