"""`agentsys doctor`: is this installation ready, and for which models?"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentsys.cli.doctor.checks import CheckReport, CheckResult, run_checks
from agentsys.cli.output import ConfigDirOption, print_line
from agentsys.cli.terminal import escape_to_line


def doctor_command(
    logdir: Annotated[Path, typer.Option(help="Where records would be stored.")] = Path("results/runs"),
    config_dir: ConfigDirOption = None,
    ping: Annotated[
        bool, typer.Option("--ping", help="Ask each model that has its key one small question.")
    ] = False,
    format: Annotated[Literal["table", "json"], typer.Option(help="How to print.")] = "table",
) -> None:
    """Check versions, keys, extras and folders, and run one case. Exits with 1 if the case fails."""
    report = run_checks(logdir, config_dir or [], ping=ping)
    if format == "json":
        print(json.dumps(dataclasses.asdict(report), indent=2))
    else:
        for line in _report_lines(report):
            print_line(line, hang="      ")
    if not report.self_check.ok:
        raise typer.Exit(1)


def _report_lines(report: CheckReport) -> list[str]:
    versions = [
        CheckResult(name, version is not None, version or "not installed")
        for name, version in report.versions.items()
    ]
    return [
        *_section_lines("Versions", versions),
        *_section_lines("Models", report.models),
        *_section_lines("Extras", report.extras),
        *_section_lines("Folders", report.folders),
        *_section_lines("Self-check", [report.self_check]),
    ]


def _section_lines(title: str, findings: Sequence[CheckResult]) -> list[str]:
    width = max((len(escape_to_line(f.subject)) for f in findings), default=0)
    rows = [f"  {_MARKS[f.ok]} {escape_to_line(f.subject):<{width}}  {escape_to_line(f.detail)}" for f in findings]
    return [title, *rows]


_MARKS = {True: "+", False: "-", None: "?"}
