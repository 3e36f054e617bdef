"""The report's figures as images inside the page: overall rates, and the paper's."""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from agentsys.analysis.html_report.case_views import View
from agentsys.analysis.metrics.rates import DEFENSE_QUALITY, PERCENT
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.result_frame import ResultFrame, Sheet, arrange_sheets
from agentsys.analysis.tables.table_document import make_plain
from agentsys.errors import ConfigError
from agentsys.records.case_row import NO_ATTACK, is_simulated_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from agentsys.analysis.figures.drawing import DrawnFigure
    from agentsys.analysis.figures.figure_data import Look, Mark


def draw_paper_figures(frame: ResultFrame) -> list[View]:
    """Draw the overall rates, and those of the paper's figures that the runs have cases for.

    Returns:
        Each with its `title`, its `image` (SVG in base64, in which a browser runs and loads nothing) and
        the plotted `numbers` as CSV. A figure of the paper shows one model.
    """
    # matplotlib costs a second or more, and is only needed here.
    from agentsys.analysis.figures.figure_catalog import FIGURES, make_figure

    images: list[View] = []
    with warnings.catch_warnings():
        # Names in runs may hold characters that the font lacks: they show as boxes.
        warnings.simplefilter("ignore", UserWarning)
        for sheet in arrange_sheets(frame.rows):
            images.append(_make_image(f"{sheet.title}: overall rates, in percent", draw_rates(sheet)))
        for kind in FIGURES.values():
            if not kind.select(frame.reading.cases).lines:
                continue
            try:
                drawn = make_figure(kind, frame.reading.cases, frame.errors)
            except ConfigError:  # nothing to draw: published runs hold no tokens, say
                continue
            images.append(_make_image(kind.title, drawn))
    return images


def draw_rates(sheet: Sheet) -> DrawnFigure:
    """Draw a row per defense and attack, a panel per metric; not the defense quality, a product of two others."""
    from agentsys.analysis.figures.drawing import DrawnFigure, Layout, apply_style, draw_panels
    from agentsys.analysis.figures.figure_data import Mark, choose_looks, shorten_name

    marks = [
        Mark(metric, line.name, one.value, float(place), x_low=one.ci_low, x_high=one.ci_high,
             x_unit=PERCENT, y_unit="row", n=one.n, simulated=is_simulated_name(sheet.model),
             model=sheet.model, version=sheet.version, verdict=one.verdict, reasons=one.reasons)
        for place, line in enumerate(sheet.lines)
        for metric in sheet.titles
        if (one := line.numbers.get((metric, OVERALL))) and not math.isnan(one.value)
        if metric != DEFENSE_QUALITY
    ]  # fmt: skip
    attacks = ["" if line.attack == NO_ATTACK else f"\n{shorten_name(line.attack)}" for line in sheet.lines]
    names = [shorten_name(line.defense) + under for line, under in zip(sheet.lines, attacks, strict=True)]
    panels = {mark.panel: sheet.titles[mark.panel] for mark in marks} or {"": "no rates"}
    words = (make_plain(sheet.title), (), ("Bars: 95% intervals, user and injection tasks resampled.",))
    with apply_style():
        of_defense = choose_looks({line.defense: line.defense for line in sheet.lines})
        looks = {line.name: of_defense[line.defense] for line in sheet.lines}
        layout = Layout(0.8, row_height=0.4, most=len(names) + 1, legend=False)
        figure = draw_panels(panels, marks, looks, partial(_draw_rows, names), layout, words)
    return DrawnFigure("rates", figure, marks)


def _draw_rows(
    names: list[str], axes: Axes, _: str, marks: Sequence[Mark], looks: Mapping[str, Look]
) -> None:
    from agentsys.analysis.figures.drawing import draw_point

    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(-10, 110), ylim=(len(names) - 0.4, -0.8), xlabel="%")
    axes.label_outer()
    for mark in marks:
        draw_point(axes, mark, looks[mark.series])
        axes.annotate(f"{mark.x:.1f}", (mark.x, mark.y), xytext=(0, 6), textcoords="offset points",
                      ha="center", fontsize=7)  # fmt: skip


def _make_image(title: str, drawn: DrawnFigure) -> View:
    import matplotlib

    from agentsys.analysis.figures.drawing import apply_style
    from agentsys.analysis.figures.figure_data import write_marks_csv

    file = io.BytesIO()
    # Outlines instead of text, since an image cannot load a font; ids that are the same every time.
    with apply_style(), matplotlib.rc_context({"svg.fonttype": "path", "svg.hashsalt": "agentsys"}):
        drawn.figure.savefig(file, format="svg", metadata={"Date": None})
    image = base64.b64encode(file.getvalue()).decode()
    return {"title": title, "image": image, "numbers": write_marks_csv(drawn.marks)}
