"""ASB's data files: what upstream's hold, what the sample holds, and what a slip in a file says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agentsys.benchmarks.asb.asb_benchmark import ASB
from agentsys.benchmarks.asb.asb_data import (
    AsbData,
    AttackTool,
    find_asb_folder,
    find_sample_folder,
    read_data,
)
from agentsys.errors import ConfigError

SHARED = Path(__file__).parents[3].parent / "shared/data/asb"


@pytest.fixture(scope="module")
def upstream() -> AsbData:
    if not SHARED.is_dir():
        pytest.skip(f"ASB's own files are not here: {SHARED}")
    return read_data(SHARED)


def attack_tools(data: AsbData) -> list[AttackTool]:
    return [tool for agent in data.agents for tool in agent.attack_tools]


def test_upstream_has_ten_agents_with_51_tasks_two_normal_and_forty_attack_tools_each(
    upstream: AsbData,
) -> None:
    assert {agent.name: len(agent.tasks) for agent in upstream.agents if len(agent.tasks) != 5} == {
        "academic_search_agent": 6
    }
    assert sum(len(agent.tasks) for agent in upstream.agents) == 51
    assert [(len(a.normal_tools), len(a.attack_tools)) for a in upstream.agents] == [(2, 40)] * 10
    medical = next(agent for agent in upstream.agents if agent.name == "medical_advisor_agent")
    assert [tool.name for tool in medical.normal_tools] == ["medical_database", "prescription_manager"]


def test_upstreams_whole_file_is_the_aggressive_one_followed_by_the_other(upstream: AsbData) -> None:
    def rows(name: str) -> list[str]:
        return (SHARED / name).read_text(encoding="utf-8").split("\n")[:200]

    whole = (SHARED / "all_attack_tools.jsonl").read_text(encoding="utf-8").rstrip("\n").split("\n")
    halves = rows("all_attack_tools_aggressive.jsonl") + rows("all_attack_tools_non_aggressive.jsonl")
    assert [json.loads(row) for row in whole] == [json.loads(row) for row in halves]
    assert [json.loads(row)["Aggressive"] for row in whole] == ["True"] * 200 + ["False"] * 200


def copy_of_sample(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    shutil.copytree(find_sample_folder(), folder)
    return folder


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("file", "old", "new", "says"),
    [
        ("agent_task.jsonl", '"tasks"', '"task"', r"agent_task\.jsonl line 1: "),
        (
            "agent_task.jsonl",
            "helpdesk_agent",
            "garden_advisor_agent",
            r"line 4: 'garden_advisor_agent' is taken",
        ),
        ("agent_task.jsonl", "{", "[", r"agent_task\.jsonl line 1 is not JSON"),
        (
            "all_normal_tools.jsonl",
            "helpdesk_agent",
            "helpdesk",
            r"line 7: Unknown agent 'helpdesk'\. Did you mean",
        ),
        (
            "all_normal_tools.jsonl",
            "soil_probe",
            "soil probe",
            r"line 5: Tool Name: a tool's name is letters",
        ),
        ("all_normal_tools.jsonl", "soil_probe", "loan_desk", r"line 5: 'loan_desk' is taken already"),
        (
            "all_attack_tools.jsonl",
            "ValveLock",
            "loan_desk",
            r"all_attack_tools\.jsonl line \d+: 'loan_desk' is taken",
        ),
        (
            "all_attack_tools.jsonl",
            '"True"',
            "true",
            r"line 1: Aggressive: Input should be 'True' or 'False'",
        ),
        ("all_attack_tools.jsonl", "Stealthy Attack", "Quiet", r"line 1: Attack Type: Input should be"),
    ],
)
def test_a_slip_in_a_file_is_one_line_that_names_file_and_line(
    tmp_path: Path, file: str, old: str, new: str, says: str
) -> None:
    folder = copy_of_sample(tmp_path)
    edit(folder / file, old, new)
    with pytest.raises(ConfigError, match=says) as caught:
        read_data(folder)
    assert "\n" not in str(caught.value)


def test_an_agent_without_tools_is_refused(tmp_path: Path) -> None:
    folder = copy_of_sample(tmp_path)
    row = json.dumps({"agent_name": "idle_agent", "agent_path": "example/idle_agent", "tasks": ["Wait."]})
    path = folder / "agent_task.jsonl"
    path.write_text(path.read_text() + row + "\n")
    with pytest.raises(ConfigError, match="has no tool of 'idle_agent'"):
        read_data(folder)


def test_a_missing_file_and_bytes_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    folder = copy_of_sample(tmp_path)
    (folder / "all_attack_tools.jsonl").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ConfigError, match=r"all_attack_tools\.jsonl is not UTF-8"):
        read_data(folder)
    (folder / "all_attack_tools.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"cannot be read .*benchmark\.data is sample"):
        read_data(folder)


def test_data_that_was_not_fetched_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert find_asb_folder() == tmp_path / "agentsys" / "asb"
    with pytest.raises(ConfigError, match=r"benchmark\.data=fetched.*agentsys fetch asb"):
        ASB(data="fetched")
    shutil.copytree(find_sample_folder(), find_asb_folder())
    assert len(ASB(data="fetched").suite_names()) == 4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "fatihful"}, r"Unknown benchmark\.mode 'fatihful'\. Did you mean faithful"),
        ({"criterion": "words"}, r"Unknown benchmark\.criterion"),
        ({"attack_tools": "agressive"}, r"Did you mean aggressive"),
        ({"suites": ["helpdesk"]}, r"Did you mean helpdesk_agent"),
        ({"tasks": 0}, r"benchmark\.tasks=0"),
        ({"tasks": "two"}, r"benchmark\.tasks=two"),
        ({"suites": []}, r"benchmark\.suites=\[\] leaves no agent"),
        ({"refusal_judge": "maybe"}, r"benchmark\.refusal_judge=maybe: give true or false"),
        ({"data": 7}, r"benchmark\.data=7: there is no folder 7"),
        ({"data": "/nowhere/at/all"}, r"benchmark\.data=/nowhere/at/all: there is no folder"),
    ],
)
def test_an_option_that_is_not_known_is_one_line(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ASB(**options)  # type: ignore[arg-type]
