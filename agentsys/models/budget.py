"""Budgets: what a run and a case may spend, what was spent, and the file that commands share it by."""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from agentsys.base.atomic_file import CAN_LOCK, Process, lock_file
from agentsys.base.ledger import Ledger
from agentsys.models.chat import Usage

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
    """Cost of some requests."""

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
        """True if the account's command still runs, or may: on another machine, its last entry is not too old.

        Args:
            now: Present time in seconds, by the clock of the disk as in `written`.
        """
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
        """Add up what all others have spent, ended and killed ones too, and what those alive have set aside."""
        others = [account for account in self.accounts if account.owner != self.owner]
        living = [account for account in others if account.aside.requests and account.is_alive(self.now)]
        reserved = sum((account.aside for account in living), Amount())
        return sum((account.spent for account in others), Amount()), reserved

    def write_account(self, account: Account) -> None:
        """Write this command's line.

        Raises:
            OSError: If the disk does not take it.
        """
        owners = [entry.owner for entry in self.accounts]
        line_number = owners.index(self.owner) if self.owner in owners else len(owners)
        line = replace(account, owner=self.owner, written=self.now).to_line()
        os.pwrite(self.file, line, line_number * _LINE_BYTES)

    def reset_if_abandoned(self) -> None:
        """Forget what was spent before, if nobody who spent it is at work any more."""
        if not any(account.owner == self.owner or account.is_alive(self.now) for account in self.accounts):
            os.ftruncate(self.file, 0)
            self.accounts.clear()


class BudgetFile:
    """One command's way to the file: a line for each command, changed by it alone, under one lock for all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._owner = f"{Process.here().mark}-{secrets.token_hex(4)}"

    @contextmanager
    def lock_file(self) -> Iterator[LockedBudget]:
        """Hold the file against all other commands inside the block.

        Raises:
            OSError: If it cannot be opened.
        """
        with lock_file(self.path) as file:
            os.utime(file)
            status = os.fstat(file)
            data = os.pread(file, status.st_size, 0)
            lines = [data[start : start + _LINE_BYTES] for start in range(0, len(data), _LINE_BYTES)]
            opened = LockedBudget(
                file, self._owner, [Account.parse_line(line) for line in lines], status.st_mtime
            )
            opened.reset_if_abandoned()
            yield opened


_log = logging.getLogger(__name__)
_POLL_S = 0.2
"""Between two looks whether requests of other commands have left room."""
_NOTHING = Amount()


class Budget(BaseModel):
    """A limit on what may be spent; None: as much as it takes. No part of any case's identity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    usd: float | None = Field(default=None, gt=0)
    """US dollars of one run."""
    tokens: int | None = Field(default=None, gt=0)
    """Prompt and completion tokens of one run, as far as requests were sent for them."""
    case_tokens: int | None = Field(default=None, gt=0)
    """Tokens of one case, replies from the cache included."""
    case_seconds: float | None = Field(default=None, gt=0)
    """Seconds of one case, from its first question to a model."""
    errors: float | None = Field(default=10, gt=0)
    """Cases of one model in a row that end by the same error of its server, after which the run stops; below 1:
    their share of its finished cases, from the tenth on; None: it goes on to its end."""
    ask_above_usd: float = Field(default=25.0, ge=0)
    """A plan estimated above this does not start without `usd` or `--yes`."""


class RunBudgetReached(BaseException):
    """The run may spend no more. A BaseException: no defense may take it for a failure of the model."""


@dataclass
class Meter:
    """Counts what a run has spent, with the other commands that share its budget. Used from many threads.

    Before a request is sent the most that it is likely to cost is set aside, so that requests that are under
    way at the same time, in whatever command, do not pass the budget together.
    """

    budget: Budget = field(default_factory=Budget)
    usd: float = 0.0
    tokens: int = 0
    retries: int = 0
    """Requests that were sent once more, after an error that passes or an empty answer."""
    waiting: int = 0
    """Threads that wait at this moment before they ask again."""
    longest_reply: int = 1024
    """Tokens of the longest reply so far; at the beginning a guess."""
    last_error: str = ""
    """What a model's last failed request came to, in one line."""
    assumed: Amount = field(default_factory=Amount)
    """Of what is counted, what was booked for replies that said nothing countable of their tokens."""
    _reserved: Amount = field(default_factory=Amount)
    _others_spent: Amount = field(default_factory=Amount)
    _others_reserved: Amount = field(default_factory=Amount)
    _file: BudgetFile | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @property
    def is_limited(self) -> bool:
        """True if the run has a budget at all."""
        return self.budget.usd is not None or self.budget.tokens is not None

    @contextmanager
    def share_budget(self, path: Path) -> Iterator[None]:
        """Share the budget inside the block with the commands that do so by the same file.

        Raises:
            OSError: If the file cannot be written.
        """
        if not self.is_limited or not CAN_LOCK:  # without locks each command has the budget for itself
            yield
            return
        self._file, left = BudgetFile(path), threading.Event()
        try:
            with self._hold_shared():
                pass
            threading.Thread(target=self._write_heartbeats, args=(left,), name="budget", daemon=True).start()
            yield
        finally:
            left.set()
            with self._changed, suppress(OSError), self._hold_shared(ended=True):
                pass
            self._file = None

    def reserve_amount(self, most: Amount) -> Amount:
        """Set aside what a request will cost at most, once there is room for it beside those under way.

        Where none is under way it goes out as long as anything is left: nobody knows what it will cost.

        Returns:
            What was set aside, for `add_usage`.

        Raises:
            RunBudgetReached: If the budget is used up, or it cannot be seen whether it is.
        """
        if not self.is_limited:
            return Amount()
        with self._changed:
            if self._try_reserve(most):
                return most
            with self.count_wait(retry=False):
                while not self._try_reserve(most):
                    self._changed.wait(_POLL_S)
        return most

    def add_usage(self, usage: Usage, cost_usd: float | None, aside: Amount = _NOTHING) -> None:
        """Count one request, for which so much had been set aside."""
        with self._changed:
            self.usd += cost_usd or 0.0
            self.tokens += usage.prompt + usage.completion
            self.longest_reply = max(self.longest_reply, usage.completion)
            if aside.requests:
                self._reserved -= aside
            if self._file is not None:
                self._refresh_others()
            self._changed.notify_all()

    def assume_usage(self, most: Amount, aside: Amount = _NOTHING) -> None:
        """Count a request whose reply has no countable usage as the most that it can have cost."""
        if not self.assumed.requests:
            _log.warning("A reply came without a count of tokens: the budget counts what it costs at most.")
        with self._changed:
            self.assumed += most
            self.usd += most.usd
        self.add_usage(Usage(prompt=round(most.tokens)), 0.0, aside)

    @contextmanager
    def count_wait(self, *, retry: bool) -> Iterator[None]:
        """Count a wait while it lasts; with `retry`, a request of its own is sent again behind it."""
        with self._changed:
            self.waiting += 1
            self.retries += retry
        try:
            yield
        finally:
            with self._changed:
                self.waiting -= 1

    def has_room(self, usd: float = 0.0, tokens: float = 0) -> bool:
        """True if so much more may be spent; without arguments, if anything may."""
        with self._changed:
            self._refresh_others()
            return self._fits(Amount(usd, tokens))

    @property
    def limit_message(self) -> str:
        """One sentence: the budget, and what was spent."""
        spent = self._total_spent
        limits = (
            [] if self.budget.usd is None else [f"budget.usd={self.budget.usd:g} (${spent.usd:.2f} spent)"]
        )
        if self.budget.tokens is not None:
            limits.append(f"budget.tokens={self.budget.tokens} ({spent.tokens:,.0f} used)")
        assumed = self.assumed
        note = (
            f" {assumed.requests:,} replies without a count of tokens are in it at the most they can have cost"
            f" (${assumed.usd:.2f}, {assumed.tokens:,.0f} tokens)."
        )
        return f"{' and '.join(limits)}: no further case fits.{note if assumed.requests else ''}"

    @property
    def _total_spent(self) -> Amount:
        return Amount(self.usd, self.tokens) + self._others_spent

    def _fits(self, more: Amount) -> bool:
        spent = self._total_spent
        limits = ((self.budget.usd, spent.usd, more.usd), (self.budget.tokens, spent.tokens, more.tokens))
        return all(limit is None or (now < limit and now + add <= limit) for limit, now, add in limits)

    def _try_reserve(self, most: Amount) -> bool:
        try:
            with self._hold_shared():
                if not self._fits(_NOTHING):
                    raise RunBudgetReached(self.limit_message)
                under_way = self._reserved + self._others_reserved
                if under_way.requests and not self._fits(under_way + most):
                    return False
                self._reserved += most
                return True
        except OSError as error:
            raise RunBudgetReached(f"What other commands spent cannot be seen: {error.strerror}.") from None

    @contextmanager
    def _hold_shared(self, *, ended: bool = False) -> Iterator[None]:
        """Hold the numbers inside the block, those of others read afresh; at its end write this command's."""
        if self._file is None:
            yield
            return
        with self._file.lock_file() as opened:
            self._others_spent, self._others_reserved = opened.sum_others
            yield
            opened.write_account(
                Account(ended=ended, spent=Amount(self.usd, self.tokens), aside=self._reserved)
            )

    def _refresh_others(self) -> None:
        try:
            with self._hold_shared():
                pass
        except OSError as error:  # what was paid for is counted here, and an answer must not be lost for it
            _log.warning("What was spent could not be told to other commands: %s", error.strerror)

    def _write_heartbeats(self, left: threading.Event) -> None:
        while not left.wait(BEAT_S):
            with self._changed, suppress(OSError), self._hold_shared():
                pass


@dataclass(frozen=True)
class UsageLog:
    """The books in which a run's requests are entered."""

    meter: Meter
    ledger: Ledger | None = None
