"""`page`: the values of a report in the template, under a policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agentsys.analysis.html_report.facts import ConfigGroup, ErrorGroup, VersionGroup
from agentsys.analysis.html_report.interval_figure import IntervalFigure
from agentsys.analysis.html_report.paper_figures import PaperFigure
from agentsys.analysis.html_report.token_figure import TokenFigure
from agentsys.analysis.tables.document import Grid
from agentsys.analysis.tables.escaping import plain

_TEMPLATES = Path(__file__).with_name("templates")
_SCRIPTS = ("elements.js", "store.js", "filters.js", "case_list.js", "conversation.js", "agent_tree.js",
            "case_view.js", "sorting.js", "start.js")  # fmt: skip
"""Joined in this order into the page's one script."""


_STEERING = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


@dataclass(frozen=True)
class SheetView:
    """Tables and figure of one model on one version of a benchmark."""

    title: str
    grids: Sequence[Grid]
    """The last one, by suite, is folded away."""
    figure: IntervalFigure


@dataclass(frozen=True)
class PageNumbers:
    """What is counted and measured: the head of the page, its tables and figures."""

    counts: list[tuple[str, str]]
    """Label and number, for the head of the page."""
    simulated_cases: int
    all_cases: int
    sheets: list[SheetView]
    notes: tuple[str, ...]
    tokens: TokenFigure | None
    paper_figures: Sequence[PaperFigure] = ()


@dataclass(frozen=True)
class PageContent:
    """Everything the template shows. Plain texts are escaped by the template."""

    title: str
    folders: list[str]
    made_by: str
    """E.g. `agentsys 0.1.0, 2026-01-31 12:00`."""
    numbers: PageNumbers
    index: Markup
    """The list of cases, from `data_block`."""
    trajectories: Markup
    """Texts and trajectories, likewise."""
    errors: Sequence[ErrorGroup] = ()
    skipped: Sequence[str] = ()
    configs: Sequence[ConfigGroup] = ()
    versions: Sequence[VersionGroup] = ()
    left_out: str = ""
    """One sentence if trajectories are left out; empty otherwise."""


def page(content: PageContent) -> str:
    """The whole report as one HTML document."""
    style = _template("report.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_template(name) for name in _SCRIPTS) + "\n})();\n"
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Names in grids are as they were found: made plain here, and escaped where they are put down.
    environment.filters["plain"] = plain
    return environment.get_template("page.html").render(
        content=content,
        numbers=content.numbers,
        policy=_policy(script, style, images=bool(content.numbers.paper_figures)),
        style=Markup(style),
        script=Markup(script),
    )


def page_title(folders: Sequence[str]) -> str:
    """The page's heading, from the folders' names."""
    names = [plain(Path(folder).name or folder) for folder in folders]
    if len(names) > 2:
        return f"Runs in {names[0]} and {len(names) - 1} more folders"
    return f"Runs in {' and '.join(names)}" if names else "Stored runs"


def _policy(script: str, style: str, *, images: bool) -> str:
    """Only this script and style sheet, and images inside the page; no forms, no text made into markup."""
    return "; ".join(
        [
            "default-src 'none'",
            *(["img-src data:"] if images else []),
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        ]
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def data_block(value: object) -> Markup:
    """JSON in which no character can end the element, open a comment or begin an entity.

    Returns:
        ASCII only, so that line and paragraph separators (U+2028, U+2029) are escapes too. Marked as
        markup: inside `<script type="application/json">` HTML's own escapes would not be undone.

    Raises:
        ValueError: For `nan` and infinities, which the browser's parser would refuse.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_STEERING))
