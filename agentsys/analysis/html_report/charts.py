"""The report's figures: two as coordinates for the page's SVG, and the paper's as images inside the page."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from agentsys.analysis.html_report.case_views import View
from agentsys.analysis.metrics.rates import DEFENSE_QUALITY, MetricRow
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.results_document import ResultsLine, Sheet
from agentsys.analysis.tables.table_document import plain, shortened
from agentsys.base.grouping import group_by
from agentsys.errors import ConfigError
from agentsys.records.case_row import NO_ATTACK, CaseRow

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABELS = 230
"""Width of the column of names, in the SVG's units as all that follow."""
_LONGEST_NAME = 30
_PANEL, _GAP = 210, 46
_TOP, _ROW = 44, 44
_BARS, _BAR_ROW, _BAR_HEIGHT = 560, 52, 16
_NARROWEST_LABEL = 70.0
"""Width of a part of a bar that can hold its own label."""
_COLOURS = 6
"""The style sheet has this many; roles beyond share the last."""


def make_interval_chart(sheet: Sheet) -> View:
    """Place each rate of each line, over all suites, with its interval: one panel per metric."""
    present = {metric for line in sheet.lines for metric, suite in line.numbers if suite == OVERALL}
    # The defense quality is the product of two metrics that are drawn.
    shown = {key: title for key, title in sheet.titles.items() if key in present - {DEFENSE_QUALITY}}
    bottom = _TOP + _ROW * len(sheet.lines)
    return {
        "title": plain(sheet.title),
        "width": _LABELS + len(shown) * (_PANEL + _GAP),
        "height": bottom + 28,
        "top": _TOP,
        "bottom": bottom,
        "panels": [
            {
                "title": title,
                "left": _panel_x(place),
                "ticks": [
                    (_panel_x(place) + _PANEL * percent / 100, percent) for percent in (0, 25, 50, 75, 100)
                ],
            }
            for place, title in enumerate(shown.values())
        ],
        "rows": [_make_row(line, place, shown) for place, line in enumerate(sheet.lines)],
    }


def _panel_x(panel: int) -> float:
    return _LABELS + panel * (_PANEL + _GAP)


def _make_row(line: ResultsLine, place: int, titles: Mapping[str, str]) -> View:
    dots = [
        _make_dot(number, _panel_x(panel), f"{line.name}, {title}")
        for panel, (metric, title) in enumerate(titles.items())
        if (number := line.numbers.get((metric, OVERALL))) is not None and not math.isnan(number.value)
    ]
    attack = _shorten(line.verdict or ("" if line.attack == NO_ATTACK else line.attack))
    return {
        "y": _TOP + _ROW * (place + 0.5),
        "defense": _shorten(line.defense),
        "attack": attack,
        "dots": dots,
    }


def _make_dot(number: MetricRow, left: float, about: str) -> View:
    known = not math.isnan(number.ci_low)
    ends = (number.ci_low, number.ci_high) if known else (number.value, number.value)
    x, low, high = (round(left + _PANEL * percent / 100, 2) for percent in (number.value, *ends))
    interval = f", 95% interval {number.ci_low:.1f} to {number.ci_high:.1f}" if known else ""
    # The same in words, for screen readers and as a tooltip.
    title = plain(f"{about}: {number.value:.2f}%{interval}, n = {number.n}")
    return {"x": x, "low": low, "high": high, "label": f"{number.value:.1f}", "title": title}


def _shorten(name: str) -> str:
    return shortened(name, _LONGEST_NAME)


def make_token_chart(cases: Iterable[CaseRow]) -> View | None:
    """Place a bar per defense: mean tokens (prompt and completion) per case, role by role.

    Cases whose tokens are unknown are left out, and so are injection tasks run on their own.

    Returns:
        None if no case says how many it took.
    """
    counted = [case for case in cases if case.tokens_by_role and case.is_scored]
    if not counted:
        return None
    groups = group_by(counted, lambda case: (case.table_model, case.defense != "none", case.defense))
    means = {key: _average_tokens(groups[key]) for key in sorted(groups)}
    totals: Counter[str] = Counter()
    for mean in means.values():
        totals.update(mean)
    # The role that spends most first.
    roles = sorted(totals, key=lambda role: (-totals[role], role))
    longest = max(sum(mean.values()) for mean in means.values()) or 1.0
    bars = [
        {
            "y": _BAR_ROW * place + 8,
            "model": _shorten(model),
            "defense": _shorten(defense),
            **_make_parts(mean, roles, longest),
        }
        for place, ((model, _, defense), mean) in enumerate(means.items())
    ]
    width, height = _LABELS + _BARS + 90, _BAR_ROW * len(bars) + 8
    return {"width": width, "height": height, "bar_height": _BAR_HEIGHT, "roles": roles, "bars": bars}


def _average_tokens(cases: Sequence[CaseRow]) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for case in cases:
        for role, tokens in case.tokens_by_role.items():
            sums[_shorten(role)] += tokens
    return {role: total / len(cases) for role, total in sums.items()}


def _make_parts(mean: Mapping[str, float], roles: Sequence[str], longest: float) -> View:
    """Place one bar's parts, one per role; a part that is too narrow has no label."""
    parts = []
    x = float(_LABELS)
    for index, role in enumerate(roles):
        if role not in mean:
            continue
        width = _BARS * mean[role] / longest
        label = f"{role} {_write_thousands(mean[role])}"
        parts.append(
            {
                "x": round(x, 2),
                "width": round(width, 2),
                "colour": min(index, _COLOURS - 1),
                "label": label if width >= max(_NARROWEST_LABEL, 7.5 * len(label)) else "",
                "title": f"{role}: {mean[role]:,.0f} tokens",
            }
        )
        x += width
    total = sum(mean[role] for role in roles if role in mean)
    return {"parts": parts, "total": _write_thousands(total), "end": round(x, 2)}


def _write_thousands(tokens: float) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else f"{tokens:.0f}"


def draw_paper_figures(cases: Sequence[CaseRow], errors: ErrorRule = ErrorRule.REPORT) -> list[View]:
    """Draw those of the paper's figures that the runs have cases for, one model in each.

    Returns:
        Each with its `title`, its `image` (SVG in base64, in which a browser runs and loads nothing) and
        the plotted `numbers` as CSV.
    """
    # matplotlib costs a second or more, and is only needed here.
    from agentsys.analysis.figures.figure_catalog import FIGURES, make_figure
    from agentsys.analysis.figures.figure_data import write_marks_csv

    images: list[View] = []
    for kind in FIGURES.values():
        if not kind.select(cases).lines:
            continue
        with warnings.catch_warnings():
            # Names in runs may hold characters that the font lacks: they show as boxes.
            warnings.simplefilter("ignore", UserWarning)
            try:
                drawn = make_figure(kind, cases, errors)
            except ConfigError:  # nothing to draw: published runs hold no tokens, say
                continue
            image, numbers = _write_svg(drawn.figure), write_marks_csv(drawn.marks)
            images.append({"title": kind.heading, "image": image, "numbers": numbers})
    return images


def _write_svg(figure: Figure) -> str:
    import matplotlib

    from agentsys.analysis.figures.drawing import apply_style

    file = io.BytesIO()
    # Outlines instead of text, since an image cannot load a font; ids that are the same every time.
    with apply_style(), matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "agentsys"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    return base64.b64encode(file.getvalue()).decode()
