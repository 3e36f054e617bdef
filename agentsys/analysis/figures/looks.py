"""Looks of the series in figures: colour, marker and filling belong to a defense's name, wherever it is drawn."""

from __future__ import annotations

import tomllib
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from agentsys.analysis.tables.table_document import make_plain

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
        place = _find_place(defenses[series])
        dashes[series] = _DASHES[drawn[place] % len(_DASHES)]
        drawn[place] += 1
    return {
        series: _make_look(_find_place(defense), dashes[series], shorten_name(series))
        for series, defense in defenses.items()
    }


def list_alike(looks: Mapping[str, Look]) -> list[str]:
    """List the series that only their dashes tell from another one."""
    return [look.label for look in looks.values() if look.dashes[1]]


def shorten_name(name: str) -> str:
    """Write a name as figures show it: on one line, a long one without its middle."""
    shown, half = make_plain(name), _LONGEST_NAME // 2
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[:half]}…{shown[-half:]}"


def _find_place(defense: str) -> int:
    if defense in _ORDER:
        return _ORDER.index(defense)
    # Never 0: black is the undefended agent's alone.
    return 1 + zlib.crc32(defense.encode("utf-8", "surrogatepass")) % (_WHOLE + _HALF * len(_HALVES) - 1)


def _make_look(place: int, dashes: tuple[float, ...], label: str) -> Look:
    # Neighbours differ in colour and in marker. The numbers of colours and whole markers share the factor 2, so
    # colours are shifted by one after half the places: otherwise the second half would repeat the first.
    if place < _WHOLE:
        color = _COLORS[(place - 1 + place // (_WHOLE // 2)) % len(_COLORS)] if place else _BLACK
        return Look(color, _MARKERS[place % len(_MARKERS)], "full", (0.0, dashes), label)
    half, place = divmod(place - _WHOLE, _HALF)
    marker, color = _WIDE_MARKERS[place % len(_WIDE_MARKERS)], _COLORS[place % len(_COLORS)]
    return Look(color, marker, _HALVES[half], (0.0, dashes), label)
