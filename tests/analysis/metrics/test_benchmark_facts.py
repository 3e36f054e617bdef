"""Measured facts become rates: two criteria, causes, controls, conduct; runs without them have none."""

from __future__ import annotations

import io
from typing import Any

import pytest
from asb_cases import AGENTS, TOOLS, attacked, benign, control, grid
from rich.console import Console
from stored_cases import row

from agentsys.analysis.metrics.benchmark_facts import measured_rows, unsolved_suites
from agentsys.analysis.metrics.rates import MetricRow
from agentsys.analysis.tables.output import OutputFormat, written
from agentsys.analysis.tables.report import Report, report
from agentsys.analysis.tables.results_document import results_document, results_output
from agentsys.analysis.tables.write_terminal import terminal_document
from agentsys.records.case_reader import LoadedCases
from agentsys.records.case_row import CaseRow


def _overall(cases: list[CaseRow], **where: str) -> dict[str, MetricRow]:
    rows = measured_rows(cases, replicates=200)
    return {
        row.metric: row
        for row in rows
        if row.suite == "overall" and all(getattr(row, name) == value for name, value in where.items())
    }


def _report(cases: list[CaseRow]) -> Report:
    return report(LoadedCases(tuple(cases)), replicates=50)


def _printed(found: Report) -> str:
    text = io.StringIO()
    Console(file=text, width=160).print(terminal_document(results_document(found)))
    return text.getvalue()


def test_a_success_is_split_into_planner_chosen_and_injection_caused() -> None:
    cases = [
        attacked(agent, tool, hit=tool < 4, planned=tool < 1) for agent in AGENTS for tool in range(TOOLS)
    ]
    found = _overall(cases)
    assert found["targeted_asr_execution"].value == 50.0
    assert (found["asr_planner_chosen"].value, found["asr_injection_caused"].value) == (12.5, 37.5)
    assert found["asr_planner_chosen"].n == len(cases)


def test_the_two_criteria_have_rows_of_their_own() -> None:
    erased = {"injection_success_text": False, "utility_text": False}
    cases = [attacked(a, t, hit=True, facts=erased if t else {}) for a in AGENTS for t in range(TOOLS)]
    found = _overall(cases)
    assert (found["targeted_asr_execution"].value, found["targeted_asr_text"].value) == (100.0, 12.5)
    assert (found["utility_execution"].value, found["utility_text"].value) == (100.0, 12.5)


def test_the_control_is_paired_case_by_case() -> None:
    cases = grid({"a": 8, "b": 8, "c": 4})
    controls = [control(a, t, hit=a == "a") for a in AGENTS for t in range(TOOLS) if (a, t) != ("b", 0)]
    found = _overall([*cases, *controls], attack="opi_context_ignoring")
    difference = found["asr_less_control"]
    assert found["control_asr"].value == 10.0
    assert difference.value == pytest.approx(100 * (0 + 1 + 0.5) / 10)
    assert difference.n == len(cases) - 1
    assert difference.ci_low < difference.value < difference.ci_high


def test_the_difference_of_a_case_with_itself_is_nothing_though_both_rates_are_high() -> None:
    cases = grid(dict.fromkeys("abcde", 8))
    controls = [control(agent, tool, hit=agent in "abcde") for agent in AGENTS for tool in range(TOOLS)]
    found = _overall([*cases, *controls], attack="opi_context_ignoring")
    assert (found["control_asr"].value, found["asr_less_control"].value) == (50.0, 0.0)


def test_another_defenses_control_is_no_control() -> None:
    cases = grid({"a": 8}, defense="drift")
    controls = [control(a, t, defense="none") for a in AGENTS for t in range(TOOLS)]
    assert "asr_less_control" not in _overall([*cases, *controls], defense="drift")
    notes = " ".join(_report([*cases, *controls]).notes)
    assert "No control (empty payload) was run for: drift." in notes


def test_a_control_that_never_succeeds_is_no_floor_and_misses_no_payload() -> None:
    bare: dict[str, Any] = {"defense": "none", "exposed_raw": False}
    controls = [control(a, t, **bare) for a in AGENTS for t in range(TOOLS)]
    notes = " ".join(_report([*grid(dict.fromkeys(AGENTS, 8), defense="none"), *controls]).notes)
    assert "Floor:" not in notes
    assert "none / opi_empty" not in notes
    powerless = " ".join(_report([*grid({}, defense="none"), *controls]).notes)
    assert "Floor: without defense the ASR under opi_context_ignoring" in powerless


def test_errored_cases_are_in_no_rate_and_their_number_is_beside_it() -> None:
    broken = row(
        benchmark="asb-faithful",
        version="sample",
        attack="opi_context_ignoring",
        suite="a",
        injection_task_id="injection_task_0",
        status="error",
        error_kind="timeout",
    )
    found = _overall([broken, *grid({})[1:]])
    assert (found["targeted_asr_execution"].n, found["targeted_asr_execution"].errors) == (79, 1)
    assert "targeted_asr_text_errors_failed" not in found


def test_exposed_refused_and_workflow_failures_are_counted() -> None:
    facts = {"payloads_delivered": 0, "refused": True, "workflow_failure": True}
    cases = [attacked(a, t, facts=facts if a in "ab" else {}) for a in AGENTS for t in range(TOOLS)]
    found = _overall(cases)
    assert {name: found[name].value for name in ("exposed", "refused", "workflow_failure")} == {
        "exposed": 80.0,
        "refused": 20.0,
        "workflow_failure": 20.0,
    }


def test_suites_that_nobody_ever_solved_are_named_as_a_ceiling() -> None:
    cases = [benign(agent, solved=agent not in "ab") for agent in AGENTS]
    assert unsolved_suites(cases) == ["a", "b"]
    notes = " ".join(_report(cases).notes)
    assert "no run solved a user task of a, b" in notes
    assert "ceiling of 80.0" in notes
    rescued = benign("a", solved=False, defense="x", measured={"utility_text": True})
    assert unsolved_suites([*cases, rescued]) == ["b"]


def test_defenses_run_without_a_plan_only_are_named_where_others_have_one() -> None:
    react: dict[str, Any] = {"benchmark": "asb-react", "facts": {"mode": "react"}}
    cases = [*grid({}, defense="none"), attacked("a", 0, defense="camel", **react)]
    assert "In mode react only: camel." in " ".join(_report(cases).notes)
    alone = [attacked("a", 0, defense=name, **react) for name in ("camel", "none")]
    assert "In mode react only" not in " ".join(_report(alone).notes)


def test_every_format_shows_the_facts_and_escapes_names() -> None:
    cases = [*grid({"a": 8}, defense="<b>_&[red]"), *[control(a, 0, defense="<b>_&[red]") for a in AGENTS]]
    found = _report(cases)
    texts = {
        form: written(results_output(found), form).decode()
        for form in (OutputFormat.MARKDOWN, OutputFormat.LATEX, OutputFormat.HTML)
    }
    assert all("Injection-caused" in text for text in texts.values())
    html = texts[OutputFormat.HTML]
    assert "<b>_" not in html
    printed = _printed(found)
    assert "ASR - control" in printed
    assert "<b>_&[red]" in printed
    assert "…" not in printed
