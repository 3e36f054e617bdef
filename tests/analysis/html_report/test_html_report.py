"""The HTML report without a browser: what goes in, how it is escaped, what is left out; its command."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from asb_cases import attacked, benign, control
from command_output import command_output
from hypothesis import given
from hypothesis import strategies as st
from reported_cases import (
    AGENT_TREE,
    HOSTILE,
    PAYLOAD,
    index_of,
    rows_of,
    store,
    store_attacked,
    store_benign,
    store_hostile,
    texts_of,
    trajectories_of,
    unpacked,
)
from stored_cases import case_of, store_own

from agentsys.analysis.figures.figure_catalog import FIGURES
from agentsys.analysis.html_report.charts import draw_paper_figures
from agentsys.analysis.html_report.page import HtmlReport, make_html_report, write_embedded_json
from agentsys.analysis.tables.result_frame import ResultFrame
from agentsys.records.case_reader import read_cases
from agentsys.records.case_row import CaseRow

READ_BACK = HOSTILE.replace("\ud800", "\\ud800")
"""A lone surrogate is spelled out when a file is read."""


def made(folder: Path, **limits: Any) -> HtmlReport:
    reading = read_cases([folder])
    return make_html_report(ResultFrame(reading), [str(folder)], **limits)


def shown_texts(document: str) -> list[str]:
    return [text if isinstance(text, str) else "".join(text) for text in texts_of(document)]


def test_a_case_is_there_with_messages_tree_and_marked_injection(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    document = made(tmp_path).html
    [row], [view], texts = index_of(document), trajectories_of(document), texts_of(document)
    assert (row["suite"], row["user_task"], row["outcome"]) == ("banking", "user_task_0", "attack_unseen")
    roles = " ".join(message["role"] for message in view["messages"])
    assert roles == "system user assistant tool assistant"
    marked = texts[view["messages"][3]["parts"][0]]
    assert "".join(marked[1].split()) == "".join(PAYLOAD.split())
    assert [span["kind"] for span in view["spans"]] == [span["kind"] for span in AGENT_TREE]
    assert [span.get("parent") for span in view["spans"]] == [None, 0, 1, 1, 3, 1]


def test_no_hostile_text_becomes_markup_anywhere_in_the_document(tmp_path: Path) -> None:
    store_hostile(tmp_path)
    document = made(tmp_path).html
    without_data = re.sub(r"(<script type=[^>]*>).*?(</script>)", r"\1\2", document)
    assert document.count("<script") == document.count("</script>") == 4
    for tag in ("<img", "<iframe", '<a href="javascript', "<svg onload", "<details open ontoggle"):
        assert tag not in without_data
    assert "49" not in re.findall(r"<title>(.*?)</title>", document)[0]
    assert READ_BACK in shown_texts(document)
    [view] = trajectories_of(document)
    assert view["messages"][2]["calls"][0]["tool"] == READ_BACK[:200]
    # The tables hold the names, as text.
    assert "&lt;img src=" in without_data


@given(st.text(st.characters(codec=None)) | st.lists(st.text()))
def test_embedded_data_never_leaves_its_element(value: object) -> None:
    block = str(write_embedded_json(value))
    assert block.isascii()
    assert not set("<>&\u2028\u2029") & set(block)
    assert json.loads(block) == value


def test_embedded_data_refuses_what_a_browser_could_not_parse() -> None:
    with pytest.raises(ValueError):
        write_embedded_json([float("nan")])


def test_the_papers_figures_are_images_inside_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in FIGURES if name not in ("3", "4")]:  # each takes a second to draw
        monkeypatch.delitem(FIGURES, name)
    store_attacked(tmp_path, defense="<script>pwned = 1</script>$x^2$ {{ 7 }} \u202e")
    store_attacked(tmp_path, defense="none", security=True)
    reading = read_cases([tmp_path])
    figures = draw_paper_figures(ResultFrame(reading))
    document = make_html_report(ResultFrame(reading), figures=figures).html
    assert len(figures) > 1
    assert document.count('src="data:image/svg+xml;base64,') == len(figures)
    assert "img-src data:" in document
    assert document.count("<script") == document.count("</script>") == 4
    for figure in figures:
        image = base64.b64decode(figure["image"]).decode()
        assert image.startswith("<?xml") and "<script" not in image and "<text" not in image
    assert figures == draw_paper_figures(ResultFrame(reading))


def test_the_policy_allows_the_pages_own_script_and_style_only_and_nothing_is_loaded(tmp_path: Path) -> None:
    store_attacked(tmp_path)
    document = made(tmp_path).html
    policy = html.unescape(
        re.findall(r'<meta http-equiv="Content-Security-Policy" content="(.*?)">', document)[0]
    )
    directives = dict(part.split(" ", 1) for part in policy.split("; "))
    assert directives["default-src"] == "'none'"
    for name, tag in (("script-src", "script"), ("style-src", "style")):
        [content] = re.findall(rf"<{tag}>(.*?)</{tag}>", document, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert directives[name] == f"'sha256-{digest}'"
    assert not re.search(r"\son\w+=|\sstyle=", re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL))
    assert not re.search(r"<(link|img|iframe|object|embed|base)\b|\ssrc=|@import|url\(|https?://", document)
    assert all(target.startswith("#") for target in re.findall(r'href="(.*?)"', document))


def test_the_pages_script_makes_no_markup_from_text() -> None:
    folder = Path(__file__).parents[3] / "agentsys" / "analysis" / "html_report" / "templates"
    scripts = "".join(path.read_text() for path in folder.glob("*.js"))
    assert len(scripts) > 10_000
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(|DOMParser|setHTML",
        scripts,
    )


def test_simulated_cases_are_marked_at_the_head_and_in_the_list(tmp_path: Path) -> None:
    store_attacked(tmp_path, simulated=True)
    store_attacked(tmp_path, model="real", user_task_id="user_task_1")
    document = made(tmp_path).html
    assert re.search(r'class="banner simulated".*?1 of 2\s+cases|<strong>Simulated', document, re.DOTALL)
    assert [row["simulated"] for row in index_of(document)] == [True, False]
    assert index_of(document)[0]["model"] == "gpt-4o (simulated)"


def test_over_the_limit_every_kind_of_case_is_kept_and_the_rest_is_named(tmp_path: Path) -> None:
    for task in range(6):
        store_attacked(tmp_path, user_task_id=f"user_task_{task}")
    store_attacked(tmp_path, user_task_id="user_task_7", status="error", error_kind="timeout", suite="slack")
    store_attacked(tmp_path, user_task_id="user_task_8", suite="slack")
    found = made(tmp_path, max_cases=3)
    assert (found.trajectories, found.left_out) == (3, 5)
    assert "5 of 8 trajectories are left out: at most 3 were asked for." in found.html
    index, views = index_of(found.html), trajectories_of(found.html)
    kept = [row for row, view in zip(index, views, strict=True) if view is not None]
    assert len(index) == 8
    assert {(row["suite"], row["outcome"]) for row in kept} == {
        ("banking", "attack_unseen"),
        ("slack", "attack_unseen"),
        ("slack", "error"),
    }


def test_a_file_that_would_grow_too_large_stops_taking_trajectories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = {"messages": [{"role": "user", "content": "long " * 2000}]}
    sizes = [
        store(tmp_path, user_task_id=f"user_task_{task}", stored=messages).stat().st_size for task in range(4)
    ]
    monkeypatch.setattr("agentsys.analysis.html_report.page.MOST_BYTES", sum(sizes[:2]) + 1000)
    found = made(tmp_path)
    assert (found.trajectories, found.left_out) == (2, 2)
    assert "too large" in found.html


def test_a_report_of_many_cases_holds_all_trajectories_only_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentsys.analysis.html_report.page.MOST_IN_ONE_FILE", 2)
    monkeypatch.setattr("agentsys.analysis.html_report.page.MOST_UNASKED", 1)
    for task in range(3):
        store_attacked(tmp_path, user_task_id=f"user_task_{task}")
    assert "2 of 3 trajectories are left out: unless more are asked for, 1 are shown" in made(tmp_path).html
    assert made(tmp_path, max_cases=3).trajectories == 3


def test_data_of_many_cases_are_scripts_beside_the_page_in_parts_and_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentsys.analysis.html_report.page.MOST_IN_ONE_FILE", 4)
    monkeypatch.setattr("agentsys.analysis.html_report.packed_data.CASES_PER_PART", 2)
    monkeypatch.setattr("agentsys.analysis.html_report.packed_data.CASES_PER_BLOCK", 3)
    for task in range(5):
        store_attacked(tmp_path, user_task_id=f"user_task_{task}")
    out = tmp_path / "elsewhere" / "all.html"
    assert "its data in all_files/: 5 trajectories" in run(tmp_path, "--out", out)
    names = {path.name for path in (tmp_path / "elsewhere" / "all_files").iterdir()}
    assert names == {"index-0.js", "index-1.js", "index-2.js", "cases-0.js", "cases-1.js"}
    rows, blocks = [], []
    for name in sorted(names):
        script = (tmp_path / "elsewhere" / "all_files" / name).read_text()
        call = re.fullmatch(r'agentsysPart\("([\w-]+)", "([A-Za-z0-9+/=]+)"\);\n', script)
        assert call and f"{call[1]}.js" == name
        (rows if name.startswith("index") else blocks).append(unpacked(call[2]))
    assert [len(rows_of(part)) for part in rows] == [2, 2, 1]
    assert [len(block["trajectories"]) for block in blocks] == [3, 2]
    assert blocks[1]["first"] == len(blocks[0]["texts"]), "a text's number is that of one text"
    page = html.unescape(out.read_text())
    assert "script-src 'sha256-" in page and "'self'; " in page and "trusted-types report-files" in page


def test_a_case_has_the_verdict_of_its_cell(tmp_path: Path) -> None:
    for task in range(4):
        store_attacked(tmp_path, user_task_id=f"user_task_{task}")
    frame = ResultFrame(read_cases([tmp_path]))
    [expected] = {cell.verdict for cell in frame.cells.verdicts.values()}
    assert {row["verdict"] for row in index_of(made(tmp_path).html)} == {expected}


def test_errors_are_grouped_with_kind_and_message(tmp_path: Path) -> None:
    for task in range(3):
        store(
            tmp_path,
            user_task_id=f"user_task_{task}",
            status="error",
            error_kind="context_length",
            stored={"error": "the context\nis too long" if task else "other"},
        )
    document = made(tmp_path).html
    rows = re.findall(
        r'<th scope="row">context_<wbr>length</th>\s*<td>(.*?)</td>.*?"number">(\d+)', document, re.DOTALL
    )
    assert rows == [("the context", "2"), ("other", "1")]


def test_the_config_beside_the_runs_is_shown_and_the_length_of_what_was_cut_is_known(tmp_path: Path) -> None:
    (tmp_path / ".agentsys" / "configs").mkdir(parents=True)
    (tmp_path / ".agentsys" / "configs" / "abcdef12.config").write_text("the resolved config")
    long = {"messages": [{"role": "user", "content": "x" * 60_007}]}
    store(tmp_path, config_hash="abcdef12", stored=long)
    document = made(tmp_path).html
    assert "<pre>the resolved config</pre>" in document
    assert trajectories_of(document)[0]["characters_cut"] == 7


def test_a_config_hash_cannot_lead_out_of_the_folder(tmp_path: Path) -> None:
    logdir = tmp_path / "logs"
    (logdir / ".agentsys" / "configs").mkdir(parents=True)
    (logdir / "secret.config").write_text("top secret")
    store(logdir, config_hash="../../secret")
    assert "top secret" not in made(logdir).html


@pytest.mark.parametrize(
    "stored",
    [
        {"messages": None},
        {"messages": "text"},
        {"messages": [1, None, [], {"role": 3, "content": {"type": "text"}}, {"content": [[], 5, {}]}]},
        {
            "messages": [
                {"role": "assistant", "content": None, "tool_calls": [{}, 3, {"function": 5, "args": [1]}]}
            ]
        },
        {
            "messages": [
                {"role": "tool", "content": [{"type": "thinking"}], "tool_call": 5, "error": {"a": 1}}
            ]
        },
        {"error": ["no", "text"], "injections": [1], "duration": "soon"},
        {"conversations": [{"role": "user", "content": "DRIFT"}], "messages": []},
    ],
)
def test_files_with_values_of_the_wrong_type_make_a_report_all_the_same(
    tmp_path: Path, stored: dict[str, Any]
) -> None:
    store(tmp_path, stored=stored)
    assert made(tmp_path).trajectories == 1


def test_a_file_that_vanished_after_it_was_read_costs_its_messages_only(tmp_path: Path) -> None:
    path = store_attacked(tmp_path)
    reading = read_cases([tmp_path])
    path.unlink()
    found = make_html_report(ResultFrame(reading))
    assert trajectories_of(found.html)[0]["messages"] == []


def test_deeply_nested_arguments_are_said_to_be_so(tmp_path: Path) -> None:
    path = store(tmp_path)
    nested = "[" * 900 + "]" * 900
    call = f'{{"role": "assistant", "content": "", "tool_calls": [{{"function": "f", "args": {nested}}}]}}'
    path.write_text(path.read_text().replace('"messages": []', f'"messages": [{call}]', 1))
    assert made(tmp_path).trajectories == 1


def test_published_runs_make_a_report_with_their_injections_marked(published: Any) -> None:
    document = made(published("agentdojo-gpt-4o-mini-2024-07-18"), max_cases=60).html
    marked = [text for text in texts_of(document) if isinstance(text, list)]
    assert len(marked) > 20
    assert all(len(text) % 2 for text in marked)
    assert sum("important message from me" in text[1] for text in marked) > 20


def stored(folder: Path, case: CaseRow) -> Path:
    names = ("benchmark", "version", "suite", "user_task_id", "injection_task_id", "attack", "model")
    label = case_of(defense=case.defense, **{name: getattr(case, name) for name in names})
    hit, measured = bool(case.injection_success), dict(case.measured)
    return store_own(folder, label, security=hit, utility=case.utility, measured=measured)


def tables(folder: Path) -> dict[str, str]:
    """Caption -> table of the report."""
    reading = read_cases([folder])
    page = make_html_report(ResultFrame(reading), [str(folder)]).html
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
    values = dict(zip(titles[1:], re.findall(r"<td[^>]*>([^ <]*)", line[0]), strict=True))
    assert (values["ASR executed"], values["Planner-chosen"], values["Injection-caused"]) == (
        "50.00",
        "25.00",
        "25.00",
    )
    assert (values["Control"], values["ASR - control"]) == ("25.00", "25.00")


def run(*arguments: object) -> str:
    """Run the command and return what it printed; figures, which take seconds, only where asked for."""
    return command_output("report", *arguments, *([] if "--figures" in arguments else ["--no-figures"]))


def test_the_command_writes_the_report_beside_the_runs_with_figures_where_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in FIGURES if name != "3"]:  # each takes a second to draw
        monkeypatch.delitem(FIGURES, name)
    store_attacked(tmp_path)
    store_benign(tmp_path)
    page = tmp_path / "report.html"
    assert f"Wrote {page}: 2 trajectories" in run(tmp_path)
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "Figure 3. Security" not in page.read_text(encoding="utf-8")
    run(tmp_path, "--figures")
    assert "Figure 3. Security" in page.read_text(encoding="utf-8")


def test_the_commands_out_and_max_cases_are_obeyed_and_a_half_written_record_is_named(tmp_path: Path) -> None:
    for task in range(3):
        path = store_attacked(tmp_path, user_task_id=f"user_task_{task}")
    path.write_text(path.read_text()[:200])
    out = tmp_path / "elsewhere" / "mine.html"
    assert "1 trajectory left out" in run(tmp_path, "--out", out, "--max-cases", 1)
    page = out.read_text(encoding="utf-8")
    assert "1 of 2 trajectories are left out" in page
    assert "Files that could not be used" in page and "not valid JSON, perhaps cut off" in page
