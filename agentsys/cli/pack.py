"""`agentsys pack` and `agentsys unpack`: records from a file each into shards, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentsys.amounts import counted
from agentsys.cli.output import say
from agentsys.errors import ConfigError

if TYPE_CHECKING:
    from agentsys.records.shards.pack import MovedRecords

_Where = Annotated[Path, typer.Argument(metavar="FOLDER", help="A log folder, e.g. results/runs.")]


def pack(folder: _Where) -> None:
    """Put a log folder's records into a shard: one file in place of one per case. Every command reads it."""
    from agentsys.records.shards.pack import pack as packed

    done = _alone(folder, packed)
    rest = f" {counted(done.left, 'file')} left: published ones, or damaged." if done.left else ""
    say(f"{folder}: {counted(done.records, 'record')} packed.{rest}")


def unpack(folder: _Where) -> None:
    """Give every record its file again, in AgentDojo's layout, to the letter."""
    from agentsys.records.shards.pack import unpack as unpacked

    done = _alone(folder, unpacked)
    rest = f" {counted(done.left, 'record')} damaged: run their cases again." if done.left else ""
    say(f"{folder}: {counted(done.records, 'record')} unpacked.{rest}")


def _alone(folder: Path, do: Callable[[Path], MovedRecords]) -> MovedRecords:
    with _claimed(folder):
        try:
            return do(folder)
        except OSError as error:
            raise ConfigError(
                f"Cannot write {error.filename or folder}: {error.strerror}. No record is lost: make room, "
                "then give the same command again."
            ) from None


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    from agentsys.runs.claims import Claims
    from agentsys.runs.store import OWN_FOLDER, Store

    if not (folder / OWN_FOLDER).is_dir():
        raise ConfigError(f"'{folder}' is no log folder of agentsys run. Give one, e.g. results/runs.")
    store = Store(folder)
    with Claims(store) as claims:
        if others := claims.living_others():
            raise ConfigError(f"Process {others[0].pid} is at work in {folder}: let it finish first.")
        store.mend_shards()
        yield
