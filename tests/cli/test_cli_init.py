"""`agentsys init` writes a model's YAML, tries the model, and ends with a command that works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from paid_server import Answer, calls, paid_server, says
from typer.testing import CliRunner, Result

from agentsys.cli import app
from agentsys.cli.init_command import _NEEDS, Ability
from agentsys.errors import ConfigError

ROLES = [
    Ability(name, True, "") for needs in _NEEDS.values() for name in needs if name[:4] not in ("make", "writ")
]
CODE = "Here you are:\n```python\nprint(17 + 25)\n```\nIt prints 42."


def init(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["init", *arguments])


def answer_well(_: int, body: dict[str, Any]) -> Answer:
    asked = str(body["messages"][-1].get("content"))
    if body.get("tools"):
        return calls("ready", '{"word": "yes"}')
    return says(CODE if "fenced code" in asked else 'Sure: {"city": "Leeds", "year": 1931}')


def test_it_writes_the_yaml_says_what_fits_and_the_next_command_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentsys.cli.init_command._run_agentsys_tests", lambda _: ROLES)
    with paid_server(answer_well) as server:
        result = init("--url", server.url, "--model", "lab/My-Model 3")
        assert result.exit_code == 0, result.output
        assert "+ make a tool call" in result.stdout and "camel" in result.stdout.split("Can carry:")[1]
        file = Path("conf/model/my-model-3.yaml")
        found = yaml.safe_load(file.read_text())
        assert (found["name"], found["model_id"], found["tools"]) == (
            "my-model-3",
            "lab/My-Model 3",
            "native",
        )
        line = re.search(r"^Next: ([^\n]+(?:\n +[^\n]+)*)", result.stdout, re.MULTILINE)
        assert line
        words = shlex.split(line[1].replace("\n", " "))
        planned = CliRunner().invoke(app, [*words[1:], "--dry-run"])
        assert planned.exit_code == 0, planned.exception


def test_calls_that_the_server_does_not_parse_go_through_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentsys.cli.init_command._run_agentsys_tests", lambda _: ROLES)

    def write_calls(number: int, body: dict[str, Any]) -> Answer:
        system = str(body["messages"][0].get("content"))
        if body.get("tools") or "<tool_call>" in system:
            return says('<tool_call>\n{"name": "ready", "arguments": {"word": "yes"}}\n</tool_call>')
        return says("I cannot do that.")

    with paid_server(write_calls) as server:
        result = init("--url", server.url, "--model", "texty")
    assert result.exit_code == 0, result.output
    found = yaml.safe_load(Path("conf/model/texty.yaml").read_text())
    assert (found["tools"], found["text_protocol"]) == ("text", "hermes")
    assert "Would be broken: camel (cannot write one code block" in result.stdout


def test_what_is_missing_is_one_line_and_no_file_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("conf/model").mkdir(parents=True)
    Path("conf/model/x.yaml").write_text("model_id: x\n")
    with paid_server(answer_well) as server:
        for arguments, said in (
            ([], "Missing --url"),
            (["--url", "127.0.0.1:1"], "no address"),
            (["--url", "http://127.0.0.1:9", "--model", "y"], "No server answers at http://127.0.0.1:9"),
            (["--url", server.url], "Missing --model"),
            (["--url", server.url, "--model", "x", "--name", "simulated"], "--name my-simulated"),
            (["--url", server.url, "--model", "x", "--key-env", "NO_SUCH_KEY"], "export NO_SUCH_KEY"),
            (["--url", server.url, "--model", "other", "--name", "x"], "--name x-2"),
        ):
            result = init(*arguments)
            assert isinstance(result.exception, ConfigError), (arguments, result.output)
            assert said in str(result.exception) and "\n" not in str(result.exception)
    assert [file.name for file in Path("conf/model").iterdir()] == ["x.yaml"]


def test_the_roles_of_agentsys_are_tried_under_the_names_that_its_row_needs() -> None:
    from agentsys.defense.ability_tests import _TESTS

    assert set(_NEEDS["agentsys"]) <= set(_TESTS)
