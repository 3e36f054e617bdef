"""`agentsys bundle`: a log folder as one file that a reviewer can verify."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import Annotated

import typer

from agentsys.amounts import counted
from agentsys.cli.output import say
from agentsys.cli.terminal import one_line


def bundle(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The log folder of runs (logdir).")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The bundle. Default: DIR.bundle.zip beside the folder."),
    ] = None,
) -> None:
    """Pack records, configs and the replies of models into one file; `agentsys verify` runs it again."""
    # Here, because the benchmark's package takes seconds that `--help` does without.
    from agentsys.bundles.packing import pack

    file = out or folder.absolute().with_name(f"{folder.absolute().name}.bundle.zip")
    packed = pack(folder, file)
    attempts = f", {counted(packed.attempts, 'attempt')} of searches" if packed.attempts else ""
    size = packed.file.stat().st_size / 1e6
    say(
        f"{packed.file}: {counted(packed.records, 'record')}{attempts}, "
        f"{counted(packed.replies, 'reply', 'replies')}, {size:.1f} MB."
    )
    if packed.unfinished:
        say(f"Without a record: {counted(packed.unfinished, 'planned case')}; the bundle says so too.")
    for note in packed.notes:
        say(one_line(f"{note}."))
    with packed.file.open("rb") as content:
        say(f"SHA-256, to be printed beside it: {hashlib.file_digest(content, 'sha256').hexdigest()}")
    say(f"Next: agentsys verify {shlex.quote(str(packed.file))}")
