"""Figure 2: targeted ASR on ASB under observation prompt injection, one panel per mode, with controls.

Runs on ASB have a benchmark label per mode (`asb-faithful`, `asb-react`, ...), attacks a label per type. In
the figure the benchmark is `asb`, the attack `opi` and its control `control`; the mode is the panel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from agentsys.analysis.figures.captions import not_shown, subtitle
from agentsys.analysis.figures.labels import shown_name
from agentsys.analysis.figures.mark import PAPER, Mark, across, mark_of, printed_mark
from agentsys.analysis.figures.points import draw_point, draw_whiskers, series_of
from agentsys.analysis.figures.selection import Selection
from agentsys.analysis.figures.style import FAINT, Look, headline, looks, new_figure, panel_title
from agentsys.analysis.metrics.benchmark_facts import IS_CONTROL
from agentsys.analysis.metrics.rates import TARGETED_ASR, measure, number_in
from agentsys.analysis.paper.lines import RunLine
from agentsys.analysis.published import printed_in
from agentsys.analysis.statistics.error_rule import ErrorRule
from agentsys.analysis.statistics.estimate import OVERALL
from agentsys.analysis.tables.escaping import plain
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BENCHMARK, ATTACK, CONTROL = "asb", "opi", "control"
ATTACKS = (ATTACK, CONTROL)
PREFERRED = ("opi_context_ignoring", ATTACK)
"""The attack type of the published defense runs; another is shown where these were not run."""
_MODE, _LABEL = "figure2_mode", "figure2_attack"
"""Keys of `measured` under which the figure finds a case's mode and the attack's own label."""
PLAIN = "asr"
"""The panel of runs whose benchmark names no mode."""
_CONTROL = ": control"
"""Ends the panel's name of a control's mark."""
_ORDER = ("faithful", "official", "clean_plan", "hidden_tool", "react")
_CONTROL_SIZE, _BELOW = 3.0, 0.3
"""Of a control's marker, in points; and how far below its row it stands, in rows."""
_UNKNOWN = (
    "The paper prints a single value of its Figure 2 (AgentSys 4.25%) and only draws the others, which are "
    "therefore not shown. It tells neither the attack type nor the number of cases nor whether plans were "
    "patched, so the value may not be comparable with any panel."
)


def figure2_cases(cases: Iterable[CaseRow]) -> list[CaseRow]:
    """The attacked cases on ASB, of one attack type and its control, under the figure's names."""
    listed = [case for case in cases if _is_asb(case) and case.attack != NO_ATTACK]
    controls = {case.attack for case in listed if case.measured.get(IS_CONTROL) is True}
    attack = _attack(case.attack for case in listed if case.attack not in controls)
    return [
        _renamed(case, CONTROL if case.attack in controls else ATTACK)
        for case in listed
        if case.attack in controls or case.attack == attack
    ]


def _is_asb(case: CaseRow) -> bool:
    return case.benchmark == BENCHMARK or case.benchmark.startswith(f"{BENCHMARK}-")


def _attack(labels: Iterable[str]) -> str | None:
    """The preferred attack type if it was run, else the one with the most cases."""
    counts = Counter(labels)
    known = [label for label in PREFERRED if label in counts]
    return known[0] if known else max(sorted(counts), key=lambda label: counts[label], default=None)


def _renamed(case: CaseRow, attack: str) -> CaseRow:
    mode = case.benchmark.removeprefix(BENCHMARK).removeprefix("-")
    facts = {**case.measured, _MODE: mode, _LABEL: case.attack}
    return replace(case, benchmark=BENCHMARK, attack=attack, measured=facts)


def marks(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List what is plotted: x targeted ASR in percent (unweighted mean of the suites); y counts the defenses.

    The panel is the mode; a control's ends in `: control`.
    """
    ours = [mark for name, line in selection.series() for mark in _of_line(name, line, errors)]
    panels = _panels(ours)
    printed = [
        printed_mark(panels[0], number.defense, number.value)
        for number in printed_in("figure2")
        if number.metric == TARGETED_ASR
    ]
    rows = {name: float(row) for row, name in enumerate(series_of([*ours, *printed]))}
    return [replace(mark, y=rows[mark.series]) for mark in [*ours, *printed]]


def draw(selection: Selection, plotted: Sequence[Mark]) -> Figure:
    """One row per defense, one panel per mode."""
    names, panels = series_of(plotted), _panels(plotted)
    figure, axes = new_figure(len(panels), 7.2, 2.4 + 0.32 * len(names))
    title = "Figure 2. Observation prompt injection on ASB"
    headline(figure, title, subtitle(selection), [*_notes(selection, plotted), *not_shown(selection)])
    styles = looks(names)
    for place, (panel, mode) in enumerate(zip(axes, panels, strict=True)):
        _draw_panel(panel, [mark for mark in plotted if _mode(mark) == mode], styles)
        panel.set_yticks(
            range(len(names)),
            [shown_name(selection.shown.series_name(name)) for name in names] if place == 0 else [],
        )
        panel.set(xlim=(-4, 104), ylim=(len(names) - 0.4, -0.8), xlabel="Targeted ASR, % (lower is safer)")
        if mode != PLAIN:
            panel_title(panel, shown_name(mode))
    return figure


def _of_line(name: str, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    by_mode = group_by(line.cases, lambda case: str(case.measured.get(_MODE) or PLAIN))
    about = mark_of(line, name)
    for mode, cases in by_mode.items():
        for row in measure(cases, errors):
            if (row.metric, row.suite) == (TARGETED_ASR, OVERALL):
                panel = mode + (_CONTROL if row.attack == CONTROL else "")
                yield replace(across(about, number_in(row)), panel=panel, n=row.n)


def _mode(mark: Mark) -> str:
    return mark.panel.removesuffix(_CONTROL)


def _panels(plotted: Iterable[Mark]) -> list[str]:
    """The modes, those with the published conversation first: the paper's value stands in the first."""
    modes = {_mode(mark) for mark in plotted} or {PLAIN}

    def place(mode: str) -> tuple[int, str]:
        name = mode.partition("+")[0]
        return _ORDER.index(name) if name in _ORDER else len(_ORDER), mode

    return sorted(modes, key=place)


def _draw_panel(axes: Axes, shown: Sequence[Mark], styles: dict[str, Look]) -> None:
    for mark in shown:
        if mark.panel.endswith(_CONTROL):
            _draw_control(axes, mark, styles[mark.series])
            continue
        draw_point(axes, mark, styles[mark.series])
        axes.annotate(
            f"{mark.x:.2f}",
            (mark.x, mark.y),
            # The paper's beside it: ours often stands next to it.
            xytext=(7, -2.5) if mark.origin == PAPER else (0, 7),
            textcoords="offset points",
            ha="left" if mark.origin == PAPER else "center",
            fontsize=7,
            color=FAINT,
        )
    axes.grid(visible=False, axis="y")


def _draw_control(axes: Axes, mark: Mark, look: Look) -> None:
    """Small and pale, below the attack's mark."""
    lower = replace(mark, y=mark.y + _BELOW)
    axes.plot([lower.x], [lower.y], ls="none", marker=look.marker, ms=_CONTROL_SIZE, color=FAINT, zorder=4)
    draw_whiskers(axes, lower, FAINT)


def _notes(selection: Selection, plotted: Sequence[Mark]) -> Iterator[str]:
    yield _UNKNOWN
    if not selection.lines:
        return
    attacked = [case for line in selection.lines for case in line.cases if case.attack == ATTACK]
    attacks = sorted({str(case.measured.get(_LABEL, case.attack)) for case in attacked})
    yield (
        f"Attack: {plain(', '.join(attacks))}. Whiskers: 95% intervals; where each agent has a single user "
        "task, the agents are resampled."
    )
    if any(mark.panel.endswith(_CONTROL) for mark in plotted):
        yield (
            "Small, below: the control, the same cases with an empty payload. An attack that succeeds there "
            "owes nothing to an injection."
        )
    else:
        yield "No control (empty payload) was run: nobody can say how much of this is the injection's work."
