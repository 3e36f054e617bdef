"""The report's page: stored runs -> one HTML file, under a policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from agentsys import __version__
from agentsys.analysis.html_report.case_list import (
    SetupFacts,
    make_link_to_cases,
    make_list_row,
    sort_for_reading,
)
from agentsys.analysis.html_report.case_views import TextStore, View, make_case_view, read_stored_json
from agentsys.analysis.tables.cost_documents import make_cost_output
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.results_document import make_results_document
from agentsys.analysis.tables.table_document import load_templates
from agentsys.base.grouping import format_count, group_by
from agentsys.records.case_reader import LoadedCases, describe_skipped
from agentsys.records.case_row import NO_ATTACK, CaseRow

MOST_CASES = 2_000
"""Trajectories in a report, at most, unless more are asked for."""
MOST_CHARACTERS = 40_000_000
"""Characters of all texts together; no further trajectory is added beyond."""
_TEMPLATES = Path(__file__).with_name("templates")
_SCRIPTS = ("elements.js", "store.js", "filters.js", "case_list.js", "conversation.js", "agent_tree.js",
            "case_view.js", "sorting.js", "start.js")  # fmt: skip
"""Joined in this order into the page's one script."""
_STEERING = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


class HtmlReport(NamedTuple):
    """The document and what is in it."""

    html: str
    trajectories: int
    left_out: int
    """Cases whose numbers count and whose trajectory is not in the document."""


def make_html_report(
    frame: ResultFrame,
    folders: Sequence[str] = (),
    *,
    max_cases: int = MOST_CASES,
    figures: Sequence[View] = (),
    made_on: str = "",
) -> HtmlReport:
    """Make one self-contained HTML document of what was read and measured.

    The files are read again for their messages. Trajectories are added up to `max_cases`, and as long as
    their texts have fewer than `MOST_CHARACTERS` together; every number covers all cases. `figures` are from
    `draw_paper_figures`; folders' names and the date stand at the head.
    """
    reading, facts, store = frame.reading, SetupFacts(), TextStore()
    cases = sort_for_reading(reading.cases)
    views: list[View | None] = [None] * len(cases)
    inside = 0
    for place in order_for_limit(cases):
        stored = read_stored_json(cases[place].source)
        facts.add(cases[place], stored)
        if inside < max_cases and store.characters < MOST_CHARACTERS:
            views[place] = make_case_view(cases[place], stored, store)
            inside += 1
    left_out = len(cases) - inside
    reason = (
        f"at most {max_cases:,} were asked for"
        if inside >= max_cases
        else f"the size limit of {MOST_CHARACTERS / 1e6:,.0f} million characters was reached"
    )
    html = _render(
        figures=figures,
        title=_write_title(folders),
        folders=folders,
        made_by=" · ".join(part for part in (f"agentsys {__version__}", made_on) if part),
        counts=_count_things(reading, inside),
        simulated_cases=sum(case.simulated for case in cases),
        all_cases=len(cases),
        results=make_results_document(frame, make_link_to_cases),
        costs=make_cost_output(cases).document,
        errors=facts.make_error_grid(),
        skipped=describe_skipped(reading.skipped_files, limit=50),
        configs=facts.list_configs(),
        versions=facts.make_version_grid(),
        left_out=f"{left_out:,} of {len(cases):,} trajectories are left out: {reason}." if left_out else "",
        index_data=write_embedded_json([make_list_row(case) for case in cases]),
        trajectory_data=write_embedded_json({"texts": store.list_texts(), "trajectories": views}),
    )
    return HtmlReport(html, inside, left_out)


def order_for_limit(cases: Sequence[CaseRow]) -> list[int]:
    """List the places of all cases, the ones to put into a limited report first.

    Errored cases come first. Then one case of every (benchmark, model, defense, attack, suite, outcome),
    then a second one of each, and so on: a report that holds some of the cases holds some of each kind.
    """

    def make_kind_key(place: int) -> tuple[object, ...]:
        case = cases[place]
        cell = (case.benchmark, case.version, case.table_model, case.defense, case.attack, case.suite)
        return (*cell, case.status, case.utility, case.injection_success)

    queues = group_by(range(len(cases)), make_kind_key).values()
    turn = {place: turn for queue in queues for turn, place in enumerate(queue)}
    return sorted(range(len(cases)), key=lambda place: (cases[place].status != "error", turn[place], place))


def _count_things(reading: LoadedCases, trajectories: int) -> list[list[str]]:
    cases = reading.cases
    counts = (
        format_count(len(cases), "case"),
        format_count(trajectories, "trajectory", "trajectories"),
        format_count(len({case.table_model for case in cases}), "model"),
        format_count(len({case.defense for case in cases}), "defense"),
        format_count(len({case.attack for case in cases} - {NO_ATTACK}), "attack"),
        format_count(sum(case.status == "error" for case in cases), "error"),
        format_count(len(reading.skipped_files), "skipped file"),
    )
    return [count.split(" ", 1) for count in counts]


def _write_title(folders: Sequence[str]) -> str:
    names = [Path(folder).name or folder for folder in folders]
    if len(names) > 2:
        return f"Runs in {names[0]} and {len(names) - 1} more folders"
    return f"Runs in {' and '.join(names)}" if names else "Stored runs"


def _render(*, figures: Sequence[View], **values: object) -> str:
    """Render the template; it makes plain and escapes every text that is not `Markup`."""
    style = _read_template("report.css")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_read_template, _SCRIPTS)) + "\n})();\n"
    policy = _write_policy(script, style, images=bool(figures))
    template = load_templates(_TEMPLATES).get_template("page.html")
    return template.render(
        policy=policy, style=Markup(style), script=Markup(script), figures=figures, **values
    )


def _write_policy(script: str, style: str, *, images: bool) -> str:
    """Allow only this script and style sheet, and images inside the page; no forms, no text made markup."""
    images_allowed = "img-src data:; " if images else ""
    return (
        f"default-src 'none'; {images_allowed}script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _read_template(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def write_embedded_json(value: object) -> Markup:
    """Write JSON in which no character can end the element, open a comment or begin an entity.

    Returns:
        ASCII only, so that line and paragraph separators (U+2028, U+2029) are escapes too. Marked as
        markup: inside `<script type="application/json">` HTML's own escapes would not be undone.

    Raises:
        ValueError: For `nan` and infinities, which the browser's parser would refuse.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_STEERING))
