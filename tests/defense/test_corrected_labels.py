"""An operator's labels of tools: before the model's, in every record, part of what a server is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from scripted_for_defense import LABELS, ScriptedModel, Tools

import agentsys
from agentsys.defense.agentsys import AgentSys, read_corrections
from agentsys.defense.privileges import Privilege, PrivilegeStore, get_privilege_store
from agentsys.errors import ConfigError
from agentsys.models.pipeline_elements import tool_specs
from agentsys.runs.compose import compose
from agentsys.serve_agent.agent_server import build_defended_agent

TOOLS = tool_specs(Tools().runtime().functions.values())
NAMES = [tool.name for tool in TOOLS]


def test_a_correction_goes_before_what_the_model_says_and_stands_in_the_record() -> None:
    said = json.loads(LABELS)
    assert said["ping"] == "query"
    book = PrivilegeStore(corrections={"ping": Privilege.COMMAND, "elsewhere": Privilege.QUERY})
    found = book.sort_tools(ScriptedModel({"privileges": [LABELS]}), TOOLS)
    assert found.labels["ping"] is Privilege.COMMAND
    assert {name: label.value for name, label in found.labels.items() if name != "ping"} == {
        name: word for name, word in said.items() if name != "ping"
    }
    assert found.as_decision()["corrected"] == ["ping"]


def test_a_corrected_tool_is_not_unclear_and_a_set_that_is_named_whole_is_not_asked_about() -> None:
    unclear = ScriptedModel({"privileges": ["no idea", "no idea"]})
    found = PrivilegeStore(corrections={"ping": Privilege.QUERY}).sort_tools(unclear, TOOLS)
    assert found.unclear == tuple(name for name in NAMES if name != "ping")
    assert found.labels["ping"] is Privilege.QUERY
    whole = PrivilegeStore(corrections=dict.fromkeys(NAMES, Privilege.QUERY)).sort_tools(
        ScriptedModel({}), TOOLS
    )
    assert set(whole.labels.values()) == {Privilege.QUERY}


def test_what_the_model_says_is_listed_in_a_yaml_that_can_be_given_back(tmp_path: Path) -> None:
    PrivilegeStore(tmp_path).sort_tools(ScriptedModel({"privileges": [LABELS]}), TOOLS)
    [listed] = tmp_path.glob("*.yaml")
    assert read_corrections(listed) == {name: Privilege(word) for name, word in json.loads(LABELS).items()}
    assert "defense.tool_labels" in listed.read_text()
    words = yaml.safe_load(listed.read_text()) | {"ping": "command"}
    listed.with_name("mine.yaml").write_text(yaml.safe_dump(words))
    defense = AgentSys(tool_labels=str(listed.with_name("mine.yaml")))
    assert defense.corrections["ping"] is Privilege.COMMAND
    assert get_privilege_store(tmp_path, defense.corrections) is not get_privilege_store(tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("read: [query", "is no YAML in line"),
        ("read: reads", "'read' is 'reads'; write query or command"),
        ("1: query", "tool 1 is 'query'"),
        ("- read", "has no labels"),
        ("", "has no labels"),
        ("a: &x [*x]", "tool 'a' is"),
        ("\x00", "is no YAML"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(text: str, told: str, tmp_path: Path) -> None:
    file = tmp_path / "labels.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as slip:
        AgentSys(tool_labels=str(file))
    assert told in str(slip.value)
    assert "\n" not in str(slip.value)


def test_a_server_with_a_broken_file_or_none_of_that_name_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "labels.yaml").write_text("read_file: maybe")
    settings = ["model=simulated", "defense=agentsys", f"logdir={tmp_path / 'runs'}"]
    for name in ("labels.yaml", "nowhere.yaml"):
        with pytest.raises(ConfigError, match=r"defense\.tool_labels"):
            build_defended_agent([*settings, f"defense.tool_labels={tmp_path / name}"])


def test_the_files_content_is_part_of_the_identity_and_its_absence_changes_nothing(tmp_path: Path) -> None:
    [without] = compose(["defense=agentsys"])
    assert "tool_labels" not in without.defense
    file = tmp_path / "labels.yaml"
    hashes = []
    for word in ("query", "command"):
        file.write_text(f"read_file: {word}")
        [settings] = compose(["defense=agentsys", f"defense.tool_labels={file}"])
        assert "tool_labels" in settings.labels["defense"]
        hashes.append(settings.config_hash)
    assert len({*hashes, without.config_hash}) == 3


@pytest.mark.slow
def test_records_name_the_labels_that_were_corrected(tmp_path: Path) -> None:
    file = tmp_path / "labels.yaml"
    file.write_text("send_money: query")
    case = ["benchmark.suites=[banking]", "user_tasks=[0]", "injection_tasks=[0]", "defense=agentsys"]
    for number, more in enumerate([[], [f"defense.tool_labels={file}"]]):
        runs = tmp_path / str(number)
        agentsys.run(
            [
                "model=simulated",
                *case,
                "attack=important_instructions",
                "model.reader=literal",
                *more,
                f"logdir={runs}",
            ]
        )
        [path] = runs.rglob("injection_task_0.json")
        spans = json.loads(path.read_bytes())["agentsys"]["spans"]
        found = [span["decision"] for span in spans if span["kind"] == "privileges"]
        assert found
        assert {one["labels"]["send_money"] for one in found} == {"query" if more else "command"}
        assert {tuple(one.get("corrected", ())) for one in found} == {("send_money",) if more else ()}
