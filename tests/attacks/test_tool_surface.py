"""The surface of tools: what each attack shows, who is struck, what a pinned description prevents."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from needs_guest import needs_guest
from small_runs import Silent

from agentsys.attacks.tool_surface import ToolSurface
from agentsys.base.config_catalog import load_config
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.contracts import Victim
from agentsys.defense import privileges
from agentsys.errors import ConfigError
from agentsys.runs.compose import compose
from agentsys.runs.run_session import prepare_session

SUITE = AgentDojo("v1.2.2").suite("banking")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tool_surface.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("<!-- surface -->")[2].partition("<!-- surface end -->")[0].strip().splitlines()
FORMS = ("description", "parameter", "name", "error", "transfer", "rug_pull")


def records(folder: Path, *settings: str) -> list[Any]:
    common = ("model=simulated", "benchmark.suites=[banking]", "user_tasks=[0,3]", "injection_tasks=[0,4]")
    session = prepare_session([*common, f"logdir={folder}", *settings])
    session.execute(listener := Silent())
    assert all(record.status == "ok" for record in listener.records), listener.records[0].error_kind
    return sorted(listener.records, key=lambda record: str(record.case))


def calls(record: Any) -> list[Any]:
    return [(span.name, span.decision["args"]) for span in record.spans if span.kind == "tool"]


def test_a_form_that_runs_once_a_user_task_says_so_of_the_other_pairs(tmp_path: Path) -> None:
    common = ("model=simulated", "defense=none", "benchmark.suites=[banking]", "user_tasks=[0]")
    with pytest.raises(
        ConfigError, match=r"mcp_parameter runs once a user task, with the first .* 1 pair, and no other"
    ):
        prepare_session([*common, "attack=mcp_parameter", "injection_tasks=[4]", f"logdir={tmp_path}"])


@pytest.mark.parametrize(
    ("form", "shown_in"),
    zip(FORMS, ("description", "parameter", "result", "error", "parameter", "description"), strict=True),
)
def test_each_form_reaches_the_undefended_agent_and_is_in_the_record(
    form: str, shown_in: str, tmp_path: Path
) -> None:
    found = records(tmp_path, "defense=none", f"attack=mcp_{form}")
    struck = [record for record in found if record.security]
    assert len(struck) >= len(found) - (form == "rug_pull") and struck
    assert shown_in in struck[0].exposure.shown_in and struck[0].exposure.exposed_shown
    assert bool(struck[0].shown_tools.get("agent")) is (form != "error")
    assert all(place.startswith("tool:") for place in struck[0].written)


def test_a_pinned_description_and_a_tool_that_is_not_offered_prevent_what_they_carry(tmp_path: Path) -> None:
    for form in ("description", "name"):
        found = records(tmp_path / form, "defense=tool_pin", f"attack=mcp_{form}")
        assert not any(record.security or record.exposure.exposed_shown for record in found)
    assert all(record.security for record in records(tmp_path, "defense=tool_pin", "attack=mcp_parameter"))


READ_RESULTS_ALONE = (
    *(
        "prompt_sandwiching",
        "spotlighting_datamarking",
        "phrase_detector",
        "promptarmor",
        "firewall_sanitizer",
    ),
    *("datafilter", "keyword_filter", "tool_result_parsing", "delimiters", "instructional_prevention"),
    *("attriguard", "melon", "agentsys"),
)


@needs_guest("rivals")
def test_a_defense_that_reads_no_tools_makes_the_calls_of_none_case_by_case(tmp_path: Path) -> None:
    found = records(tmp_path, f"defense=none,{','.join(READ_RESULTS_ALONE)}", "attack=mcp_description")
    of_defense = {name: [one for one in found if one.case.defense == name] for name in READ_RESULTS_ALONE}
    plain = [one for one in found if one.case.defense == "none"]
    assert plain and all(record.security for record in plain)
    for defense, ran in of_defense.items():
        assert [calls(one) for one in ran] == [calls(one) for one in plain], defense


def test_a_detector_that_reads_tools_prevents_what_a_description_carries(tmp_path: Path) -> None:
    read = ("defense=phrase_detector", "defense.read_tools=true", "attack=mcp_description")
    assert not any(record.security for record in records(tmp_path, *read))


@needs_guest("rivals")
def test_reading_tools_is_an_option_of_those_that_can_and_off_is_no_other_defense(tmp_path: Path) -> None:
    folder = f"logdir={tmp_path}"
    plain, off = (
        compose(["defense=promptarmor", *more, folder])[0] for more in ([], ["defense.read_tools=false"])
    )
    assert plain.config_hash == off.config_hash
    for defense in ("camel", "attriguard", "firewall_minimizer", "tool_result_parsing_parse_only"):
        with pytest.raises(ConfigError, match=r"reads no descriptions"):
            prepare_session(["model=simulated", f"defense={defense}", "defense.read_tools=true", folder])


@pytest.mark.parametrize("choice", ["first", "all", "unneeded"])
def test_the_attacker_owns_the_tools_that_were_chosen(choice: str) -> None:
    task, goal = SUITE.user_tasks["user_task_0"], SUITE.injection_tasks["injection_task_4"]
    attack = ToolSurface("description", "mcp", tool=choice)
    written = attack.injections(SUITE, task, goal, Victim("GPT-4", "Emma Johnson"))
    assert len(written) == (len(SUITE.tools) if choice == "all" else 1)
    assert (choice == "unneeded") is ("tool:read_file" not in written)
    tools = attack.poison_tools(SUITE.tools, written)
    assert all(goal.GOAL in tool.description for tool in tools if f"tool:{tool.name}" in written)
    assert not any(goal.GOAL in tool.description for tool in SUITE.tools)


@needs_guest("rivals")
def test_the_table_of_the_page_is_whole() -> None:
    sweep = load_config("experiment", "tool_surface")["sweep"]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE]
    assert head == ["defense", *(name.removeprefix("mcp_") for name in sweep["attack"])]
    assert sorted(row[0] for row in rows) == sorted(f"`{name}`" for name in sweep["defense"])
    assert len(rows) == 15
    cell = re.compile(r"\d+; \d+ \(\d+-\d+\)")
    assert all(cell.fullmatch(one) for row in rows for one in row[1:])


def test_msbs_printed_rates_stand_in_the_page_as_the_script_prints_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tool_surface_table import print_published

    print_published()
    printed = [line.replace("| MSB, ", "| ") for line in capsys.readouterr().out.splitlines()]
    assert "| GPT-5 | 48.85 PI | 98.75 OP | 0.0 NC-FE, 1.25 PM-FE | 1.31 FE | 75.0 TT-OP | - |" in printed
    assert (
        PAGE.partition("<!-- msb -->")[2].partition("<!-- msb end -->")[0].strip().splitlines()[2:] == printed
    )


@pytest.mark.slow
def test_a_row_of_the_table_is_what_the_experiment_and_the_script_give(tmp_path: Path) -> None:
    rows = ("none", "tool_pin", "promptarmor", "agentsys")
    for more in ([], ["defense.agentsys.pin_tools=true"]):
        chosen = rows if not more else ("agentsys",)
        folder = f"logdir={tmp_path / str(len(more))}"
        session = prepare_session(
            ["experiment=tool_surface", f"sweep.defense=[{','.join(chosen)}]", *more, folder]
        )
        session.execute(Silent())
    script = [sys.executable, str(ROOT / "scripts" / "tool_surface_table.py")]
    made, pinned = (
        subprocess.run([*script, str(tmp_path / one)], capture_output=True, text=True, check=True).stdout
        for one in "01"
    )
    rows_made, row_pinned = (
        [line for line in one.splitlines() if not line.startswith("| MSB")] for one in (made, pinned)
    )
    assert set(rows_made) <= set(TABLE) and len(rows_made) == 2 + len(rows)
    assert row_pinned[-1].startswith("| `agentsys+pin_tools=True` | 0; 100 (100-100) | 0; 100 (100-100) |")
    (plain,) = (line for line in rows_made if "agentsys" in line)
    assert row_pinned[-1].split("|")[4:] == plain.split("|")[4:]


def test_wrong_options_are_said_in_one_line() -> None:
    for options in ({"form": "no"}, {"tool": "none"}, {"asks_for": "x"}, {"clean_calls": 0}):
        with pytest.raises(ConfigError):
            ToolSurface(**{"form": "name", "name": "n", **options})  # type: ignore[arg-type]


def attacked(folder: Path) -> list[Any]:
    session = prepare_session(
        [
            *("model=simulated", "defense=agentsys", "attack=poisoned_descriptions"),
            *("benchmark.suites=[banking]", "user_tasks=[2,15]", "injection_tasks=[4]", f"logdir={folder}"),
        ]
    )
    session.execute(listener := Silent())
    assert [record.status for record in listener.records] == ["ok", "ok"]
    return listener.records


def labels(records: list[Any]) -> set[str]:
    found = [
        span.decision["labels"] for record in records for span in record.spans if span.kind == "privileges"
    ]
    return {label for one in found for label in one.values()}


def test_a_poisoned_description_frees_no_command(tmp_path: Path, monkeypatch: Any) -> None:
    records = attacked(tmp_path / "now")
    assert labels(records) == {"command"} and not any(record.security for record in records)
    # As labels were read before: whatever an object of the reply says first.
    monkeypatch.setattr(privileges, "_quotes_description", lambda *_: False)
    monkeypatch.setattr(privileges, "find_json_values", lambda reply: list(find(reply))[:1])
    monkeypatch.setattr(privileges, "_WRITTEN_LABEL", privileges.re.compile("(?!)()()"))
    privileges._make_cached_store.cache_clear()
    before = attacked(tmp_path / "before")
    assert labels(before) == {"query"} and any(record.security for record in before)


find = privileges.find_json_values
