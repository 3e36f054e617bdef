"""`TokenFigure`: what each defense spends per case, role by role, as coordinates for the page's SVG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agentsys.analysis.html_report.interval_figure import short_name
from agentsys.base.grouping import group_by
from agentsys.records.case_row import CaseRow

_LABELS, _BARS, _ROW, _BAR_HEIGHT = 230, 560, 52, 16
_NARROWEST_LABEL = 70.0
"""Width of a part that can hold its own label."""
_COLOURS = 6
"""The style sheet has this many; roles beyond share the last."""


@dataclass(frozen=True)
class BarPart:
    """One role's share of a bar."""

    x: float
    width: float
    colour: int
    """Number of the colour, from 0."""
    label: str
    """Empty where the part is too narrow."""
    title: str


@dataclass(frozen=True)
class Bar:
    """Mean tokens per case of one defense."""

    y: float
    model: str
    defense: str
    parts: list[BarPart]
    total: str
    end: float


@dataclass(frozen=True)
class TokenFigure:
    """Everything the template needs to draw it."""

    width: int
    height: int
    bar_height: int
    roles: list[str]
    """In the order of their colours."""
    bars: list[Bar]


def token_figure(cases: Iterable[CaseRow]) -> TokenFigure | None:
    """Mean tokens (prompt and completion) per case; None if no case says how many it took.

    Cases whose tokens are unknown are left out, and so are injection tasks run on their own.
    """
    counted = [case for case in cases if case.tokens_by_role and case.is_scored]
    if not counted:
        return None
    groups = group_by(counted, lambda case: (case.table_model, case.defense))
    means = {name: _means(groups[name]) for name in sorted(groups, key=_order)}
    roles = _roles(means.values())
    longest = max(sum(mean.values()) for mean in means.values()) or 1.0
    bars = [
        _bar(place, name, [(role, mean[role]) for role in roles if role in mean], roles, longest)
        for place, (name, mean) in enumerate(means.items())
    ]
    return TokenFigure(_LABELS + _BARS + 90, _ROW * len(bars) + 8, _BAR_HEIGHT, roles, bars)


def _means(cases: Sequence[CaseRow]) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for case in cases:
        for role, tokens in case.tokens_by_role.items():
            sums[short_name(role)] += tokens
    return {role: total / len(cases) for role, total in sums.items()}


def _roles(means: Collection[Mapping[str, float]]) -> list[str]:
    """The role that spends most first."""
    totals = {role: sum(of.get(role, 0.0) for of in means) for mean in means for role in mean}
    return sorted(totals, key=lambda role: (-totals[role], role))


def _bar(
    place: int, name: tuple[str, str], parts: list[tuple[str, float]], roles: list[str], longest: float
) -> Bar:
    drawn: list[BarPart] = []
    x = float(_LABELS)
    for role, tokens in parts:
        width = _BARS * tokens / longest
        shown = f"{role} {_thousands(tokens)}"
        label = shown if width >= max(_NARROWEST_LABEL, 7.5 * len(shown)) else ""
        colour = min(roles.index(role), _COLOURS - 1)
        drawn.append(BarPart(round(x, 2), round(width, 2), colour, label, f"{role}: {tokens:,.0f} tokens"))
        x += width
    model, defense = name
    total = _thousands(sum(tokens for _, tokens in parts))
    return Bar(_ROW * place + 8, short_name(model), short_name(defense), drawn, total, round(x, 2))


def _thousands(tokens: float) -> str:
    return f"{tokens / 1000:.1f}k" if tokens >= 1000 else f"{tokens:.0f}"


def _order(name: tuple[str, str]) -> tuple[str, bool, str]:
    model, defense = name
    return model, defense != "none", defense
