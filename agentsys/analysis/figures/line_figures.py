"""Figures made of lines: Table 1 by round, tokens by trajectory length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from agentsys.analysis.figures import drawing
from agentsys.analysis.figures.figure_data import WHISKERS_CAPTION, Mark, Selection
from agentsys.analysis.metrics.rates_by_length import TokensOf, acting_tokens, asr_by_round, mean_tokens
from agentsys.analysis.paper.paper_tables import ATTACK, ROUND_LENGTHS, RunLine, make_round_spot
from agentsys.analysis.published import printed_in
from agentsys.analysis.statistics.outcome_grid import CONFIDENCE, ErrorRule, Resampler
from agentsys.base.grouping import group_by

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LONGEST = 10
"""Trajectories of this length and longer are one point of the tokens' figure."""
_FEWEST = 3
"""Cases that such a point needs."""
_TOKENS_OF: dict[str, TokensOf] = {"a: all roles": attrgetter("tokens"), "b: acting agent": acting_tokens}
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
    values = {number.metric: (number.defense, number.value) for number in printed_in("table1")}
    printed = []
    for length in ROUND_LENGTHS:
        for round_ in range(1, length + 1):
            defense, value = values[make_round_spot(length, round_).metric]
            printed.append(Mark.of_paper(f"length={length}", defense, float(round_), value))
    return [*selection.measure(_measure_rounds, errors), *printed]


def _measure_rounds(about: Mark, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    attacked = [case for case in line.cases if case.attack == ATTACK]
    by_round = asr_by_round(attacked, ROUND_LENGTHS, errors, Resampler())
    for (length, round_), number in sorted(by_round.items()):
        yield replace(about, panel=f"length={length}", x=float(round_)).with_y(number)


def draw_rounds(axes: Axes, panel: str, marks: Sequence[Mark], looks: Mapping[str, drawing.Look]) -> None:
    """Draw the rounds of one trajectory length."""
    length = int(panel.removeprefix("length="))
    drawing.draw_lines(axes, marks, looks)
    axes.set_xticks(range(1, length + 1))
    axes.set(xlim=(0.5, length + 0.5), ylim=(-4, 105), xlabel="Round", ylabel="Targeted ASR, %")
    axes.set_yticks(range(0, 101, 20))
    axes.label_outer()


def measure_tokens(selection: Selection, errors: ErrorRule = ErrorRule.REPORT) -> list[Mark]:
    """List what is plotted: x tool results in the recorded run (10: 10 and more), y thousand tokens per case.

    Benign and attacked cases together; errored ones are left out under either rule.
    """
    return selection.measure(_measure_growth, errors)


def write_token_notes(selection: Selection, marks: Sequence[Mark]) -> Iterator[str]:
    """Say what was counted, and whose runs hold no tokens."""
    yield (
        f"Whiskers: {CONFIDENCE:.0f}% intervals, user tasks resampled. Mean of prompt and completion tokens "
        f"per case, benign and attacked together; points of fewer than {_FEWEST} cases are left out. "
        "Trajectory length: tool results of the acting agent. The paper prints no such numbers."
    )
    yield from selection.name_series("No tokens recorded", selection.list_absent(marks))


def _measure_growth(about: Mark, line: RunLine, errors: ErrorRule) -> Iterator[Mark]:
    del errors  # an errored case has no length to place it at
    with_length = [case for case in line.cases if case.trajectory_length is not None]
    by_length = group_by(with_length, lambda case: min(case.trajectory_length or 0, _LONGEST))
    for panel, tokens_of in _TOKENS_OF.items():
        for length in sorted(by_length):
            mean = mean_tokens(by_length[length], tokens_of, Resampler())
            if mean is not None and mean.n >= _FEWEST:
                yield replace(about, panel=panel, x=float(length)).with_y(mean, per=1e3)


def draw_growth(axes: Axes, _: str, marks: Sequence[Mark], looks: Mapping[str, drawing.Look]) -> None:
    """Draw a line per defense."""
    drawing.draw_lines(axes, marks, looks)
    ticks = range(0, _LONGEST + 1, 2)
    axes.set_xticks(ticks, [*map(str, ticks[:-1]), f"{_LONGEST}+"])
    axes.set(xlim=(-0.5, _LONGEST + 0.5), xlabel="Trajectory length (tool results)")
    axes.set_ylim(bottom=0)
    axes.set_ylabel("Thousand tokens per case")
