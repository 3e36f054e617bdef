"""`agentsys cache`: the replies of models that were kept - what there is, as one file, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agentsys.amounts import counted
from agentsys.cli.output import say
from agentsys.cli.terminal import one_line
from agentsys.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Replies of models that were kept: count, export, import.")

_Where = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="A log folder, or the folder of a shared cache (cache.dir).")
]
_File = Annotated[Path, typer.Argument(metavar="FILE", help="An archive of replies (.tar.gz).")]


@app.command()
def info(folder: _Where) -> None:
    """Count the kept replies of each model. Files that are no reply are told apart."""
    from agentsys.models.wrappers.reply_archive import count_replies

    place = replies_in(folder)
    found = count_replies(place)
    say(f"{place}: {counted(found.models.total(), 'reply', 'replies')}, {found.size / 1e6:.1f} MB.")
    for model, replies in sorted(found.models.items()):
        say(one_line(f"  {model or 'a model without a name'}: {replies:,}"))
    if found.damaged:
        say(f"Damaged: {counted(found.damaged, 'file')}; what they held is asked again.")


@app.command("export")
def export_(folder: _Where, file: _File) -> None:
    """Write the kept replies into one file, to be published beside a paper."""
    from agentsys.models.wrappers.reply_archive import export_replies

    try:
        written = export_replies(replies_in(folder), file)
    except OSError as error:
        raise ConfigError(f"Cannot write {file}: {error.strerror}. Give another file.") from None
    say(f"{file}: {counted(written, 'reply', 'replies')}.")
    say(f"To use them: agentsys cache import {file} DIR, then run with cache.dir=DIR")


@app.command("import")
def import_(
    file: _File,
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="The folder of a cache (cache.dir); made if it is not there."),
    ],
) -> None:
    """Put the replies of a file into a folder. Replies that are there already stay."""
    from agentsys.models.wrappers.reply_archive import import_replies

    if not file.is_file():
        raise ConfigError(f"There is no file {file}.")
    taken = import_replies(file, folder)
    there = f", {taken.there:,} were there" if taken.there else ""
    refused = (
        f", {counted(taken.refused, 'entry is', 'entries are')} no reply and left out"
        if taken.refused
        else ""
    )
    say(f"{folder}: {counted(taken.new, 'reply', 'replies')} added{there}{refused}.")
    say(f"Ask no model for them: agentsys run ... cache.dir={folder} cache.mode=read_only")


def replies_in(folder: Path) -> Path:
    """The folder of replies: a log folder's own, or the folder itself.

    Raises:
        ConfigError: If there is no such folder.
    """
    from agentsys.runs.store import OWN_FOLDER, REPLIES

    if not folder.is_dir():
        raise ConfigError(f"There is no folder {folder}.")
    inside = folder / OWN_FOLDER / REPLIES
    return inside if (folder / OWN_FOLDER).is_dir() else folder
