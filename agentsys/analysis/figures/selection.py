"""`Selection`: the one model that a figure is about, and its lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from agentsys.analysis.paper.lines import BENCHMARK, RunLine, run_lines
from agentsys.analysis.published import PAPER_MODEL
from agentsys.errors import ConfigError, unknown_name
from agentsys.records.case_row import CaseRow, is_simulated_name, strip_simulated_mark
from agentsys.records.names_file import STORED_NAMES, DisplayNames


@dataclass(frozen=True)
class Selection:
    """The part of the runs that a figure shows."""

    model: str
    """As the runs name it, marked if simulated; empty if the runs have nothing for this figure."""
    lines: tuple[RunLine, ...]
    """Those of the paper's figures first, then by name."""
    others: tuple[str, ...]
    """Models that are in the runs and not shown."""
    hidden: tuple[str, ...] = ()
    """Its defenses that are in the runs and not shown, for room or because others were asked for."""
    shown: DisplayNames = STORED_NAMES
    """What the figure calls defenses and models."""

    @property
    def simulated(self) -> bool:
        """Whether a scripted agent, not a language model, was behind everything shown as ours."""
        return is_simulated_name(self.model)

    def series(self) -> Iterator[tuple[str, RunLine]]:
        """Each line with its name: the defense, and the version where a defense has two lines."""
        count = Counter(line.defense for line in self.lines)
        for line in self.lines:
            name = line.defense if count[line.defense] == 1 else f"{line.defense}, {line.version}"
            yield name, line


@dataclass(frozen=True)
class Wish:
    """The user's wish what to see; by default what the paper shows."""

    model: str | None = None
    """As the runs or as the paper name it; None: the paper's, else the one with the most cases."""
    defenses: tuple[str, ...] = ()
    """Empty: all, or as many as there is room for."""


ANYTHING = Wish()


def select(
    cases: Iterable[CaseRow],
    attacks: Collection[str],
    wish: Wish = ANYTHING,
    *,
    benchmark: str = BENCHMARK,
    room: int | None = None,
    joins_versions: bool = True,
) -> Selection:
    """Choose the model that a figure shows, and its defenses.

    Args:
        cases: Everything read.
        attacks: What the figure needs, `none` for benign cases.
        wish: The wish of the user.
        benchmark: The benchmark's label.
        room: How many defenses the figure shows unless some are asked for: those of the paper's figures
            first.
        joins_versions: See `run_lines`.

    Raises:
        ConfigError: If the runs do not have the model or a defense asked for.
    """
    lines = run_lines(cases, attacks, benchmark, joins_versions=joins_versions)
    sizes: Counter[str] = Counter()
    for line in lines:
        sizes[line.model] += len(line.cases)
    chosen = _chosen(lines, sizes, wish.model)
    mine = sorted((line for line in lines if line.model == chosen), key=_order)
    known = list(dict.fromkeys(line.defense for line in mine))
    shown = wish.defenses or tuple(known[:room])
    for name in wish.defenses:
        if name not in known:
            raise ConfigError(unknown_name("defense in these runs", name, known))
    return Selection(
        chosen,
        tuple(line for line in mine if line.defense in shown),
        tuple(sorted(set(sizes) - {chosen})),
        tuple(name for name in known if name not in shown),
    )


def _chosen(lines: Iterable[RunLine], sizes: Counter[str], model: str | None) -> str:
    wanted = model or PAPER_MODEL
    fitting = {
        line.model for line in lines if wanted in (line.model, line.short, strip_simulated_mark(line.model))
    }
    if fitting:
        return max(sorted(fitting), key=lambda name: sizes[name])
    if model is not None:
        raise ConfigError(unknown_name("model in these runs", model, list(sizes)))
    return max(sorted(sizes), key=lambda name: sizes[name], default="")


_FIRST = ("none", "agentsys", "drift", "progent", "camel")
"""The defenses of the paper's figures."""


def _order(line: RunLine) -> tuple[int, str, str]:
    place = _FIRST.index(line.defense) if line.defense in _FIRST else len(_FIRST)
    return place, line.defense, line.version
