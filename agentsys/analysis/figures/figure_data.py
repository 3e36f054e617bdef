"""Data of a figure: the runs it shows (`Selection`), the numbers plotted (`Mark`), whose they are, and their looks."""

from __future__ import annotations

import math
import tomllib
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import Annotated, NamedTuple

from agentsys.analysis.metrics.cell_verdict import BROKEN, VALID, CellVerdict, shorten_verdict
from agentsys.analysis.metrics.rates import MeasuredCell, Number, ScoredCells
from agentsys.analysis.paper.paper_tables import RunLine
from agentsys.analysis.published import PAPER_MODEL
from agentsys.analysis.statistics.outcome_grid import CONFIDENCE, ErrorRule
from agentsys.analysis.tables.table_document import make_long_form, make_plain, write_csv_text
from agentsys.records.case_row import is_simulated_name

RUNS = "runs"
"""Origin of what we measured."""
PAPER = "paper"
"""Origin of what the paper prints: drawn hollow."""
CONTROL_SUFFIX = ": control"
"""Ends the panel's name of a control's mark."""
HOLLOW_CAPTION = f"Hollow: as printed in the paper ({PAPER_MODEL})."
APART_CAPTION = (
    "Marks at nearly the same point are drawn beside each other. In a figure of several bands, grey marks are "
    "those of the other bands. The CSV has the numbers."
)
WHISKERS_CAPTION = f"Whiskers: {CONFIDENCE:.0f}% intervals, user and injection tasks resampled."


@dataclass(frozen=True, slots=True)
class Mark:
    """One point, or one end of a bar. The fields are the columns of the figure's CSV."""

    panel: str
    """Which panel of the figure."""
    series: str
    """What it belongs to: a defense, as a rule."""
    x: Annotated[float, "x_unit"]
    """In the unit of the panel's axis; nan where the paper gives no place on it."""
    y: Annotated[float, "y_unit"]
    y_low: Annotated[float, "y_unit"] = math.nan
    """Lower end of the 95% interval; nan where there is none."""
    y_high: Annotated[float, "y_unit"] = math.nan
    x_low: Annotated[float, "x_unit"] = math.nan
    """The same across."""
    x_high: Annotated[float, "x_unit"] = math.nan
    x_unit: str = ""
    """E.g. `percent` (in the CSV `fraction`), `calls`."""
    y_unit: str = ""
    n: int = 0
    """Cases it rests on; 0 for printed numbers."""
    origin: str = RUNS
    """`runs` or `paper`."""
    simulated: bool = False
    """Whether a scripted agent, not a language model, was behind it."""
    model: str = ""
    version: str = ""
    """Benchmark version(s) of the runs."""
    verdict: str = VALID
    """The worst of the series' cells; a `broken` one has no place and is not drawn."""
    reasons: str = ""

    @classmethod
    def make_paper_mark(cls, panel: str, series: str, x: float, y: float = math.nan) -> Mark:
        """Make the mark of a number that the paper prints."""
        return cls(panel, series, x, y, origin=PAPER, model=PAPER_MODEL)

    def with_x(self, number: Number, times: float = 1.0, per: float = 1.0) -> Mark:
        """Copy the mark with a number, in another unit, as its horizontal coordinate."""
        x, low, high = (value * times / per for value in number[:3])
        return replace(self, x=x, x_low=low, x_high=high)

    def with_y(self, number: Number, per: float = 1.0) -> Mark:
        """Copy the mark with a number as its vertical coordinate, and the number's cases behind it."""
        y, low, high = (value / per for value in number[:3])
        return replace(self, y=y, y_low=low, y_high=high, n=number.n)


def write_marks_csv(marks: Iterable[Mark]) -> str:
    """Write one header line, then one line per mark; what is undefined is left empty."""
    return write_csv_text(make_long_form(Mark, marks))


def list_series(marks: Iterable[Mark]) -> list[str]:
    """List the series of some marks, each once, in order."""
    return list(dict.fromkeys(mark.series for mark in marks))


@dataclass(frozen=True)
class Selection:
    """The part of the runs that a figure shows: one model and some of its defenses."""

    model: str
    """As the runs name it, marked if simulated; empty if the runs have nothing for this figure."""
    lines: tuple[RunLine, ...]
    """Those of the paper's figures first, then by name."""
    others: tuple[str, ...]
    """Models that are in the runs and not shown."""

    @property
    def series(self) -> list[tuple[str, RunLine]]:
        """Each line with its name: the defense, and the version where a defense has two lines."""
        count = Counter(line.defense for line in self.lines)
        return [
            (line.defense if count[line.defense] == 1 else f"{line.defense}, {line.version}", line)
            for line in self.lines
        ]

    def measure(
        self, measure_line: Callable[[Mark, RunLine, ErrorRule], Iterable[Mark]], errors: ErrorRule
    ) -> list[Mark]:
        """Collect what a function makes of each line and of a mark that has the line's names and no place."""
        marks: list[Mark] = []
        for name, line in self.series:
            about = Mark("", name, math.nan, math.nan, **self._verdicts[line]._asdict())
            about = replace(about, simulated=line.simulated, model=line.model, version=line.version)
            marks += [about] if about.verdict == BROKEN else measure_line(about, line, errors)
        return marks

    @cached_property
    def _verdicts(self) -> dict[RunLine, CellVerdict]:
        verdicts = ScoredCells(case for line in self.lines for case in line.cases).verdicts
        of_lines = {line: sorted({MeasuredCell.of(case) for case in line.cases}) for line in self.lines}
        return {
            line: reduce(CellVerdict.join, (verdicts[cell] for cell in cells), CellVerdict())
            for line, cells in of_lines.items()
        }

    def write_subtitle(self, marks: Iterable[Mark]) -> list[str]:
        """Lines under the figure's title: the model, the version, and the mark of a simulated one."""
        hollow = f" {HOLLOW_CAPTION}" if any(mark.origin == PAPER for mark in marks) else ""
        if not self.lines:
            return [f"No runs for this figure.{hollow}"]
        versions = make_plain(", ".join(dict.fromkeys(line.version for line in self.lines)))
        lines = [f"Filled: {make_plain(self.model)}, benchmark version {versions}.{hollow}"]
        if is_simulated_name(self.model):
            lines.insert(0, "SIMULATED: filled marks come from a scripted agent, not from a language model.")
        if any(line.is_mixed for line in self.lines):
            lines.append("Some series mix versions of the benchmark.")
        return lines

    def list_absent(self, marks: Iterable[Mark]) -> list[str]:
        """List the series of the runs that none of some marks is of."""
        placed = {mark.series for mark in marks if mark.origin != PAPER}
        return [name for name, _ in self.series if name not in placed]

    def name_series(self, heading: str, names: Iterable[str]) -> list[str]:
        """Write a note about some series; none where there are none."""
        listed = ", ".join(names)
        return [f"{heading}: {make_plain(listed)}."] if listed else []

    @property
    def omissions(self) -> list[str]:
        """Notes on defenses that are not to be believed, and on models of the runs that are not in the figure."""
        others = make_plain(", ".join(self.others))
        verdicts = {name: shorten_verdict(*self._verdicts[line]) for name, line in self.series}
        return [
            *(f"{make_plain(name)}: {why}." for name, why in verdicts.items() if why),
            *([f"Also in the runs: {others} (choose with --model)."] if others else []),
        ]


_LONGEST_NAME = 35
"""Characters of a name, as many as the longest shipped one has; a longer one is cut, the CSV has it whole."""
# Colours of M. Okabe and K. Ito, "Color Universal Design", 2008; yellow is too pale for lines.
_BLACK = "#000000"
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "*", ">")
_WIDE_MARKERS = ("o", "s", "^", "D", "v", "<", ">")
"""Those in which a half is seen."""
_HALVES = ("left", "bottom")
_DASHES = ((), (5.0, 1.5), (1.5, 1.2), (6.0, 1.5, 1.5, 1.5), (3.0, 1.0))
_WHOLE, _HALF = len(_COLORS) * len(_MARKERS), len(_COLORS) * len(_WIDE_MARKERS)
"""Looks with a whole marker, and looks of each half."""
_ORDER: list[str] = tomllib.loads(Path(__file__).with_name("looks.toml").read_text(encoding="utf-8"))[
    "order"
].split()
"""Every shipped defense."""


class Look(NamedTuple):
    """Look of one series, told apart by colour and, in grey, by marker and filling; and its name."""

    color: str
    marker: str
    fill: str
    """matplotlib's `fillstyle`; a half-filled marker is white in its other half."""
    dashes: tuple[float, tuple[float, ...]]
    """Of its lines and whiskers."""
    label: str


def choose_looks(defenses: Mapping[str, str]) -> dict[str, Look]:
    """Choose a look for each series of a figure.

    A name of the user's own has a look by its letters. Of two alike looks in one figure, the later one has other
    dashes; a shipped defense is never the later one.

    Args:
        defenses: Series -> its defense. Two series share one where a defense has a line per benchmark version.
    """
    drawn: Counter[int] = Counter()
    dashes = {}
    for series in sorted(defenses, key=lambda name: defenses[name] not in _ORDER):
        index = _find_look_index(defenses[series])
        dashes[series] = _DASHES[drawn[index] % len(_DASHES)]
        drawn[index] += 1
    return {
        series: _make_look(_find_look_index(defense), dashes[series], shorten_name(series))
        for series, defense in defenses.items()
    }


def list_alike(looks: Mapping[str, Look]) -> list[str]:
    """List the series that only their dashes tell from another one."""
    return [look.label for look in looks.values() if look.dashes[1]]


def shorten_name(name: str) -> str:
    """Write a name as figures show it: on one line, a long one without its middle."""
    shown, half = make_plain(name), _LONGEST_NAME // 2
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:half]}…{shown[-half:]}"


def _find_look_index(defense: str) -> int:
    if defense in _ORDER:
        return _ORDER.index(defense)
    # Never 0: black is the undefended agent's alone.
    return 1 + zlib.crc32(defense.encode("utf-8", "surrogatepass")) % (_WHOLE + _HALF * len(_HALVES) - 1)


def _make_look(index: int, dashes: tuple[float, ...], label: str) -> Look:
    # Neighbours differ in colour and in marker. The numbers of colours and whole markers share the factor 2, so
    # colours are shifted by one after half the places: otherwise the second half would repeat the first.
    if index < _WHOLE:
        color = _COLORS[(index - 1 + index // (_WHOLE // 2)) % len(_COLORS)] if index else _BLACK
        return Look(color, _MARKERS[index % len(_MARKERS)], "full", (0.0, dashes), label)
    half, index = divmod(index - _WHOLE, _HALF)
    marker, color = _WIDE_MARKERS[index % len(_WIDE_MARKERS)], _COLORS[index % len(_COLORS)]
    return Look(color, marker, _HALVES[half], (0.0, dashes), label)
