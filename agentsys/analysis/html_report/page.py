"""The report's page: stored runs -> one HTML file, under a policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
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
from agentsys.analysis.html_report.case_views import View, make_case_view, read_stored_json
from agentsys.analysis.html_report.packed_data import (
    CASES_PER_BLOCK,
    LIST_PART,
    BlockWriter,
    pack_data,
    write_scripts,
)
from agentsys.analysis.tables.cost_documents import make_cost_output
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.analysis.tables.results_document import make_results_document
from agentsys.analysis.tables.table_document import load_templates
from agentsys.base.atomic_file import write_atomically
from agentsys.base.grouping import format_count, group_by
from agentsys.records.case_reader import LoadedCases, describe_skipped
from agentsys.records.case_row import NO_ATTACK, CaseRow

MOST_IN_ONE_FILE = 20_000
"""Cases of a report that is one file; of more, the data are files beside the page, which it reads as it needs them."""
MOST_UNASKED = 2_000
"""Trajectories of a larger report, unless more are asked for: each takes as long as reading ten records."""
MOST_BYTES = 1_000_000_000
"""Size of the records whose trajectories go into one file, together; no further trajectory is added beyond."""
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
    """Cases whose numbers count and whose trajectory is not in the report."""
    files: Mapping[str, str]
    """Name -> script with data, in the folder `beside`; empty where the page holds all."""
    beside: str

    def write(self, path: Path) -> float:
        """Write the page, and the files beside it where there are some; return their size in MB."""
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = path.with_name(self.beside)
        for name, script in self.files.items():
            folder.mkdir(exist_ok=True)
            write_atomically(folder / name, script.encode())
        write_atomically(path, self.html.encode())
        return (len(self.html) + sum(map(len, self.files.values()))) / 1e6


def make_html_report(
    frame: ResultFrame,
    folders: Sequence[str] = (),
    *,
    max_cases: int | None = None,
    figures: Sequence[View] = (),
    made_on: str = "",
    beside: str = "report_files",
    follow: str = "",
) -> HtmlReport:
    """Make the HTML document of what was read and measured.

    The files are read again for their messages. Every number covers all cases.

    Args:
        frame: What was read and measured.
        folders: Names for the head.
        max_cases: Most trajectories; None: of one file as many as `MOST_BYTES` allow, else `MOST_UNASKED`.
        figures: From `draw_paper_figures`.
        made_on: The date, for the head.
        beside: Folder of the data of more than `MOST_IN_ONE_FILE` cases, beside the page.
        follow: The stamp of the runs, for a page that a server follows; empty: nobody serves it.
    """
    reading, cases = frame.reading, sort_for_reading(frame.reading.cases)
    one_file = len(cases) <= MOST_IN_ONE_FILE
    unasked = len(cases) if one_file else MOST_UNASKED
    most = unasked if max_cases is None else max_cases
    shown = choose_shown(cases, most, MOST_BYTES if one_file else None)
    facts, blocks = _read_records(cases, shown)
    data = pack_data([make_list_row(case, frame.cells.verdicts) for case in cases], blocks)
    files = {} if one_file else write_scripts(data)
    about = {
        "cases": len(cases),
        "parts": sum(name.startswith(LIST_PART) for name in data),
        "blocks": len(blocks),
        "per_block": CASES_PER_BLOCK,
        "beside": beside if files else "",
        "follow": follow,
    }
    html = _render(
        figures=figures,
        title=_write_title(folders),
        folders=folders,
        made_by=" · ".join(part for part in (f"agentsys {__version__}", made_on) if part),
        counts=_count_things(reading, len(shown)),
        simulated_cases=sum(case.simulated for case in cases),
        all_cases=len(cases),
        results=make_results_document(frame, make_link_to_cases),
        costs=make_cost_output(cases).document,
        errors=facts.make_error_grid(),
        skipped=describe_skipped(reading.skipped_files, limit=50),
        configs=facts.list_configs(),
        versions=facts.make_version_grid(),
        left_out=_explain_left_out(len(cases), len(shown), max_cases),
        follow=follow,
        data={} if files else data,
        about_data=write_embedded_json(about),
    )
    return HtmlReport(html, len(shown), len(cases) - len(shown), files, beside)


def _explain_left_out(cases: int, shown: int, asked: int | None) -> str:
    few = (
        "the file would be too large"
        if cases <= MOST_IN_ONE_FILE
        else f"unless more are asked for, {shown:,} are shown of so many"
    )
    reason = f"at most {asked:,} were asked for" if shown == asked else few
    left_out = f"{cases - shown:,} of {cases:,} trajectories are left out: {reason}."
    return left_out if shown < cases else ""


def _read_records(cases: Sequence[CaseRow], shown: Collection[int]) -> tuple[SetupFacts, list[str]]:
    """Read each record once more: what it says of its setup, and the trajectories of `shown`, in packed blocks."""
    facts, writer = SetupFacts(), BlockWriter()
    for place, case in enumerate(cases):
        stored = read_stored_json(case.source)
        facts.add(case, stored)
        writer.add(make_case_view(case, stored, writer.texts) if place in shown else None)
    return facts, writer.close()


def choose_shown(cases: Sequence[CaseRow], most: int, most_bytes: int | None) -> set[int]:
    """Choose the places of the cases whose trajectories a report holds: some of each kind.

    Args:
        cases: All cases.
        most: Number of trajectories.
        most_bytes: Size of their records together; None: as large as they are.
    """
    sharing, shown, size = Counter(case.source for case in cases), set[int](), 0.0
    for place in order_for_limit(cases)[:most]:
        if most_bytes is not None:
            source = cases[place].source
            with suppress(OSError, ValueError):  # Gone, or a row of a results file.
                size += Path(source).stat().st_size / sharing[source]
            if size > most_bytes and shown:
                break
        shown.add(place)
    return shown


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


def _render(*, figures: Sequence[View], data: Mapping[str, str], follow: str, **values: object) -> str:
    """Render the template; it makes plain and escapes every text that is not `Markup`."""
    style = _read_template("report.css")
    script = '"use strict";\n(() => {\n' + "\n".join(map(_read_template, _SCRIPTS)) + "\n})();\n"
    policy = _write_policy(script, style, images=bool(figures), files=not data, follow=bool(follow))
    template = load_templates(_TEMPLATES).get_template("page.html")
    return template.render(
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        figures=figures,
        data={name: Markup(text) for name, text in data.items()},
        follow=follow,
        **values,
    )


def _write_policy(script: str, style: str, *, images: bool, files: bool, follow: bool) -> str:
    """Allow only this script and style sheet, images inside the page and data beside it; no forms, no made markup."""
    images_allowed = "img-src data:; " if images else ""
    beside = " 'self'" if files else ""
    asks = "connect-src 'self'; " if follow else ""
    return (
        f"default-src 'none'; {images_allowed}script-src '{_digest(script)}'{beside}; {asks}"
        f"style-src '{_digest(style)}'; base-uri 'none'; form-action 'none'; "
        f"require-trusted-types-for 'script'; trusted-types {'report-files' if files else chr(39) + 'none' + chr(39)}"
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
