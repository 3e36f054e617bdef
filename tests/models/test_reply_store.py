"""One process at a time is alone with a key, however its lock's file comes and goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentsys.models.wrappers.reply_cache import ReplyStore

fcntl = pytest.importorskip("fcntl")
KEY = "ab" * 32


@pytest.mark.parametrize("anew", [True, False])
def test_a_lock_whose_file_was_removed_meanwhile_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """Or two would ask, and pay, for the same reply."""
    waits, locks = list[int](), fcntl.flock

    def lock(descriptor: int, how: int) -> None:
        (file,) = tmp_path.rglob("*.lock")
        if not waits:  # while we waited its holder removed it, and somebody else may have made another
            file.unlink()
            if anew:
                file.touch()
        waits.append(descriptor)
        locks(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", lock)
    # Somebody else may remove his own, too, just after it was seen.
    monkeypatch.setattr(Path, "exists", lambda _: True)
    with ReplyStore(tmp_path).lock_key(KEY):
        (file,) = tmp_path.rglob("*.lock")
        with file.open("rb") as other, pytest.raises(BlockingIOError):
            locks(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert len(waits) == 2 and not list(tmp_path.rglob("*.lock"))


def lowest_free() -> int:
    """The number that the next file gets."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return number


@pytest.mark.parametrize("fails", [False, True])
def test_no_file_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Or a run of many replies could open no more."""
    if fails:  # a file system without locks

        def lock(*_: int) -> None:
            raise OSError(37, "No locks available")

        monkeypatch.setattr(fcntl, "flock", lock)
    before = lowest_free()
    for _ in range(3):
        with ReplyStore(tmp_path).lock_key(KEY):
            pass
    assert lowest_free() == before


def test_a_reply_that_was_paid_for_is_on_the_disk_when_it_counts_as_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    ReplyStore(tmp_path).put(KEY, {"paid": True})
    assert len(flushed) == 2  # the file, and its name
