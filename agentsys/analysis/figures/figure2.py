"""Figure 2: targeted ASR on ASB under observation prompt injection, one panel per mode, with controls.

Runs on ASB have a benchmark label per mode (`asb-faithful`, `asb-react`, ...), attacks a label per type. In
the figure the benchmark is `asb`, the attack `opi` and its control `control`; the mode is the panel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentsys.analysis.figures import drawing
from agentsys.analysis.figures.figure_data import CONTROL_SUFFIX, PAPER, Mark, Selection, list_series
from agentsys.analysis.metrics.cell_verdict import IS_CONTROL
from agentsys.analysis.metrics.rates import TARGETED_ASR, measure, number_in
from agentsys.analysis.paper.paper_tables import RunLine
from agentsys.analysis.published import printed_in
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.table_document import plain
from agentsys.base.grouping import group_by
from agentsys.records.case_row import NO_ATTACK, CaseRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BENCHMARK, ATTACK, CONTROL = "asb", "opi", "control"
_PREFERRED = ("opi_context_ignoring", ATTACK)
"""The attack type of the published defense runs; another is shown where these were not run."""
_MODE, _LABEL = "figure2_mode", "figure2_attack"
"""Keys of `measured` under which the figure finds a case's mode and the attack's own label."""
_NO_MODE = "asr"
"""The panel of runs whose benchmark names no mode."""
_ORDER = ("faithful", "official", "clean_plan", "hidden_tool", "react")
_UNKNOWN = (
    "The paper prints a single value of its Figure 2 (AgentSys 4.25%) and only draws the others, which are "
    "therefore not shown. It tells neither the attack type nor the number of cases nor whether plans were "
    "patched, so the value may not be comparable with any panel."
)
_CONTROL_NOTES = {
    True: "Small, below: the control, the same cases with an empty payload. An attack that succeeds there "
    "owes nothing to an injection.",
    False: "No control (empty payload) was run: nobody can say how much of this is the injection's work.",
}


def rename_cases(cases: Iterable[CaseRow]) -> list[CaseRow]:
    """Choose the attacked cases on ASB, of one attack type and its control, under the figure's names."""
    on_asb = [c for c in cases if c.benchmark.partition("-")[0] == BENCHMARK and c.attack != NO_ATTACK]
    controls = {case.attack for case in on_asb if case.measured.get(IS_CONTROL) is True}
    counts = Counter(case.attack for case in on_asb if case.attack not in controls)
    preferred = [label for label in _PREFERRED if label in counts]
    attack = max(preferred[:1] or sorted(counts), key=lambda label: counts[label], default=None)
    return [
        replace(
            case,
            benchmark=BENCHMARK,
            attack=CONTROL if case.attack in controls else ATTACK,
            measured={**case.measured, _MODE: case.benchmark.partition("-")[2], _LABEL: case.attack},
        )
        for case in on_asb
        if case.attack in controls or case.attack == attack
    ]


def measure_figure2(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List what is plotted: x targeted ASR in percent (unweighted mean of the suites); y counts the defenses.

    The panel is the mode; a control's ends in `: control`.
    """
    marks = selection.measure(_measure_line, errors)
    # The paper's value stands in the first panel, that of the published conversation.
    first = next(iter(list_modes(marks)))
    marks += [
        Mark.of_paper(first, number.defense, number.value)
        for number in printed_in("figure2")
        if number.metric == TARGETED_ASR
    ]
    rows = list_series(marks)
    return [replace(mark, y=float(rows.index(mark.series))) for mark in marks]


def _measure_line(about: Mark, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    for mode, cases in group_by(line.cases, lambda case: str(case.measured.get(_MODE) or _NO_MODE)).items():
        for row in measure(cases, errors):
            if (row.metric, row.suite) == (TARGETED_ASR, OVERALL):
                panel = mode + (CONTROL_SUFFIX if row.attack == CONTROL else "")
                yield replace(about.with_x(number_in(row)), panel=panel, n=row.n)


def list_modes(marks: Iterable[Mark]) -> dict[str, str]:
    """Panel -> heading; the modes with the published conversation first."""
    rank = {name: place for place, name in enumerate(_ORDER)}
    modes = {mark.panel.removesuffix(CONTROL_SUFFIX) for mark in marks} or {_NO_MODE}
    ordered = sorted(modes, key=lambda mode: (rank.get(mode.partition("+")[0], len(rank)), mode))
    return {mode: "" if mode == _NO_MODE else drawing.shorten_name(mode) for mode in ordered}


def draw_mode(axes: Axes, _: str, marks: Sequence[Mark], looks: Mapping[str, drawing.Look]) -> None:
    """Draw a row per defense; a control is small and pale, below the attack's mark."""
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(looks)), [look.label for look in looks.values()])
    axes.set(xlim=(-4, 104), ylim=(len(looks) - 0.4, -0.8), xlabel="Targeted ASR, % (lower is safer)")
    axes.label_outer()
    for mark in marks:
        look = looks[mark.series]
        if mark.panel.endswith(CONTROL_SUFFIX):
            low, color = replace(mark, y=mark.y + 0.3), drawing.FAINT
            axes.plot([low.x], [low.y], ls="", marker=look.marker, ms=3.0, color=color, zorder=4)
            drawing.draw_whiskers(axes, low, color)
            continue
        drawing.draw_point(axes, mark, look)
        # The paper's value stands beside its mark: ours is often next to it.
        offset, side = ((7, -2.5), "left") if mark.origin == PAPER else ((0, 7), "center")
        style: Any = {"textcoords": "offset points", "ha": side, "fontsize": 7, "color": drawing.FAINT}
        axes.annotate(f"{mark.x:.2f}", (mark.x, mark.y), xytext=offset, **style)


def write_notes(selection: Selection, marks: Sequence[Mark]) -> Iterator[str]:
    """Say what the paper leaves open, which attack it is, and whether there is a control."""
    yield _UNKNOWN
    if selection.lines:
        cases = [case for line in selection.lines for case in line.cases if case.attack == ATTACK]
        attacks = sorted({str(case.measured.get(_LABEL, case.attack)) for case in cases})
        yield (
            f"Attack: {plain(', '.join(attacks))}. Whiskers: 95% intervals; where each agent has a single user "
            "task, the agents are resampled."
        )
        yield _CONTROL_NOTES[any(mark.panel.endswith(CONTROL_SUFFIX) for mark in marks)]
