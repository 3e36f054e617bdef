"""The paper's numbers as data; `agentsys table`: cells of published runs, empty cells, marks, notes, hostile names."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable
from dataclasses import fields, replace
from html.parser import HTMLParser
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
from command_output import command_output
from stored_cases import case_of, row, store_own

from agentsys.analysis.metrics.rates import BENIGN_UTILITY, TARGETED_ASR, UTILITY_UNDER_ATTACK
from agentsys.analysis.paper import paper_document
from agentsys.analysis.paper.paper_tables import (
    ATTACK,
    PER_CASE,
    SUITES,
    TABLES,
    FilledTable,
    fill_table,
    list_run_lines,
)
from agentsys.analysis.published import (
    PublishedNumber,
    find_published_dir,
    list_printed_in,
    load_model_names,
    load_published_numbers,
    shorten_model,
)
from agentsys.analysis.statistics.outcome_grid import ErrorRule
from agentsys.analysis.statistics.rate_estimates import OVERALL
from agentsys.analysis.tables.table_document import (
    Document,
    OutputFormat,
    render_html_document,
    write_latex_document,
    write_markdown_document,
)
from agentsys.cli.cli_output import render_output
from agentsys.cli.paper_command import table_command
from agentsys.errors import ConfigError
from agentsys.records.case_reader import LoadedCases, read_cases
from agentsys.records.case_row import CaseRow

NASTY = "a|b`c`<img src=x onerror=alert(1)>&\n[x](javascript:1)_%$#{}~^\\*\x1b[2J\u202e$\\input{/etc/passwd}$"


def _filled(number: int, cases: list[CaseRow] | tuple[CaseRow, ...]) -> FilledTable:
    return fill_table(TABLES[number], cases)


def _grid(*, model: str = "gpt-4o-mini", defense: str = "none", **fields: Any) -> list[CaseRow]:
    """Two user tasks and two injection tasks of every suite, benign and attacked."""
    plain = {"model": model, "defense": defense} | fields
    cases = []
    for suite in SUITES:
        for user in ("user_task_0", "user_task_1"):
            about = {"suite": suite, "user_task_id": user} | plain
            cases.append(row(attack="none", **about))
            cases += [row(injection_task_id=f"injection_task_{goal}", **about) for goal in range(2)]
    return cases


def _document(number: int, cases: list[CaseRow]) -> Document:
    return paper_document.make_paper_document(_filled(number, cases), LoadedCases(tuple(cases)))


def test_table_4_takes_the_transferred_search_for_pair_and_no_other() -> None:
    attacked = [case for case in _grid(defense="agentsys") if case.attack != "none"]
    transferred = [
        replace(case, attack="pair_aware-transfer-full", injection_success=True) for case in attacked
    ]
    searched = [*transferred, *(replace(case, attack="pair-per_case") for case in attacked)]
    numbers = {
        row.band.labels: [cell.ours.value for cell in row.cells if cell.ours]
        for row in _filled(4, searched).rows
        if row.line is not None
    }
    assert numbers["pair", "ASR"] == [100.0] * 5
    assert all(not found for (attack, _), found in numbers.items() if attack != "pair")
    assert _filled(4, searched).lines[0].cases == _filled(4, transferred).lines[0].cases


def test_table_4_says_what_was_searched_and_where_an_attack_is_below_a_weaker_one() -> None:
    attacked = [case for case in _grid(defense="agentsys") if case.attack != "none"]
    rows = [
        replace(case, attack=attack, injection_success=hit)
        for case in attacked
        for attack, hit in (("adaptive", True), ("pair_aware-transfer-full", False))
    ]
    filled = _filled(4, rows)
    told = " ".join(paper_document.write_paper_notes(filled, LoadedCases(tuple(rows)), ErrorRule.REPORT))
    assert "pair is pair_aware-transfer-full" in told
    assert "pair (0.00) is below adaptive (100.00). Its text was chosen on some user tasks" in told


@pytest.fixture(scope="module")
def gpt_4o_mini(published: Callable[[str], Path]) -> tuple[CaseRow, ...]:
    """The cases of the published runs without defense."""
    return read_cases([published("agentdojo-gpt-4o-mini-2024-07-18")]).cases


@pytest.mark.parametrize("number", [number for number in TABLES if number != 4])
def test_no_defense_on_the_published_runs_is_the_papers_row(
    gpt_4o_mini: tuple[CaseRow, ...], number: int
) -> None:
    filled = _filled(number, gpt_4o_mini)
    cells = [cell for line in filled.rows if line.line is not None for cell in line.cells if cell.spot]
    assert len(cells) == {1: 9, 2: 3, 3: 3}.get(number, 5)
    assert [round(cell.ours.value, 2) if cell.ours else None for cell in cells] == [c.paper for c in cells]
    if number == 1:
        assert [cell.ours.n for cell in cells if cell.ours] == [63, 13, 77, 20, 5, 38, 13, 17, 4]


def test_tool_filter_stands_in_its_own_row_of_table_2_beside_another_models_printed_one(
    published: Callable[[str], Path],
) -> None:
    cases = read_cases([published("agentdojo-gpt-4o-2024-05-13-tool_filter")]).cases
    rows = [line for line in _filled(2, cases).rows if line.defense == "tool_filter"]
    assert [(line.model, line.line is not None, line.printed) for line in rows] == [
        ("gpt-4o-mini", False, True),
        ("gpt-4o", True, False),
    ]
    assert [round(cell.ours.value, 2) for cell in rows[1].cells if cell.ours] == [76.80, 56.56, 7.39]


def test_an_empty_cell_is_a_dash_and_the_command_that_fills_it_stands_below() -> None:
    text = write_markdown_document(_document(5, _grid()))
    line = next(line for line in text.splitlines() if "gpt-4o-mini | agentsys" in line)
    assert line.count("| — ") == 7
    assert "agentsys run model=gpt-4o-mini defense=agentsys attack=none logdir=results/runs/paper" in text
    assert (
        "agentsys run model=gpt-4o,gpt-5.1,claude-3.7-sonnet,gemini-2.5-pro,qwen2.5-7b-instruct "
        "defense=none,agentsys attack=none logdir=results/runs/paper"
    ) in text


@pytest.mark.usefixtures("each_choice_once")
def test_the_filling_commands_compose() -> None:
    from agentsys.runs.compose import compose

    for number in (2, 4):
        for command in paper_document.list_filling_commands(_filled(number, []), "/tmp/some folder"):
            program, verb, *overrides = command.replace("'/tmp/some folder'", "/tmp/x").split(" ")
            assert (program, verb) == ("agentsys", "run")
            assert compose(overrides)


def test_simulated_cells_are_marked_in_every_format_and_never_stand_in_the_papers_row() -> None:
    cases = _grid(simulated=True)
    document = _document(2, cases)
    for text in (
        write_markdown_document(document),
        render_html_document(document, "t"),
        write_latex_document(document),
    ):
        assert "100.00†" in text or r"100.00\textdagger{}" in text
        assert "not a language model" in text
    rows = [line for line in _filled(2, cases).rows if line.line]
    assert [(line.model, line.printed) for line in rows] == [("gpt-4o-mini (simulated)", False)]
    assert {
        record.simulated for record in paper_document.list_table_records(_filled(2, cases)) if record.n
    } == {True}


def test_versions_that_complete_each_other_share_a_row_that_is_flagged() -> None:
    cases = [
        row(
            suite=suite, version="v1" if suite == "banking" else "v1.2.2", defense="none", model="gpt-4o-mini"
        )
        for suite in SUITES
    ]
    (line,) = list_run_lines(cases, {ATTACK})
    assert (line.version, line.is_mixed) == ("v1 + v1.2.2", True)
    text = write_markdown_document(_document(7, cases))
    assert "v1 \\+ v1.2.2‡" in text
    assert "cases of different benchmark versions" in text


@pytest.mark.parametrize("number", list(TABLES))
def test_the_papers_own_mixture_of_versions_is_said_where_it_matters(number: int) -> None:
    notes = " ".join(_document(number, _grid()).notes)
    assert ("240 attacked Workspace cases" in notes) == (number in (2, 3, 5, 6, 7))


def test_an_overall_of_fewer_suites_is_marked() -> None:
    text = write_markdown_document(_document(7, [case for case in _grid() if case.suite != "travel"]))
    assert "0.00\\*" in text
    assert "overall is without travel" in text


def test_other_snapshots_of_a_model_keep_their_names_apart() -> None:
    cases = [*_grid(model="gpt-4o-2024-05-13"), *_grid(model="gpt-4o-2024-11-20")]
    text = write_markdown_document(_document(7, cases))
    assert "| gpt-4o-2024-05-13 | none |" in text
    assert "| gpt-4o-2024-11-20 | none |" in text
    one = write_markdown_document(_document(7, cases[: len(cases) // 2]))
    assert "gpt-4o: run as gpt-4o-2024-05-13." in one


def test_every_case_is_in_the_table_or_counted_below_it() -> None:
    odd = [row(attack="direct"), row(benchmark="asb"), row(user_task_id="injection_task_1", attack="none")]
    cases = [*_grid(), *_grid(defense="drift"), *odd]
    notes = " ".join(_document(6, cases).notes)
    counted = re.search(r"not in this table: (\d+) cases", notes)
    assert counted
    assert int(counted.group(1)) + 1 + 16 == len(cases)
    assert "Left out: 1 runs of injection tasks" in notes


def test_errors_are_counted_beside_the_row_and_below_the_table() -> None:
    cases = [*_grid(), row(model="gpt-4o-mini", defense="none", user_task_id="user_task_9", status="error")]
    text = write_markdown_document(_document(7, cases))
    assert "| 16 \\(1 error\\) |" in text
    assert "Errored cases are left out of the rates: 1 \\(unknown 1\\)." in text


def _written(filled: FilledTable, form: OutputFormat) -> bytes:
    return render_output(paper_document.make_paper_output(filled, Document([], [])), form)


def test_of_mine_a_model_that_the_paper_lacks_stands_beside_what_it_prints_for_its_first_one() -> None:
    for model, expected in (("my-model", "63.54"), ("gpt-4o-mini-2024-07-18", "63.54")):
        filled = fill_table(TABLES[2], _grid(defense="none", model=model), mine=True)
        document = paper_document.make_paper_document(filled, LoadedCases(()))
        [line] = document.sections[0][1][0].rows
        header = document.sections[0][1][0].header
        assert line[header.index("paper")].text == expected
        assert any("for gpt-4o-mini" in note for note in document.notes) == (model == "my-model")
    alone = fill_table(TABLES[2], _grid(defense="none", model="my-model"))
    document = paper_document.make_paper_document(alone, LoadedCases(()))
    rows = {line[0].text: line for line in document.sections[0][1][0].rows}
    assert rows["my-model"][document.sections[0][1][0].header.index("paper")].text == "—"


def test_of_mine_only_rows_that_ran_are_in_it() -> None:
    cases = _grid(defense="mine_alone")
    whole, mine = (fill_table(TABLES[2], cases, mine=only) for only in (False, True))
    assert {row.defense for row in mine.rows} == {"mine_alone"} < {row.defense for row in whole.rows}
    assert all(row.line for row in mine.rows)


def test_csv_has_the_documented_columns_and_empty_cells_for_what_was_not_run() -> None:
    text = _written(_filled(5, _grid()), OutputFormat.CSV).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0])[6:8] == ["paper_fraction", "value_fraction"]
    assert len(rows[0]) == len(fields(paper_document.TableRecord))
    ran = [line for line in rows if line["value_fraction"]]
    assert {(line["model"], line["defense"], line["n"]) for line in ran if line["suite"] == "overall"} == {
        ("gpt-4o-mini", "none", "8")
    }
    missing = next(line for line in rows if line["defense"] == "agentsys")
    assert (missing["paper_fraction"], missing["value_fraction"], missing["n"]) == ("0.6436", "", "0")


@pytest.mark.parametrize(
    ("number", "form"), [*((n, "table") for n in TABLES), *((2, f) for f in OutputFormat)]
)
def test_the_command_writes_every_table_and_every_format(tmp_path: Path, number: int, form: str) -> None:
    for suite in SUITES:
        store_own(tmp_path, case_of(suite=suite, defense="none", model="gpt-4o-mini"))
    with pytest.raises(ConfigError, match="Unknown table '9'"):
        table_command("9", [tmp_path])
    out = tmp_path / "new" / f"table.{form}"
    assert command_output("table", str(number), str(tmp_path), "--format", form, "--out", str(out)) == ""
    assert out.stat().st_size > 500
    if not OutputFormat(form).for_programs:
        assert f"Table {number}" in out.read_text()
        assert f"logdir={tmp_path}" in out.read_text().replace("\\", "") or number == 1


def _nasty_document(number: int) -> Document:
    cases = _grid(model=NASTY, defense=NASTY, version=NASTY)
    cases += [row(model=NASTY, defense="none", suite=NASTY, version=NASTY)]
    cases += [row(model=NASTY, defense="none", status="error", error_kind=NASTY, user_task_id="u")]
    cases += [row(model=NASTY, defense=NASTY, attack=NASTY, benchmark=NASTY)]
    return paper_document.make_paper_document(_filled(number, cases), LoadedCases(tuple(cases)), logdir=NASTY)


@pytest.mark.parametrize("number", list(TABLES))
def test_hostile_names_leave_markdown_rows_intact(number: int) -> None:
    text = write_markdown_document(_nasty_document(number))
    assert "\x1b" not in text
    assert "<img" not in text.replace("\\<img", "").split("```")[0]
    lines = [line.replace("\\|", "") for line in text.splitlines()]
    for above, line in pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert above.count("|") == line.count("|")


class _Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {tag, *(name for name, _ in attrs)}


@pytest.mark.parametrize("number", list(TABLES))
def test_hostile_names_are_inert_in_html(number: int) -> None:
    usual = _Tags(render_html_document(_document(number, _grid()), "t")).names
    assert _Tags(render_html_document(_nasty_document(number), NASTY)).names <= usual | {"small", "br", "wbr"}


@pytest.mark.parametrize("name", ["[1cm]x", "*x", "]{", "\\\\[1cm]"])
def test_no_name_begins_an_argument_of_the_line_above_it_in_latex(name: str) -> None:
    text = write_latex_document(_document(2, _grid(model=name)))
    above = [first for first, line in pairwise(text.splitlines()) if line.startswith(("[", "*"))]
    assert above == []
    assert "[" not in text.replace("{[}", "")


def _is_balanced(text: str) -> bool:
    """Whether braces pair up outside escapes."""
    depths = list(accumulate({"{": 1, "}": -1}.get(token, 0) for token in re.findall(r"\\.|[{}]", text)))
    return min(depths) >= 0 and depths[-1] == 0


@pytest.mark.parametrize("number", list(TABLES))
def test_hostile_names_break_no_latex_table(number: int, tmp_path: Path) -> None:
    text = write_latex_document(_nasty_document(number))
    shown = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    assert _is_balanced(shown) and r"\input" not in shown
    columns = len(re.findall(r"[lr]", text.split(r"\begin{tabular}{")[1].split("}")[0]))
    for line in text.splitlines():
        if line.endswith(r" \\"):
            assert line.replace(r"\&", "").count("&") == columns - 1
            assert not line.startswith(("[", "*"))
    compiler = shutil.which("pdflatex")
    if compiler:
        packages = r"\usepackage[T1]{fontenc}\usepackage{textcomp,booktabs,graphicx}"
        page = rf"\documentclass{{article}}{packages}\begin{{document}}{text}\end{{document}}"
        (tmp_path / "t.tex").write_text(page)
        command = [compiler, "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout[-2000:]


def test_every_place_of_every_table_has_a_printed_number_or_the_paper_lacks_the_row() -> None:
    for table in TABLES.values():
        spots = {spot for band in table.bands for spot in band.spots if spot and spot[0] != PER_CASE}
        by_row: dict[tuple[str, str], set[tuple[str, str, str]]] = {}
        for number in list_printed_in(f"table{table.number}"):
            spot = (number.attack, number.suite, number.metric)
            by_row.setdefault((number.model, number.defense), set()).add(spot)
        assert by_row
        assert all(found == spots for found in by_row.values()), table.number


def _by_row(source: str) -> dict[tuple[str, str, str, str], dict[str, float]]:
    rows: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for number in list_printed_in(source):
        key = (number.model, number.defense, number.attack, number.metric)
        rows.setdefault(key, {})[number.suite] = number.value
    return rows


@pytest.mark.parametrize("source", ["table4", "table5", "table6", "table7"])
def test_the_papers_overall_is_the_mean_of_its_suites(source: str) -> None:
    wrong = {
        key: round(abs(values[OVERALL] - sum(values[suite] for suite in SUITES) / 4), 3)
        for key, values in _by_row(source).items()
        if abs(values[OVERALL] - sum(values[suite] for suite in SUITES) / 4) > 0.0101
    }
    assert wrong == {}


def test_the_figures_numbers_follow_from_the_tables() -> None:
    table2 = {
        (number.defense, number.metric): number.value
        for number in list_printed_in("table2")
        if number.metric in (BENIGN_UTILITY, TARGETED_ASR)
    }
    for number in list_printed_in("figure3b"):
        if number.metric == "defense_quality":
            benign, asr = table2[number.defense, BENIGN_UTILITY], table2[number.defense, TARGETED_ASR]
            assert number.value == pytest.approx(benign * (1 - asr / 100), abs=0.011)
    halves = [number.value for number in list_printed_in("figure4a") if "[" in number.metric]
    assert sum(halves[:2]) == pytest.approx(table2["none", BENIGN_UTILITY], abs=0.011)
    assert sum(halves[2:]) == pytest.approx(table2["agentsys", BENIGN_UTILITY], abs=0.011)


def test_tables_agree_with_each_other_on_what_they_share() -> None:
    def shared(number: PublishedNumber) -> tuple[str, ...]:
        return number.model, number.defense, number.attack, number.suite, number.metric

    seen: dict[tuple[str, ...], float] = {}
    for number in load_published_numbers():
        if number.metric in (BENIGN_UTILITY, UTILITY_UNDER_ATTACK, TARGETED_ASR):
            assert seen.setdefault(shared(number), number.value) == number.value


def test_snapshots_are_shown_under_the_papers_names_and_strangers_under_their_own() -> None:
    assert shorten_model("gpt-4o-mini-2024-07-18") == "gpt-4o-mini"
    assert shorten_model("claude-3-7-sonnet-20250219") == "claude-3.7-sonnet"
    assert shorten_model("my-model") == "my-model"
    assert shorten_model("replay:gpt-4o-mini-2024-07-18") == "gpt-4o-mini"
    assert shorten_model("replay:gpt-4o-2024-05-13-tool_filter") == "gpt-4o"
    assert shorten_model("replay:my-model") == "replay:my-model"
    papers = {number.model for number in load_published_numbers()}
    assert set(load_model_names().values()) <= papers


def test_the_wheel_and_the_sdist_carry_them() -> None:
    root = find_published_dir().parents[1]
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert build["wheel"]["force-include"]["results/published"] == "agentsys/published"
    assert "/results/published" in build["sdist"]["include"]
