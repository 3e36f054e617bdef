"""Figures of attacks: Figure 2, Table 1 by round, and tokens by trajectory length.

Figure 2 is the targeted ASR on ASB under observation prompt injection, one panel per mode, with controls. Runs on
ASB have a benchmark label per mode (`asb-faithful`, `asb-react`, ...), attacks a label per type. In the figure the
benchmark is `asb`, the attack `opi` and its control `control`; the mode is the panel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from agentsys.analysis.figures import drawing
from agentsys.analysis.figures.figure_data import (
    CONTROL_SUFFIX,
    PAPER,
    WHISKERS_CAPTION,
    Look,
    Mark,
    Selection,
    list_series,
    shorten_name,
)
from agentsys.analysis.metrics.cell_verdict import is_control
from agentsys.analysis.metrics.rates import TARGETED_ASR, measure, read_number
from agentsys.analysis.metrics.rates_by_length import (
    TokensOf,
    compute_asr_by_round,
    compute_mean_tokens,
    count_acting_tokens,
)
from agentsys.analysis.paper.paper_tables import ATTACK as PAPER_ATTACK
from agentsys.analysis.paper.paper_tables import ROUND_LENGTHS, RunLine, make_round_spot
from agentsys.analysis.published import list_printed_in
from agentsys.analysis.statistics.outcome_grid import CONFIDENCE, ErrorRule, Resampler
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.table_document import make_plain
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
    controls = {case.attack for case in on_asb if is_control([case])}
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
        Mark.make_paper_mark(first, number.defense, number.value)
        for number in list_printed_in("figure2")
        if number.metric == TARGETED_ASR
    ]
    rows = list_series(marks)
    return [replace(mark, y=float(rows.index(mark.series))) for mark in marks]


def _measure_line(about: Mark, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    for mode, cases in group_by(line.cases, lambda case: str(case.measured.get(_MODE) or _NO_MODE)).items():
        for row in measure(cases, errors):
            if (row.metric, row.suite) == (TARGETED_ASR, OVERALL):
                panel = mode + (CONTROL_SUFFIX if row.attack == CONTROL else "")
                yield replace(about.with_x(read_number(row)), panel=panel, n=row.n)


def list_modes(marks: Iterable[Mark]) -> dict[str, str]:
    """Panel -> heading; the modes with the published conversation first."""
    rank = {name: index for index, name in enumerate(_ORDER)}
    modes = {mark.panel.removesuffix(CONTROL_SUFFIX) for mark in marks} or {_NO_MODE}
    ordered = sorted(modes, key=lambda mode: (rank.get(mode.partition("+")[0], len(rank)), mode))
    return {mode: "" if mode == _NO_MODE else shorten_name(mode) for mode in ordered}


def draw_mode(axes: Axes, _: str, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    """Draw a row per defense; a control is small and pale, below the attack's mark."""
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(looks)), [look.label for look in looks.values()])
    axes.set(xlim=(-10, 110), ylim=(len(looks) - 0.4, -0.8), xlabel="Targeted ASR, % (lower is safer)")
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
            f"Attack: {make_plain(', '.join(attacks))}. Whiskers: 95% intervals; where each agent has a single user "
            "task, the agents are resampled."
        )
        yield _CONTROL_NOTES[any(mark.panel.endswith(CONTROL_SUFFIX) for mark in marks)]


_LONGEST = 10
"""Trajectories of this length and longer are one point of the tokens' figure."""
_FEWEST = 3
"""Cases that such a point needs."""
_TOKENS_OF: dict[str, TokensOf] = {
    "a: all roles": attrgetter("tokens"),
    "b: acting agent": count_acting_tokens,
}
TOKEN_PANELS = dict(
    zip(_TOKENS_OF, ("(a) All roles together", "(b) The agent that talks to the user"), strict=True)
)
ROUND_PANELS = {f"length={length}": f"Length {length}" for length in ROUND_LENGTHS}
ROUND_NOTE = (
    f"{WHISKERS_CAPTION} Trajectory length: tool results in the recorded run; cases whose tool "
    "results never hold the injection are left out. Pooled over suites."
)


def measure_table1(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List what is plotted: panel `length=L`, x the injection's round, y targeted ASR in percent, pooled."""
    values = {number.metric: (number.defense, number.value) for number in list_printed_in("table1")}
    printed = []
    for length in ROUND_LENGTHS:
        for round_ in range(1, length + 1):
            defense, value = values[make_round_spot(length, round_).metric]
            printed.append(Mark.make_paper_mark(f"length={length}", defense, float(round_), value))
    return [*selection.measure(_measure_rounds, errors), *printed]


def _measure_rounds(about: Mark, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    attacked = [case for case in line.cases if case.attack == PAPER_ATTACK]
    by_round = compute_asr_by_round(attacked, ROUND_LENGTHS, errors, Resampler())
    for (length, round_), number in sorted(by_round.items()):
        yield replace(about, panel=f"length={length}", x=float(round_)).with_y(number)


def draw_rounds(axes: Axes, panel: str, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    """Draw the rounds of one trajectory length."""
    length = int(panel.removeprefix("length="))
    drawing.draw_lines(axes, marks, looks)
    axes.set_xticks(range(1, length + 1))
    axes.set(xlim=(0.5, length + 0.5), ylim=(-4, 105), xlabel="Round", ylabel="Targeted ASR, %")
    axes.set_yticks(range(0, 101, 20))
    axes.label_outer()


def write_token_notes(selection: Selection, marks: Sequence[Mark]) -> Iterator[str]:
    """Say what was counted, and whose runs hold no tokens."""
    yield (
        f"Whiskers: {CONFIDENCE:.0f}% intervals, user tasks resampled. Mean of prompt and completion tokens "
        f"per case, benign and attacked together; points of fewer than {_FEWEST} cases are left out. "
        "Trajectory length: tool results of the acting agent. The paper prints no such numbers."
    )
    yield from selection.name_series("No tokens recorded", selection.list_absent(marks))


def measure_growth(about: Mark, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    """Measure a line: x tool results in the recorded run (10: 10 and more), y thousand tokens per case.

    Benign and attacked cases together; errored ones are left out under either rule.
    """
    del errors  # an errored case has no length to place it at
    with_length = [case for case in line.cases if case.trajectory_length is not None]
    by_length = group_by(with_length, lambda case: min(case.trajectory_length or 0, _LONGEST))
    for panel, tokens_of in _TOKENS_OF.items():
        for length in sorted(by_length):
            mean = compute_mean_tokens(by_length[length], tokens_of, Resampler())
            if mean is not None and mean.n >= _FEWEST:
                yield replace(about, panel=panel, x=float(length)).with_y(mean, per=1e3)


def draw_growth(axes: Axes, _: str, marks: Sequence[Mark], looks: Mapping[str, Look]) -> None:
    """Draw a line per defense."""
    drawing.draw_lines(axes, marks, looks)
    ticks = range(0, _LONGEST + 1, 2)
    axes.set_xticks(ticks, [*map(str, ticks[:-1]), f"{_LONGEST}+"])
    axes.set(xlim=(-0.5, _LONGEST + 0.5), xlabel="Trajectory length (tool results)")
    axes.set_ylim(0, drawing.find_top(marks) * 1.05)
    axes.set_ylabel("Thousand tokens per case")
