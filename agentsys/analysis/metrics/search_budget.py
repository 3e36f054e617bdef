"""Searches for an attack's text: attack success as a function of the attacker's budget, and what it cost.

Unit: one search (one injection task, on one user task or on several, under one model, defense, attack and
epoch), read from its stored attempts. At a budget of k queries it counts as a success if a text had succeeded
after k runs of the agent; at one of k attempts, if one of its first k candidates did, those that were not
tried included. Overall is the unweighted mean of the suites.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, NamedTuple

from agentsys.analysis.metrics.rates import PERCENT, CellRow, MeasuredCell, make_number
from agentsys.analysis.statistics.outcome_grid import Resampler, Side, Tally, tally_outcomes
from agentsys.analysis.statistics.rate_estimates import OVERALL, estimate_rate_levels
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError
from agentsys.records.agentsys_format import is_simulated_block, parse_stored_block
from agentsys.records.case import ATTEMPTS, Case, UnreadableRecord
from agentsys.records.case_row import mark_simulated_name
from agentsys.records.folder_index import SkippedFile
from agentsys.records.schema import OWN_KEY, UNFINISHED, AttemptFacts, SearchFacts, StoredBlock
from agentsys.records.stored_file import load_stored_json

_ATTACKER_ROLES = frozenset({"attacker", "attacker_judge"})
"""Every other role belongs to the attacked agent."""


class SearchSpending(NamedTuple):
    """Resources that one side of a search used."""

    tokens: float = 0.0
    """nan where a reply came without a count of its tokens."""
    cost_usd: float = 0.0
    """nan where a call had no price: the cost is unknown."""


def add_spending(parts: Iterable[SearchSpending]) -> SearchSpending:
    """Add up what several searches used; nan where one of them is unknown."""
    listed = list(parts)
    return SearchSpending(sum(part.tokens for part in listed), sum(part.cost_usd for part in listed))


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
    ended: bool
    """Whether it succeeded, or its budget was spent, on texts of an attacker."""
    errored: bool
    """Whether it was ended by an error; the next run goes on with it."""
    none: str | None
    """Why it is no search, where its attacker gave no text: `attacker_refused`, `attacker_unreadable`."""
    attacker: SearchSpending
    target: SearchSpending

    @property
    def is_open(self) -> bool:
        """True if it was interrupted."""
        return not self.ended and not self.errored and self.none is None

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
    folders = list(
        dict.fromkeys(folder.resolve() for root in roots for folder in _find_attempt_folders(root))
    )
    skipped: list[SkippedFile] = []
    searches: dict[Case, Search] = {}
    repeated = 0
    elsewhere: defaultdict[Case, list[SearchSpending]] = defaultdict(list)
    for folder in folders:
        attempts, lost = _read_attempts(folder, skipped)
        lead = attempts[0][0].lead if attempts else None
        if lead is not None:
            blocks = [block for _, block in attempts]
            case = blocks[0].case.model_copy(update={"user_task_id": lead})
            elsewhere[case].append(_sum_spending(blocks, of_attacker=False))
        elif attempts:
            final = attempts[-1][1].search or _read_end(folder, skipped)
            search = _make_search(attempts, final, lost=lost)
            repeated += search.case in searches
            searches.setdefault(search.case, search)
    searches = {
        case: replace(search, target=add_spending([search.target, *elsewhere[case]]))
        for case, search in searches.items()
    }
    if not searches:
        where = ", ".join(f"'{root}'" for root in roots)
        seen = (
            f" {len(skipped)} files could not be used, the first being {skipped[0].path}." if skipped else ""
        )
        raise ConfigError(
            f"No searches in {where}.{seen} Give the log folder of a run with attack=pair or attack=tap,"
            " or of a served target: agentsys results DIR --by budget"
        )
    return StoredSearches(tuple(searches.values()), tuple(skipped), repeated)


def _find_attempt_folders(root: Path) -> Iterator[Path]:
    if not root.is_dir():
        raise ConfigError(
            f"No folder '{root}'. Give the log folder of a run: agentsys results DIR --by budget"
        )
    if root.name.endswith(ATTEMPTS):
        yield root
    for folder, names, _ in os.walk(root, followlinks=False):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield from (Path(folder, name) for name in names if name.endswith(ATTEMPTS))


_Attempt = tuple[AttemptFacts, StoredBlock]


def _read_attempts(folder: Path, skipped: list[SkippedFile]) -> tuple[list[_Attempt], bool]:
    attempts: dict[int, _Attempt] = {}
    bad = len(skipped)
    for path in sorted(folder.glob("*.json")):
        try:
            block = _read_block(str(path))
            if block.attempt is None:
                raise UnreadableRecord("is a case, not an attempt of a search")
            if any(other.case != block.case for _, other in attempts.values()):
                raise UnreadableRecord("belongs to another case than the attempts beside it")
            attempts[block.attempt.number] = block.attempt, block
        except UnreadableRecord as fault:
            skipped.append(SkippedFile(str(path), str(fault)))
    return [attempts[number] for number in sorted(attempts)], len(skipped) > bad


def _make_search(attempts: Sequence[_Attempt], final: SearchFacts | None, *, lost: bool) -> Search:
    """A search from its attempts in order."""
    facts, blocks = [fact for fact, _ in attempts], [block for _, block in attempts]
    found_at = next((fact.number for fact, block in attempts if _has_succeeded(fact, block)), None)
    runs = [0 if fact.refused is not None else fact.tried_on for fact in facts]
    none = final.fault if final is not None else None
    gaps = lost or facts[-1].number != len(facts)
    # A query that was cut short is no error: the search was interrupted in it. Where several are made at once
    # (a client's), it need not be the last one that failed.
    open_ = [block for block in blocks if block.status == "error"]
    failed = any(block.error_kind != UNFINISHED for block in open_)
    broken = found_at is None and (gaps or failed)
    over = final is not None and not open_
    return Search(
        case=blocks[0].case,
        simulated=any(map(is_simulated_block, blocks)),
        budget=final.budget if final is not None else facts[-1].number,
        attempts=len(attempts),
        refused=sum(fact.refused is not None for fact in facts),
        queries=sum(runs),
        found_at=found_at,
        found_query=None if found_at is None else sum(runs[:found_at]),
        tried_on=max(fact.tried_on for fact in facts),
        by_start=any(fact.number == found_at and fact.stream == 0 for fact in facts),
        ended=found_at is not None or (over and not broken and none is None),
        errored=broken,
        none=none,
        attacker=_sum_spending(blocks, of_attacker=True),
        target=_sum_spending(blocks, of_attacker=False),
    )


def _has_succeeded(fact: AttemptFacts, block: StoredBlock) -> bool:
    """Tell whether the injection task was carried out on every user task the attempt was tried on."""
    done = block.security if fact.carried_out is None else fact.carried_out == fact.tried_on
    return block.status == "ok" and fact.refused is None and done


def _sum_spending(attempts: Iterable[StoredBlock], *, of_attacker: bool) -> SearchSpending:
    used = [
        usage
        for block in attempts
        for role, usage in block.usage.items()
        if (role in _ATTACKER_ROLES) is of_attacker
    ]
    return add_spending(
        SearchSpending(
            math.nan if one.uncounted else one.prompt + one.completion,
            math.nan if one.cost_usd is None else one.cost_usd,
        )
        for one in used
    )


def _read_end(folder: Path, skipped: list[SkippedFile]) -> SearchFacts | None:
    path = folder.with_name(f"{folder.name.removesuffix(ATTEMPTS)}.json")
    if not path.is_file():
        return None
    try:
        return _read_block(str(path)).search
    except UnreadableRecord as fault:
        skipped.append(SkippedFile(str(path), str(fault)))
        return None


def _read_block(path: str) -> StoredBlock:
    stored = load_stored_json(path)
    if not isinstance(stored, Mapping) or not isinstance(stored.get(OWN_KEY), Mapping):
        raise UnreadableRecord("is no record of ours")
    return parse_stored_block(stored)


ASR = "asr_at_budget"
"""The budget counts queries: runs of the agent."""
ASR_BY_ATTEMPTS = "asr_at_attempts"
"""The budget counts attempts: candidates, those that were not tried included."""
MEASURES = {
    "queries_to_success": "Mean queries to success",
    "queries": "Queries",
    "attempts": "Attempts",
    "refused": "Refused",
    "by_start_text": "Start text sufficed",
    "attacker_tokens": "Attacker tokens",
    "target_tokens": "Target tokens",
    "attacker_cost_usd": "Attacker USD",
    "target_cost_usd": "Target USD",
}
"""What is told of the searches of a cell besides `ASR`, a mean over successes and then sums -> heading."""
_UNITS = {
    **dict.fromkeys(("queries_to_success", "queries"), "queries"),
    **dict.fromkeys(("attempts", "refused"), "attempts"),
    "by_start_text": "searches",
    **dict.fromkeys(("attacker_tokens", "target_tokens"), "tokens"),
    **dict.fromkeys(("attacker_cost_usd", "target_cost_usd"), "usd"),
}


@dataclass(frozen=True, slots=True)
class BudgetRow(CellRow):
    """One number, of a suite or overall (for `MEASURES`: all searches together)."""

    measure: str
    """`asr_at_budget`, `asr_at_attempts`, or one of `MEASURES`."""
    budget: int | None
    """Queries or attempts allowed; None for `MEASURES`."""
    unit: str
    """Of value and interval: `percent` (`fraction` in data), `queries`, `attempts`, `tokens`, `usd`, ..."""
    value: Annotated[float, "unit"]
    """nan where undefined or unknown."""
    ci_low: Annotated[float, "unit"]
    """95% interval; nan where there is none."""
    ci_high: Annotated[float, "unit"]
    n: int
    """Searches it rests on."""
    errored: int
    """Searches ended by an error and not successful: in no rate."""
    unfinished: int
    """Searches that were interrupted before a success: in no rate."""
    no_text: int
    """Searches whose attacker gave no text: in no rate."""


def measure_budgets(searches: Iterable[Search]) -> list[BudgetRow]:
    """Measure each cell at 1, 2, 5, 10, 20, ... queries and attempts, up to what its searches may make.

    Returns:
        Rows sorted by cell (`none` before other defenses), then suite with `overall` last.
    """
    resampler = Resampler()
    cells = group_by(
        searches,
        lambda one: MeasuredCell(
            one.case.benchmark, one.case.version, one.model, one.case.defense, one.case.attack
        ),
    )
    # The usual budgets of all cells, so that every column has every cell that went so far.
    most = [max(search.budget * search.tried_on for search in of_cell) for of_cell in cells.values()]
    wanted = sorted({budget for one in most for budget in list_usual_budgets(one)})
    order = sorted(cells, key=lambda cell: (*cell[:3], cell.attack, cell.defense != "none", cell.defense))
    return [row for cell in order for row in _measure_budgets_of_cell(cell, cells[cell], wanted, resampler)]


def list_usual_budgets(most: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, ... below a search's own budget, and that."""
    steps = (factor * 10**power for power in range(len(str(most))) for factor in (1, 2, 5))
    return [*(step for step in steps if step < most), most]


def _measure_budgets_of_cell(
    cell: MeasuredCell, searches: Sequence[Search], budgets: Sequence[int], resampler: Resampler
) -> Iterator[BudgetRow]:
    by_suite = group_by(searches, lambda search: search.case.suite)
    suites = sorted(by_suite)
    parts = {**{suite: by_suite[suite] for suite in suites}, OVERALL: searches}
    attempts = max(search.budget for search in searches)
    # The two ways to count a budget, and how far each goes.
    axes = {ASR: max(search.budget * search.tried_on for search in searches), ASR_BY_ATTEMPTS: attempts}
    for measure, most in axes.items():
        for budget in (budget for budget in budgets if budget <= most):
            counted = {suite: _tally_searches(suite, by_suite[suite], measure, budget) for suite in suites}
            for suite, rate in estimate_rate_levels(counted, Side.INJECTED, resampler, pooled=False).items():
                number = make_number(rate)[:4]
                omitted = _count_omissions(parts[suite])
                yield BudgetRow(*cell, suite, measure, budget, PERCENT, *number, *omitted)
    for suite, part in parts.items():
        for measure, (value, n) in _sum_up(part).items():
            number = value, math.nan, math.nan, n
            yield BudgetRow(*cell, suite, measure, None, _UNITS[measure], *number, *_count_omissions(part))


def _count_omissions(part: Sequence[Search]) -> tuple[int, int, int]:
    none = sum(search.none is not None for search in part)
    return sum(search.errored for search in part), sum(search.is_open for search in part), none


def _tally_searches(suite: str, searches: Iterable[Search], measure: str, budget: int) -> Tally:
    """Count the searches that came to an end; errored, unfinished and textless ones are in no rate."""
    counted = []
    for search in searches:
        if search.ended:
            needed = search.found_query if measure == ASR else search.found_at
            success = needed is not None and needed <= budget
            # Injection tasks take the place of user tasks: there may be a single user task (mode transfer),
            # and rates over suites that have one each are taken for samples of suites, which these are not.
            counted.append((search.case.injection_task_id or "", search.case.user_task_id, False, success))
    return tally_outcomes(suite, counted)


def _sum_up(searches: Sequence[Search]) -> dict[str, tuple[float, int]]:
    """Sum up what searches used, and of how many; all that was paid for counts, errored searches included."""
    needed = [search.found_query for search in searches if search.found_query is not None]
    sides = [add_spending(getattr(one, side) for one in searches) for side in ("attacker", "target")]
    sums = (
        *(
            sum(getattr(one, count) for one in searches)
            for count in ("queries", "attempts", "refused", "by_start")
        ),
        *(side.tokens for side in sides),
        *(side.cost_usd for side in sides),
    )
    mean = math.fsum(needed) / len(needed) if needed else math.nan
    values = ((mean, len(needed)), *((float(value), len(searches)) for value in sums))
    return dict(zip(MEASURES, values, strict=True))


def write_textless_notes(all_searches: Iterable[Search]) -> Iterable[str]:
    """A line per cell in which an attacker gave no text to try."""
    cells = group_by(all_searches, lambda search: (search.model, search.case.defense, search.case.attack))
    for (model, defense, attack), searches in cells.items():
        none = [search for search in searches if search.none is not None]
        if none:
            why = Counter(str(search.none) for search in none)
            listed = ", ".join(f"{kind} {count}" for kind, count in sorted(why.items()))
            yield (
                f"{model} / {defense} / {attack}: {len(none)} of {len(searches)} searches tried no text, "
                f"because their attacker gave none ({listed}): they are in no rate, and nothing is known of "
                "this attack there."
            )
