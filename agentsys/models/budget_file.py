"""`BudgetFile`: what each of the commands on one log folder has spent of the budget that they share."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

from agentsys.atomic_file import Process

try:
    import fcntl
except ImportError:  # Windows: then each command has the budget for itself
    fcntl = None  # type: ignore[assignment]

CAN_SHARE = fcntl is not None
BUDGET_FILE_NAME = "budget"
"""In a log folder's `.agentsys`."""
BEAT_S = 10.0
"""How often a command writes its line, whether it sends anything or not."""
DEAD_AFTER_S = 60.0
"""A command on another machine that has not written its line for this long counts as dead."""
_LINE_BYTES = 256
"""Bytes of a line. It divides a page of memory, so a killed process leaves its line whole, old or new."""


@dataclass(frozen=True)
class Amount:
    """What some requests cost."""

    usd: float = 0.0
    tokens: float = 0.0
    requests: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.usd + other.usd, self.tokens + other.tokens, self.requests + other.requests)

    def __sub__(self, other: Amount) -> Amount:
        return self + Amount(-other.usd, -other.tokens, -other.requests)


@dataclass(frozen=True)
class Account:
    """The line of one command."""

    owner: str = ""
    written: float = 0.0
    """When, by the clock of the disk: those of two machines may differ."""
    ended: bool = False
    spent: Amount = field(default_factory=Amount)
    aside: Amount = field(default_factory=Amount)
    """What is set aside for its requests under way."""

    @classmethod
    def parse_line(cls, line: bytes) -> Account:
        """Read a line; what is none counts as that of a command that ended and spent nothing."""
        try:
            owner, written, ended, spent, aside = json.loads(line)
            return cls(str(owner), float(written), bool(ended), Amount(*spent), Amount(*aside))
        except (ValueError, TypeError):
            return cls(ended=True)

    def to_line(self) -> bytes:
        """Write the line."""
        return json.dumps(astuple(self), separators=(",", ":")).encode().ljust(_LINE_BYTES - 1) + b"\n"

    def is_alive(self, now: float) -> bool:
        """Say whether its command is at work; `now` by the clock of the disk."""
        process = Process.from_mark(self.owner.rpartition("-")[0])
        if self.ended or process is None:
            return False
        dead = process.is_dead
        return now - self.written <= DEAD_AFTER_S if dead is None else not dead


@dataclass
class LockedBudget:
    """The file while it is held against all other commands."""

    file: int
    owner: str
    accounts: list[Account]
    now: float

    @property
    def sum_others(self) -> tuple[Amount, Amount]:
        """What all others have spent, ended and killed ones too, and what those alive have set aside."""
        others = [one for one in self.accounts if one.owner != self.owner]
        living = [one for one in others if one.aside.requests and one.is_alive(self.now)]
        return _sum_amounts([one.spent for one in others]), _sum_amounts([one.aside for one in living])

    def write_account(self, account: Account) -> None:
        """Write this command's line.

        Raises:
            OSError: If the disk does not take it.
        """
        owners = [one.owner for one in self.accounts]
        place = owners.index(self.owner) if self.owner in owners else len(owners)
        line = replace(account, owner=self.owner, written=self.now).to_line()
        os.pwrite(self.file, line, place * _LINE_BYTES)

    def reset_if_abandoned(self) -> None:
        """Forget what was spent before, if nobody who spent it is at work any more."""
        if not any(one.owner == self.owner or one.is_alive(self.now) for one in self.accounts):
            os.ftruncate(self.file, 0)
            self.accounts.clear()


class BudgetFile:
    """One command's way to the file: a line for each command, changed by it alone, under one lock for all.

    Args:
        path: The file; made with the first line.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owner = f"{Process.here().mark}-{secrets.token_hex(4)}"

    @contextmanager
    def lock_file(self) -> Iterator[LockedBudget]:
        """Hold the file against all other commands inside the block.

        Raises:
            OSError: If it cannot be opened.
        """
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.utime(file)
            found = os.fstat(file)
            data = os.pread(file, found.st_size, 0)
            lines = [data[start : start + _LINE_BYTES] for start in range(0, len(data), _LINE_BYTES)]
            opened = LockedBudget(file, self._owner, [Account.parse_line(line) for line in lines], found.st_mtime)
            opened.reset_if_abandoned()
            yield opened
        finally:
            os.close(file)


def _sum_amounts(amounts: Sequence[Amount]) -> Amount:
    return sum(amounts, Amount())
