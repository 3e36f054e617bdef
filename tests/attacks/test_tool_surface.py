"""The surface of tools: what each attack shows, who is struck, what a pinned description prevents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_runs import Silent

from agentsys.attacks.tool_surface import ToolSurface
from agentsys.benchmarks.agentdojo import AgentDojo
from agentsys.contracts import Victim
from agentsys.errors import ConfigError
from agentsys.runs.compose import compose
from agentsys.runs.run_session import prepare_session

SUITE = AgentDojo("v1.2.2").suite("banking")
FORMS = ("description", "parameter", "name", "error", "transfer", "rug_pull")


def records(folder: Path, *settings: str) -> list[Any]:
    common = ("model=simulated", "benchmark.suites=[banking]", "user_tasks=[0,3]", "injection_tasks=[0,4]")
    session = prepare_session([*common, f"logdir={folder}", *settings])
    session.execute(listener := Silent())
    assert all(record.status == "ok" for record in listener.records), listener.records[0].error_kind
    return sorted(listener.records, key=lambda record: str(record.case))


def calls(record: Any) -> list[Any]:
    return [(span.name, span.decision["args"]) for span in record.spans if span.kind == "tool"]


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


def test_a_defense_of_results_sees_a_description_only_where_it_reads_tools(tmp_path: Path) -> None:
    attack = "attack=mcp_description"
    off = records(tmp_path / "off", "defense=phrase_detector", attack)
    plain = records(tmp_path / "none", "defense=none", attack)
    assert [calls(one) for one in off] == [calls(one) for one in plain]
    on = records(tmp_path / "on", "defense=phrase_detector", "defense.read_tools=true", attack)
    assert not any(record.security for record in on) and all(record.security for record in off)


def test_an_isolated_agent_is_not_kept_from_a_description(tmp_path: Path) -> None:
    assert any(one.security for one in records(tmp_path, "defense=agentsys", "attack=mcp_description"))


def test_reading_tools_is_an_option_of_those_that_can_and_off_is_no_other_defense(tmp_path: Path) -> None:
    folder = f"logdir={tmp_path}"
    plain, off = (
        compose(["defense=promptarmor", *more, folder])[0] for more in ([], ["defense.read_tools=false"])
    )
    assert plain.config_hash == off.config_hash
    with pytest.raises(ConfigError, match=r"reads no descriptions"):
        prepare_session(["model=simulated", "defense=camel", "defense.read_tools=true", folder])


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


def test_wrong_options_are_said_in_one_line() -> None:
    for options in ({"form": "no"}, {"tool": "none"}, {"asks_for": "x"}, {"clean_calls": 0}):
        with pytest.raises(ConfigError):
            ToolSurface(**{"form": "name", "name": "n", **options})  # type: ignore[arg-type]
