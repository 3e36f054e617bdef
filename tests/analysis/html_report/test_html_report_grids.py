"""The HTML report has the tables that only some runs have: measured causes, paired denials of service."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

from asb_cases import attacked, benign, control
from reported_cases import HOSTILE
from stored_cases import case_of, store_own

from agentsys.analysis.html_report.build import html_report
from agentsys.analysis.tables.report import report
from agentsys.records.case_reader import read_cases
from agentsys.records.case_row import CaseRow


def stored(folder: Path, case: CaseRow) -> Path:
    names = (
        "benchmark",
        "version",
        "suite",
        "user_task_id",
        "injection_task_id",
        "attack",
        "model",
        "defense",
    )
    label = case_of(**{name: getattr(case, name) for name in names})
    return store_own(
        folder,
        label,
        security=bool(case.injection_success),
        utility=case.utility,
        measured=dict(case.measured),
    )


def tables(folder: Path) -> dict[str, str]:
    """Caption -> table of the report."""
    reading = read_cases([folder])
    page = html_report(reading, report(reading, replicates=20), [str(folder)]).html
    found = re.findall(r"<table>\s*<caption>(.*?)</caption>(.*?)</table>", page, re.DOTALL)
    return {html.unescape(caption): table for caption, table in found}


CAUSES = "What caused attacks to succeed, overall, in percent, with 95% intervals"
CONDUCT = "Utility and conduct by what was measured, overall, in percent, with 95% intervals"


def test_causes_and_conduct_stand_between_the_overall_numbers_and_those_by_suite(tmp_path: Path) -> None:
    for tool in range(4):
        stored(tmp_path, attacked("a", tool, hit=tool < 2, planned=tool < 1))
        stored(tmp_path, control("a", tool, hit=tool < 1))
    stored(tmp_path, benign("a"))
    found = tables(tmp_path)
    captions = list(found)
    assert captions.index(CAUSES) + 1 == captions.index(CONDUCT)
    assert "Overall" in captions[captions.index(CAUSES) - 1]
    assert captions[captions.index(CONDUCT) + 1].startswith("By suite")
    line = re.search(r"<tr>\s*<th.*?opi_context_ignoring.*?</tr>", found[CAUSES], re.DOTALL)
    assert line is not None and line[0].count("<td") == found[CAUSES].count('<th scope="col"') - 1
    titles = re.findall(r'<th scope="col"[^>]*>(.*?)</th>', found[CAUSES])
    values = dict(zip(titles[1:], re.findall(r"<td[^>]*>([^<]*)", line[0]), strict=True))
    assert (values["ASR executed"], values["Planner-chosen"], values["Injection-caused"]) == (
        "50.00",
        "25.00",
        "25.00",
    )
    assert (values["Control"], values["ASR - control"]) == ("25.00", "25.00")


def test_names_from_records_are_text_in_these_tables_too(tmp_path: Path) -> None:
    for tool in range(2):
        path = stored(tmp_path, attacked("a", tool, hit=True))
        content = json.loads(path.read_text())
        content["agentsys"]["case"] |= {"defense": HOSTILE[:-40], "attack": HOSTILE[:-40]}
        path.write_text(json.dumps(content))
    table = tables(tmp_path)[CAUSES]
    assert "&lt;script&gt;" in table
    tags = set(re.findall(r"<(/?\w+)", table))
    assert tags == {
        f"{slash}{tag}" for tag in ("thead", "tbody", "tr", "th", "td", "small") for slash in ("", "/")
    }
