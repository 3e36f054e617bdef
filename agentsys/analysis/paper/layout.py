"""`PaperTable`: what the rows and columns of each of the paper's tables are. Data, no numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from agentsys.analysis.metrics.rates import BENIGN_UTILITY, TARGETED_ASR, UTILITY_UNDER_ATTACK
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.records.case_row import NO_ATTACK

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


class Spot(NamedTuple):
    """Place of a number, apart from model and defense."""

    attack: str
    suite: str
    metric: str


@dataclass(frozen=True)
class Band:
    """One row of a table per model and defense."""

    labels: tuple[str, ...]
    """What the row is called beside model and defense; as many as the table's `label_headers`."""
    spots: tuple[Spot | None, ...]
    """One per column; None where there can be no number."""

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks (or `none`) its numbers need, in order, each once."""
        return tuple(dict.fromkeys(spot.attack for spot in self.spots if spot))


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
    def source(self) -> str:
        """Its name in the printed data, e.g. `table2`."""
        return f"table{self.number}"

    @property
    def attacks(self) -> tuple[str, ...]:
        """Every attack (or `none`) it needs, in order."""
        return tuple(dict.fromkeys(attack for band in self.bands for attack in band.attacks))


def round_spot(length: int, round_: int) -> Spot:
    """Place of the ASR of one trajectory length and injection round belongs."""
    return Spot(ATTACK, POOLED_OVER_SUITES, f"{TARGETED_ASR}[length={length},round={round_}]")


def _by_round() -> tuple[Band, ...]:
    rounds = range(1, max(ROUND_LENGTHS) + 1)
    return tuple(
        Band((str(length),), tuple(round_spot(length, r) if r <= length else None for r in rounds))
        for length in ROUND_LENGTHS
    )


def _by_suite(attack: str, metric: str, *labels: str) -> Band:
    return Band(labels, tuple(Spot(attack, suite, metric) for suite in (OVERALL, *SUITES)))


_OVERALL = Band(
    (),
    (
        Spot(NO_ATTACK, OVERALL, BENIGN_UTILITY),
        Spot(ATTACK, OVERALL, UTILITY_UNDER_ATTACK),
        Spot(ATTACK, OVERALL, TARGETED_ASR),
    ),
)
_OWN_PRESETS = frozenset(
    f"agentsys_{name}" for name in ("strict", "flat", "lean", "hybrid", "hybrid_main", "rules")
)
"""Presets of AgentSys that the paper does not have, for the rows below its own."""
_CONTROLS = frozenset({"tool_result_parsing", "tool_result_parsing_parse_only"})
"""Intent and extraction without isolation: what AgentSys's own parts are held against."""
_REBUILT = frozenset({"isolategpt", "progent"})
"""Baselines that the paper ran on one model only, for the rows below its own."""
_OVERALL_COLUMNS = ("Benign utility", "Utility under attack", "Targeted ASR")
_SUITE_COLUMNS = ("Overall", *(suite.capitalize() for suite in SUITES))
_ADAPTIVE = tuple(
    _by_suite(attack, metric, attack, title)
    for metric, title in ((UTILITY_UNDER_ATTACK, "utility"), (TARGETED_ASR, "ASR"))
    for attack in (ATTACK, "adaptive", "pair", PER_CASE)
)

TABLES = {
    table.number: table
    for table in (
        PaperTable(
            1,
            "Targeted ASR by trajectory length and injection round, no defense",
            tuple(f"Round {r}" for r in range(1, max(ROUND_LENGTHS) + 1)),
            _by_round(),
            label_headers=("Length",),
        ),
        PaperTable(
            2,
            "AgentSys and other defenses",
            _OVERALL_COLUMNS,
            (_OVERALL,),
            further_defenses=None,
            mixes_versions=True,
        ),
        PaperTable(
            3,
            "Ablations of AgentSys",
            _OVERALL_COLUMNS,
            (_OVERALL,),
            further_defenses=_OWN_PRESETS | _CONTROLS,
            mixes_versions=True,
        ),
        PaperTable(
            4,
            "AgentSys under adaptive attacks",
            _SUITE_COLUMNS,
            _ADAPTIVE,
            label_headers=("Attack", "Metric"),
            further_defenses=frozenset({"agentsys_strict", "none"}),
        ),
        *(
            PaperTable(
                number,
                f"{title} by model and suite",
                _SUITE_COLUMNS,
                (_by_suite(attack, metric),),
                further_defenses=_REBUILT,
                models_first=True,
                mixes_versions=True,
            )
            for number, title, attack, metric in (
                (5, "Benign utility", NO_ATTACK, BENIGN_UTILITY),
                (6, "Utility under attack", ATTACK, UTILITY_UNDER_ATTACK),
                (7, "Targeted ASR", ATTACK, TARGETED_ASR),
            )
        ),
    )
}
"""Number -> table."""
