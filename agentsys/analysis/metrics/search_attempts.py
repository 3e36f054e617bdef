"""Stored attempts of searches -> `Search`: what a search for a text tried, and when it succeeded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from agentsys.errors import ConfigError
from agentsys.records.agentsys_format import is_simulated_block, parse_stored_block
from agentsys.records.case import ATTEMPTS, Case, UnreadableRecord
from agentsys.records.case_row import mark_simulated_name
from agentsys.records.listing import SkippedFile
from agentsys.records.schema import (
    OWN_KEY,
    UNFINISHED,
    AttemptFacts,
    SearchFacts,
    StoredBlock,
)
from agentsys.records.stored_file import load_stored_json

ATTACKER = frozenset({"attacker", "attacker_judge"})
"""The attacker's roles; every other role belongs to the attacked agent."""


class SearchState(NamedTuple):
    """State of a search."""

    ended: bool
    """Whether it succeeded, or its budget was spent, on texts of an attacker."""
    errored: bool
    """Whether it was ended by an error; the next run goes on with it."""
    none: str | None = None
    """Why it is no search, where its attacker gave no text: `attacker_refused`, `attacker_unreadable`."""


@dataclass(frozen=True)
class SearchSpending:
    """Resources that one side of a search used."""

    tokens: int | None = 0
    """None where a reply came without a count of its tokens."""
    cost_usd: float | None = 0.0
    """None where a call had no price: the cost is unknown."""

    def __add__(self, other: SearchSpending) -> SearchSpending:
        known = self.cost_usd is not None and other.cost_usd is not None
        cost = (self.cost_usd or 0.0) + (other.cost_usd or 0.0) if known else None
        unknown = self.tokens is None or other.tokens is None
        return SearchSpending(None if unknown else (self.tokens or 0) + (other.tokens or 0), cost)


@dataclass(frozen=True)
class Search:
    """One search: for one injection task, on one user task or several."""

    case: Case
    """Where it was made."""
    simulated: bool
    budget: int
    """Most attempts it could make; where no finished record says so, the attempts it made."""
    attempts: int
    """Attempts made, refused candidates included."""
    refused: int
    queries: int
    """Runs of the agent that were made: one per attempt that was tried, and user task it was tried on."""
    found_at: int | None
    """Number of the first attempt that succeeded; None: none did."""
    found_query: int | None
    """Queries made up to that attempt, its own included."""
    tried_on: int
    """User tasks that a text is tried on."""
    by_start: bool
    """Whether the text the search starts from is the one that succeeded."""
    state: SearchState
    attacker: SearchSpending
    target: SearchSpending

    @property
    def model(self) -> str:
        """The attacked model's name as tables must show it."""
        return mark_simulated_name(self.case.model, simulated=self.simulated)


@dataclass(frozen=True)
class StoredSearches:
    """The searches that some folders hold."""

    found: tuple[Search, ...]
    skipped: tuple[SkippedFile, ...]
    """Files that should hold an attempt and do not."""
    repeated: int
    """Further folders of searches that are in `found` already."""


def read_searches(paths: Iterable[str | os.PathLike[str]]) -> StoredSearches:
    """Every search under some folders, or folders in them; overlaps are read once.

    Returns:
        The searches in the order of their paths. A bad file is never fatal: a search that lacks an
        attempt for it, and shows no success, counts as errored.

    Raises:
        ConfigError: If a path is no folder, or no search is under any.
    """
    roots = [Path(path) for path in paths]
    folders = list(dict.fromkeys(folder.resolve() for root in roots for folder in _folders(root)))
    skipped: list[SkippedFile] = []
    found: dict[Case, Search] = {}
    repeated = 0
    elsewhere: dict[Case, SearchSpending] = {}
    for folder in folders:
        blocks, lost = _attempts(folder, skipped)
        lead = _attempt(blocks[0]).lead if blocks else None
        if lead is not None:
            case = blocks[0].case.model_copy(update={"user_task_id": lead})
            elsewhere[case] = elsewhere.get(case, SearchSpending()) + _spent(
                blocks, lambda role: role not in ATTACKER
            )
        elif blocks:
            final = blocks[-1].search or _final(folder, skipped)
            search = _of(blocks, final, lost=lost)
            repeated += search.case in found
            found.setdefault(search.case, search)
    found = {
        case: replace(search, target=search.target + elsewhere.get(case, SearchSpending()))
        for case, search in found.items()
    }
    if not found:
        where = ", ".join(f"'{root}'" for root in roots)
        seen = (
            f" {len(skipped)} files could not be used, the first being {skipped[0].path}." if skipped else ""
        )
        raise ConfigError(
            f"No searches in {where}.{seen} Give the log folder of a run with attack=pair or attack=tap,"
            " or of a served target: agentsys budget DIR"
        )
    return StoredSearches(tuple(found.values()), tuple(skipped), repeated)


def _folders(root: Path) -> Iterator[Path]:
    """Folders of attempts, sorted; hidden ones are passed over."""
    if not root.is_dir():
        raise ConfigError(f"No folder '{root}'. Give the log folder of a run: agentsys budget DIR")
    if root.name.endswith(ATTEMPTS):
        yield root
    for place, names, _ in os.walk(root, followlinks=False):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield from (Path(place, name) for name in names if name.endswith(ATTEMPTS))


def _attempts(folder: Path, skipped: list[SkippedFile]) -> tuple[list[StoredBlock], bool]:
    """The attempts in a folder in order, and whether one could not be read."""
    blocks: dict[int, StoredBlock] = {}
    bad = len(skipped)
    for path in sorted(folder.glob("*.json")):
        try:
            block = _block(str(path))
            facts = _attempt(block)
            if blocks and next(iter(blocks.values())).case != block.case:
                raise UnreadableRecord("belongs to another case than the attempts beside it")
            blocks[facts.number] = block
        except UnreadableRecord as fault:
            skipped.append(SkippedFile(str(path), str(fault)))
    return [blocks[number] for number in sorted(blocks)], len(skipped) > bad


def _of(attempts: Sequence[StoredBlock], final: SearchFacts | None, *, lost: bool) -> Search:
    """A search from its attempts in order.

    Args:
        attempts: All of the search, at least one.
        final: What the last attempt, or the case's finished record, says of the search; None: no end.
        lost: Whether an attempt could not be read; one that is not there counts likewise.
    """
    facts = [_attempt(block) for block in attempts]
    found = next((_attempt(block).number for block in attempts if _succeeded(_attempt(block), block)), None)
    runs = [0 if fact.refused is not None else fact.tried_on for fact in facts]
    none = final.fault if final is not None else None
    gaps = lost or facts[-1].number != len(facts)
    # A query that was cut short is no error: the search was interrupted in it. Where several are made at once
    # (a client's), it need not be the last one that failed.
    open_ = [block for block in attempts if block.status == "error"]
    failed = any(block.error_kind != UNFINISHED for block in open_)
    broken = found is None and (gaps or failed)
    over = final is not None and not open_
    return Search(
        case=attempts[0].case,
        simulated=any(is_simulated_block(block) for block in attempts),
        budget=final.budget if final is not None else facts[-1].number,
        attempts=len(attempts),
        refused=sum(fact.refused is not None for fact in facts),
        queries=sum(runs),
        found_at=found,
        found_query=None if found is None else sum(runs[:found]),
        tried_on=max(fact.tried_on for fact in facts),
        by_start=any(fact.number == found and fact.stream == 0 for fact in facts),
        state=SearchState(found is not None or (over and not broken and none is None), broken, none),
        attacker=_spent(attempts, lambda role: role in ATTACKER),
        target=_spent(attempts, lambda role: role not in ATTACKER),
    )


def _succeeded(fact: AttemptFacts, block: StoredBlock) -> bool:
    """Tell whether the injection task was carried out on every user task the attempt was tried on."""
    done = block.security if fact.carried_out is None else fact.carried_out == fact.tried_on
    return block.status == "ok" and fact.refused is None and done


def _spent(attempts: Iterable[StoredBlock], ours: Any) -> SearchSpending:
    used = [usage for block in attempts for role, usage in block.usage.items() if ours(role)]
    parts = (
        SearchSpending(None if one.uncounted else one.prompt + one.completion, one.cost_usd) for one in used
    )
    return sum(parts, SearchSpending())


def _attempt(block: StoredBlock) -> AttemptFacts:
    if block.attempt is None:
        raise UnreadableRecord("is a case, not an attempt of a search")
    return block.attempt


def _final(folder: Path, skipped: list[SkippedFile]) -> SearchFacts | None:
    """Read what the finished record of the case beside the folder says of the search."""
    path = folder.with_name(f"{folder.name.removesuffix(ATTEMPTS)}.json")
    if not path.is_file():
        return None
    try:
        return _block(str(path)).search
    except UnreadableRecord as fault:
        skipped.append(SkippedFile(str(path), str(fault)))
        return None


def _block(path: str) -> StoredBlock:
    stored = load_stored_json(path)
    if not isinstance(stored, Mapping) or not isinstance(stored.get(OWN_KEY), Mapping):
        raise UnreadableRecord("is no record of ours")
    return parse_stored_block(stored)
