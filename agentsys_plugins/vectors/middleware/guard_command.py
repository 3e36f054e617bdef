"""`agentsys guards scan`: what the middleware makes of a text, with a reason for each finding."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentsys.cli.cli_output import print_line
from agentsys.cli.terminal import escape_controls, escape_to_line
from agentsys.errors import ConfigError

if TYPE_CHECKING:
    from agentsys_plugins.vectors.middleware import Screened

EXCERPT = 100
"""Most characters of a place that are shown."""


class GuardFormat(StrEnum):
    """Output formats of findings."""

    TABLE = "table"
    JSON = "json"
    TEXT = "text"
    """The text that may be read in place of the input, and nothing else."""


def guard(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A text; without one, standard input.")
    ] = None,
    layer: Annotated[
        list[str] | None, typer.Option(help="normalization or policy; may be repeated. Default: both.")
    ] = None,
    form: Annotated[GuardFormat, typer.Option("--format", help="table, json or text.")] = GuardFormat.TABLE,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 unless the text passes as it is.")
    ] = False,
) -> None:
    """Scan an untrusted text: its risk, what is done with it, and why."""
    from agentsys_plugins.vectors.middleware import Guard

    screened = Guard(layers=layer or ["normalization", "policy"]).text(_read_input(file))
    if form is GuardFormat.JSON:
        print(json.dumps(_build_screened_data(screened), ensure_ascii=True, indent=2))
    elif form is GuardFormat.TEXT:
        sys.stdout.write(escape_controls(screened.text))
    else:
        _print_screened(screened)
    if strict and screened.handling.value != "allow":
        raise typer.Exit(1)


def _read_input(file: Path | None) -> str:
    try:
        raw = sys.stdin.buffer.read() if file is None else file.read_bytes()
    except OSError as error:
        raise ConfigError(f"Cannot read {escape_to_line(str(file))}: {error.strerror}.") from None
    return raw.decode("utf-8", "replace")


def _build_screened_data(screened: Screened) -> dict[str, object]:
    return {
        "handling": screened.handling.value,
        "score": screened.score,
        "changed": screened.changed,
        "findings": [f.as_data() | {"why": _CATEGORY_PHRASES[f.category]} for f in screened.findings],
        "text": screened.text,
    }


def _print_screened(screened: Screened) -> None:
    print(f"{screened.handling.value}: risk {screened.score:.1f} of 10")
    for finding in sorted(screened.findings, key=lambda finding: -finding.weight):
        kind = f"{finding.layer}/{finding.kind}: {_CATEGORY_PHRASES[finding.category]}"
        print_line(f"  {finding.weight:.2f}  {kind}", hang="        ")
        print_line(f"        {escape_to_line(finding.excerpt[:EXCERPT])}", hang="        ")
    if not screened.findings:
        print("Nothing was found.")
    if screened.changed:
        print("What may be read in its place:")
        print(escape_controls(screened.text).rstrip("\n"))


_CATEGORY_PHRASES = {
    "override": "speaks to the model and wants its task replaced",
    "role": "gives the model another role, or takes its limits away",
    "extraction": "asks for the prompt, the conversation or secrets",
    "exfiltration": "sends data or money to an address in the text",
    "execution": "has code run, or an address inside the network opened",
    "propagation": "wants to be remembered, repeated or passed on",
    "obfuscation": "hides text from people or disguises it for filters",
}
