"""`agentsys bundle`: a log folder as one file."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import Annotated

import typer

from agentsys.base.grouping import format_count
from agentsys.cli.cli_output import print_line
from agentsys.cli.terminal import escape_to_line


def bundle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The log folder of runs (logdir).")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The bundle. Default: DIR.bundle.zip beside the folder."),
    ] = None,
) -> None:
    """Pack records, configs and the replies of models into one file; `agentsys check` runs it again."""
    # Here, because the benchmark's package takes seconds that `--help` does without.
    from agentsys_plugins.bundles.pack_bundle import pack_bundle

    file = out or folder.absolute().with_name(f"{folder.absolute().name}.bundle.zip")
    packed = pack_bundle(folder, file)
    attempts = f", {format_count(packed.attempts, 'attempt')} of searches" if packed.attempts else ""
    size = packed.file.stat().st_size / 1e6
    print_line(
        f"{packed.file}: {format_count(packed.records, 'record')}{attempts}, "
        f"{format_count(packed.replies, 'reply', 'replies')}, {size:.1f} MB."
    )
    if packed.unfinished:
        print_line(
            f"Without a record: {format_count(packed.unfinished, 'planned case')}; the bundle says so too."
        )
    for note in packed.notes:
        print_line(escape_to_line(f"{note}."))
    with packed.file.open("rb") as content:
        print_line(f"SHA-256, to be printed beside it: {hashlib.file_digest(content, 'sha256').hexdigest()}")
    print_line(f"Next: agentsys check {shlex.quote(str(packed.file))}")
