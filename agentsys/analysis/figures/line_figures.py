"""Figures made of lines: Table 1 by round, tokens by trajectory length, ASR by the attacker's budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from agentsys.analysis.figures import drawing
from agentsys.analysis.figures.figure_data import WHISKERS_CAPTION, Mark, Selection
from agentsys.analysis.metrics.rates import PERCENT
from agentsys.analysis.metrics.rates_by_length import TokensOf, acting_tokens, asr_by_round, mean_tokens
from agentsys.analysis.metrics.search_budget import (
    ASR,
    BudgetRow,
    Search,
    budget_rows,
    textless_notes,
    usual_budgets,
)
from agentsys.analysis.paper.paper_tables import ATTACK, ROUND_LENGTHS, RunLine, make_round_spot
from agentsys.analysis.published import printed_in
from agentsys.analysis.statistics.outcome_grid import CONFIDENCE, ErrorRule, Resampler
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.table_document import plain
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError, unknown_name
from agentsys.records.case_row import is_simulated_name, strip_simulated_mark

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
_MOST_ATTACKS = 3
"""Attacks shown side by side at most in the figure of budgets."""


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


def make_budget_figure(
    searches: Sequence[Search], name: str, model: str | None = None
) -> drawing.DrawnFigure:
    """Draw attack success against the attacker's budget: a line per defense, a panel per attack.

    Of at least one search; by default of the model with the most. The name is the stem of the files.

    Raises:
        ConfigError: If the runs do not have the model.
    """
    sizes = Counter(search.model for search in searches)
    fitting = [one for one in sizes if model is None or model in (one, strip_simulated_mark(one))]
    if not fitting:
        raise ConfigError(unknown_name("model in these runs", str(model), list(sizes)))
    chosen = max(sorted(fitting), key=lambda one: sizes[one])
    mine = [search for search in searches if search.model == chosen]
    attacks = sorted({search.case.attack for search in mine})
    others, unseen = sorted(set(sizes) - {chosen}), attacks[_MOST_ATTACKS:]
    mine = [search for search in mine if search.case.attack not in unseen]
    every = list(range(1, max(search.budget * search.tried_on for search in mine) + 1))
    rows = [row for row in budget_rows(mine, every) if (row.measure, row.suite) == (ASR, OVERALL)]
    marks = _list_budget_marks(rows)
    versions = ", ".join(dict.fromkeys(mark.version for mark in marks))
    subtitle = [f"{plain(chosen)}, benchmark version {plain(versions)}."]
    if is_simulated_name(chosen):
        subtitle.insert(0, "SIMULATED: from a scripted agent and attacker, not from language models.")
    notes = [
        f"Bands: {CONFIDENCE:.0f}% intervals, tasks resampled. Unit: one search; a query is one run of the "
        "agent. Mean of the suites. Searches that errored, were interrupted or had no text of an "
        "attacker are left out.",
        *([f"Also in the runs: {plain(', '.join(others))} (choose with --model)."] if others else []),
        *(plain(note) for note in textless_notes(mine)),
        *([f"Not drawn, for room: {plain(', '.join(unseen))}."] if unseen else []),
    ]
    panels = {attack: plain(attack) for attack in attacks[:_MOST_ATTACKS]}
    words = ("Targeted ASR by the attacker's budget", subtitle, notes)
    with drawing.apply_style():
        figure = drawing.draw_panels(panels, marks, _draw_steps, 3.8, words)
    return drawing.DrawnFigure(name, figure, marks)


def _list_budget_marks(rows: Sequence[BudgetRow]) -> list[Mark]:
    several = len({(row.benchmark, row.version) for row in rows}) > 1
    return [
        Mark(
            row.attack,
            f"{row.defense}, {row.benchmark} {row.version}" if several else row.defense,
            float(row.budget or 0),
            *(row.value, row.ci_low, row.ci_high),
            n=row.n,
            x_unit="queries",
            y_unit=PERCENT,
            simulated=is_simulated_name(row.model),
            model=row.model,
            version=row.version,
        )
        for row in rows
        if not math.isnan(row.value)
    ]


def _draw_steps(axes: Axes, _: str, marks: Sequence[Mark], looks: Mapping[str, drawing.Look]) -> None:
    most = max((mark.x for mark in marks), default=1.0)
    for name, some in group_by(marks, lambda mark: mark.series).items():
        mine = sorted(some, key=lambda mark: mark.x)
        # A budget of 2.5 queries is one of 2: the value holds until the next query. The last one is
        # drawn out a little, or a search of a single query would have no line.
        mine.append(replace(mine[-1], x=mine[-1].x + 0.5))
        x, y, low, high = ([getattr(mark, key) for mark in mine] for key in ("x", "y", "y_low", "y_high"))
        axes.step(x, y, where="post", color=looks[name].color, ls=looks[name].dashes, lw=1.4, zorder=3)
        axes.fill_between(x, low, high, step="post", color=looks[name].color, alpha=0.12, lw=0, zorder=1)
    axes.set(xlim=(0.5, most + 0.7), ylim=(-2, 102), xlabel="Queries", ylabel="Targeted ASR, %")
    axes.set_xticks(usual_budgets(int(most)))
    axes.label_outer()
