"""The paper's tables: rows and columns of each as data, and our numbers put beside the printed ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, NamedTuple

from agentsys.analysis.metrics import rates
from agentsys.analysis.metrics.cell_verdict import CellVerdict, shorten_verdict
from agentsys.analysis.metrics.rates_by_length import compute_asr_by_round
from agentsys.analysis.published import list_printed_in, shorten_model
from agentsys.analysis.statistics.outcome_grid import ErrorRule, Resampler
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow, is_simulated_name

BENCHMARK = "agentdojo"
"""The benchmark of Tables 1 to 7, with official checkers and data."""
ATTACK = "important_instructions"
"""The attack of every table; Table 4 adds some."""
PER_CASE = "pair_per_case"
"""Table 4's row of searches that are made case by case; the paper has none."""
RUN_AS = {"pair_aware-transfer-full": "pair", "pair_aware_per_case-full": PER_CASE}
"""Attack as runs label it -> as the printed tables name it, where the two differ."""
SUITES = ("banking", "slack", "travel", "workspace")
POOLED_OVER_SUITES = "all"
"""The suite of Table 1's numbers, as the printed data names it."""
ROUND_LENGTHS = (2, 3, 4)
"""The trajectory lengths of Table 1."""
_ROUNDS = range(1, max(ROUND_LENGTHS) + 1)
_CHOSEN_ROUND = frozenset(f"injection_round+round={number}" for number in _ROUNDS)
"""Labels under which the attack of the tables runs in a chosen round: its base is not in the label, so it
is the default one, `important_instructions`."""


class Spot(NamedTuple):
    """Place of a number, apart from model and defense."""

    attack: str
    suite: str
    metric: str


class Band(NamedTuple):
    """One row of a table per model and defense."""

    labels: tuple[str, ...]
    """What the row is called beside model and defense; as many as the table's `label_headers`."""
    spots: tuple[Spot | None, ...]
    """One per column; None where there can be no number."""


@dataclass(frozen=True)
class PaperTable:
    """The form of one table."""

    number: int
    title: str
    columns: tuple[str, ...]
    """Headings of the numbers."""
    bands: tuple[Band, ...]
    label_headers: tuple[str, ...] = ()
    further_defenses: frozenset[str] | None = frozenset()
    """Defenses that are shown though the paper's table lacks them; None: every one."""
    models_first: bool = False
    """Whether rows are grouped by model, else by defense."""
    mixes_versions: bool = False
    """Whether the paper's own rows rest on different numbers of Workspace cases."""

    @property
    def attacks(self) -> tuple[str, ...]:
        """Every attack (or `none`) its numbers need, in order, each once."""
        return tuple(dict.fromkeys(spot.attack for band in self.bands for spot in band.spots if spot))


def make_round_spot(length: int, round_: int) -> Spot:
    """Make the place of the ASR of one trajectory length and injection round."""
    return Spot(ATTACK, POOLED_OVER_SUITES, f"{rates.TARGETED_ASR}[length={length},round={round_}]")


def _make_suite_band(attack: str, metric: str, *labels: str) -> Band:
    return Band(labels, tuple(Spot(attack, suite, metric) for suite in (OVERALL, *SUITES)))


_ROUND_BANDS = tuple(
    Band((str(length),), tuple(make_round_spot(length, r) if r <= length else None for r in _ROUNDS))
    for length in ROUND_LENGTHS
)
_ADAPTIVE_BANDS = tuple(
    _make_suite_band(attack, metric, attack, title)
    for metric, title in ((rates.UTILITY_UNDER_ATTACK, "utility"), (rates.TARGETED_ASR, "ASR"))
    for attack in (ATTACK, "adaptive", "pair", PER_CASE)
)
_SUITE_COLUMNS = ("Overall", *(suite.capitalize() for suite in SUITES))
_OWN_PRESETS = frozenset(f"agentsys_{name}" for name in ("strict", "flat", "lean"))
"""Presets of AgentSys that the paper does not have, for the rows below its own; those with rules have a hole
(docs/agentsys.md)."""
_CONTROLS = frozenset({"tool_result_parsing", "tool_result_parsing_parse_only"})
"""Intent and extraction without isolation: what AgentSys's own parts are held against."""
_REBUILT = frozenset({"isolategpt", "progent"})
"""Baselines that the paper ran on one model only, for the rows below its own."""
_OVERALL_SPOTS = (
    Spot(NO_ATTACK, OVERALL, rates.BENIGN_UTILITY),
    Spot(ATTACK, OVERALL, rates.UTILITY_UNDER_ATTACK),
    Spot(ATTACK, OVERALL, rates.TARGETED_ASR),
)
_OVERALL: Any = {
    "columns": tuple(rates.METRIC_TITLES[spot.metric] for spot in _OVERALL_SPOTS),
    "bands": (Band((), _OVERALL_SPOTS),),
    "mixes_versions": True,
}


def _make_suite_table(number: int, title: str, attack: str, metric: str) -> PaperTable:
    return PaperTable(
        number,
        f"{title} by model and suite",
        _SUITE_COLUMNS,
        (_make_suite_band(attack, metric),),
        further_defenses=_REBUILT,
        models_first=True,
        mixes_versions=True,
    )


_LISTED = (
    PaperTable(
        1,
        "Targeted ASR by trajectory length and injection round, no defense",
        tuple(f"Round {number}" for number in _ROUNDS),
        _ROUND_BANDS,
        label_headers=("Length",),
    ),
    PaperTable(2, "AgentSys and other defenses", **_OVERALL, further_defenses=None),
    PaperTable(3, "Ablations of AgentSys", **_OVERALL, further_defenses=_OWN_PRESETS | _CONTROLS),
    PaperTable(
        4,
        "AgentSys under adaptive attacks",
        _SUITE_COLUMNS,
        _ADAPTIVE_BANDS,
        label_headers=("Attack", "Metric"),
        further_defenses=frozenset({"agentsys_strict", "none"}),
    ),
    _make_suite_table(5, "Benign utility", NO_ATTACK, rates.BENIGN_UTILITY),
    _make_suite_table(6, "Utility under attack", ATTACK, rates.UTILITY_UNDER_ATTACK),
    _make_suite_table(7, "Targeted ASR", ATTACK, rates.TARGETED_ASR),
)
TABLES = {table.number: table for table in _LISTED}
"""Number -> table."""


@dataclass(frozen=True, eq=False)  # a key by identity: its cases hold dicts, which no hash takes
class RunLine:
    """One model and defense; of one benchmark version unless no suite and attack has two."""

    model: str
    """As the runs name it; marked if simulated."""
    defense: str
    versions: tuple[str, ...]
    """More than one where suites or attacks come from different versions of the benchmark."""
    cases: tuple[CaseRow, ...]
    """Their `version` is the line's."""

    @property
    def version(self) -> str:
        """E.g. `v1.2.2`, or `v1 + v1.2.2` for a mixture."""
        return " + ".join(self.versions)

    @property
    def is_mixed(self) -> bool:
        """True if its numbers rest on more than one version of the benchmark."""
        return len(self.versions) > 1

    @property
    def simulated(self) -> bool:
        """True if a scripted agent, not a language model, was behind it."""
        return is_simulated_name(self.model)

    @property
    def short(self) -> str:
        """The paper's name of the model; a simulated one has none and keeps its mark."""
        return self.model if self.simulated else shorten_model(self.model)

    def list_missing_suites(self, attack: str) -> list[str]:
        """List the suites without a case of this attack; none where the attack was not run at all."""
        ran = {case.suite for case in self.cases if case.attack == attack}
        return [suite for suite in SUITES if suite not in ran] if ran else []


def list_run_lines(
    cases: Iterable[CaseRow],
    attacks: Collection[str],
    benchmark: str = BENCHMARK,
    *,
    joins_versions: bool = True,
) -> list[RunLine]:
    """List the lines that some attacks make up, sorted by model, defense and version.

    Versions of the benchmark are put into one line only where they complete each other; where the same
    suite was run under the same attack on two versions, or where they may not join (data sets of one's own),
    each version has a line of its own. Injection tasks run alone are passed over.
    """
    needed = (c for c in cases if c.benchmark == benchmark and c.attack in attacks and c.is_scored)
    lines = []
    for key, some in sorted(group_by(needed, lambda case: (case.table_model, case.defense)).items()):
        by_version = group_by(some, lambda case: case.version)
        covered = [{(case.attack, case.suite) for case in part} for part in by_version.values()]
        versions = tuple(sorted(by_version))
        if not joins_versions or sum(map(len, covered)) > len(set().union(*covered)):
            lines += [RunLine(*key, (version,), tuple(by_version[version])) for version in versions]
            continue
        label = " + ".join(versions)
        mixed = (case if case.version == label else replace(case, version=label) for case in some)
        lines.append(RunLine(*key, versions, tuple(mixed)))
    return lines


class PaperCell(NamedTuple):
    """One place of a table."""

    spot: Spot | None
    """None where there can be no number."""
    ours: rates.Number | None
    """None where no case was run."""
    paper: float | None
    """Percent as printed; None where the paper has no such number."""


@dataclass(frozen=True)
class PaperRow:
    """One row: a model and a defense, as the paper or the runs have them."""

    model: str
    """The paper's name where it has one."""
    defense: str
    band: Band
    line: RunLine | None
    """Where our numbers come from; None where nothing was run."""
    printed: bool
    """Whether the paper's table has this row."""
    cells: tuple[PaperCell, ...]

    @property
    def verdict(self) -> str:
        """Grade and first reason of what its numbers' cells have against them."""
        numbers = [cell.ours for cell in self.cells if cell.ours]
        joined = reduce(CellVerdict.join, (CellVerdict(*one[-2:]) for one in numbers), CellVerdict())
        return shorten_verdict(*joined)


@dataclass(frozen=True)
class FilledTable:
    """A table, row by row."""

    table: PaperTable
    rows: tuple[PaperRow, ...]
    lines: tuple[RunLine, ...] = field(repr=False)
    """The lines that are in it."""
    cells: rates.ScoredCells = field(repr=False)
    """The lines' cases."""
    model_beside: str = ""
    """The paper's model whose values stand beside those of models that it does not have; empty: none."""
    values_beside: Mapping[str, Mapping[Spot, float]] = field(default_factory=dict, repr=False)
    """Defense -> its values."""


def fill_table(
    table: PaperTable,
    cases: Iterable[CaseRow],
    errors: ErrorRule = ErrorRule.REPORT,
    *,
    mine: bool = False,
) -> FilledTable:
    """Put our numbers into a table of the paper; of `mine` alone, without rows that were not run.

    Returns:
        The paper's rows in the paper's order, each with the runs of its model and defense (an empty one
        where there are none, several where the runs hold several snapshots or versions), and rows of runs
        that the paper does not have: simulated models, other models, for some tables other defenses.
    """
    printed: dict[tuple[str, str], dict[Spot, float]] = {}
    for one in list_printed_in(f"table{table.number}"):
        printed.setdefault((one.model, one.defense), {})[Spot(one.attack, one.suite, one.metric)] = one.value
    cases = _rename_chosen_rounds(list(cases)) if table.number == 1 else list(cases)
    # Rehearsed with the scripted model, whose cases are marked as its own.
    searched = {case.attack: RUN_AS.get(case.attack.removesuffix("+attacker=simulated")) for case in cases}
    named = (replace(case, attack=row) if (row := searched[case.attack]) else case for case in cases)
    known, further = {defense for _, defense in printed}, table.further_defenses
    lines = list_run_lines(named, table.attacks)
    lines = [line for line in lines if further is None or line.defense in known | further]
    cells = rates.ScoredCells(case for line in lines for case in line.cases)
    numbers = _measure_lines(table, cells, errors)
    rows = []
    for key in _sort_keys(table, [*printed, *((line.short, line.defense) for line in lines)]):
        paper = printed.get(key, {})
        same: list[RunLine | None] = [line for line in lines if (line.short, line.defense) == key]
        for line in same or [None] * (not mine):  # without runs the paper's row is an empty one
            ours = numbers[line.model, line.defense, line.version] if line else {}
            for band in table.bands:
                places = tuple(
                    PaperCell(spot, ours.get(spot) if spot else None, spot and paper.get(spot))
                    for spot in band.spots
                )
                rows.append(PaperRow(*key, band, line, bool(paper), places))
    filled = FilledTable(table, tuple(rows), tuple(lines), cells)
    model = next(iter(printed))[0]
    if not mine or all(row.printed for row in rows):
        return filled
    beside = {defense: values for (one, defense), values in printed.items() if one == model}
    return replace(filled, model_beside=model, values_beside=beside)


def _rename_chosen_rounds(cases: Sequence[CaseRow]) -> list[CaseRow]:
    """Put the cases of a chosen round under the attack that was written there.

    Only where the model and defense have no case of that attack itself: observed and caused rounds are
    not the same experiment and are not put into one row.
    """

    def make_pipeline_key(case: CaseRow) -> tuple[str, str, str]:
        return case.benchmark, case.table_model, case.defense

    observed = {make_pipeline_key(case) for case in cases if case.attack == ATTACK}
    written = (case.attack in _CHOSEN_ROUND and make_pipeline_key(case) not in observed for case in cases)
    return [replace(case, attack=ATTACK) if one else case for case, one in zip(cases, written, strict=True)]


def count_chosen_rounds(filled: FilledTable, cases: Iterable[CaseRow]) -> int:
    """Count the cases in a table that are of a chosen round, by the files that were read."""
    sources = {case.source for case in cases if case.attack in _CHOSEN_ROUND}
    return sum(case.source in sources for case in filled.cells.cases)


def _sort_keys(table: PaperTable, keys: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Sort (model, defense) of every row, each once, as the table is: what the paper has comes first."""
    models = list(dict.fromkeys(model for model, _ in keys))
    defenses = list(dict.fromkeys(defense for _, defense in keys))

    def make_sort_key(key: tuple[str, str]) -> tuple[int, int]:
        by_model, by_defense = models.index(key[0]), defenses.index(key[1])
        return (by_model, by_defense) if table.models_first else (by_defense, by_model)

    return sorted(dict.fromkeys(keys), key=make_sort_key)


def _measure_lines(
    table: PaperTable, cells: rates.ScoredCells, errors: ErrorRule
) -> Mapping[tuple[str, str, str], Mapping[Spot, rates.Number]]:
    """Model, defense and version of a line -> its numbers."""
    numbers: defaultdict[tuple[str, str, str], dict[Spot, rates.Number]] = defaultdict(dict)
    if table.number != 1:
        for row in rates.measure(cells, errors):
            spot = Spot(row.attack, row.suite, row.metric)
            numbers[row.model, row.defense, row.version][spot] = rates.read_number(row)
        return numbers
    resampler = Resampler()
    for cell, cases in cells.items():
        by_round = compute_asr_by_round(cases, ROUND_LENGTHS, errors, resampler)
        judged = {make_round_spot(*at): one.judge(cells.verdicts[cell]) for at, one in by_round.items()}
        numbers[cell.model, cell.defense, cell.version] = judged
    return numbers
