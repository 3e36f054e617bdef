"""`agentsys init` writes a model's YAML, tries the model, and ends with a command that works."""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from paid_server import Answer, calls, fails, paid_server, says
from typer.testing import CliRunner, Result

from agentsys.cli import app, doctor_command, init_command
from agentsys.cli.doctor_command import CheckResult
from agentsys.cli.init_command import _NEEDS, Ability
from agentsys.errors import ConfigError, Unavailable

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
        file.write_text(
            file.read_text().replace("price: null", "price: {prompt: 1, completion: 2, as_of: 2026-01-01}")
        )
        init("--url", server.url, "--model", "lab/My-Model 3")
        assert yaml.safe_load(file.read_text())["price"]["completion"] == 2, "what was set by hand stays"
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


def test_the_simulated_model_behind_serve_keeps_what_its_shipped_yaml_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with paid_server(answer_well) as server:
        result = init("--url", server.url, "--model", "simulated", "--name", "script")
    assert "Would be broken" not in result.stdout and "agentsys" in result.stdout.split("Can carry:")[1]
    card = yaml.safe_load(Path("conf/model/script.yaml").read_text())
    assert (card["simulated"], card["send_role"], card["base_url"]) == (True, True, server.url)


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
            (["--url", "http://127.0.0.1:port"], "no address"),
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


SECRET = "sk-very-secret"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "conf" / "model"
    folder.mkdir(parents=True)
    (folder / "keyed.yaml").write_text(
        "# Keyed.\napi_key_env: MY_KEY\nproject_env: MY_PROJECT\nbase_url: null\n"
    )
    (folder / "local.yaml").write_text("# Local.\napi_key_env: null\n")
    (folder / "torn.yaml").write_text("a: [")
    return tmp_path / "conf"


@pytest.fixture
def healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "run_self_check", lambda: CheckResult("self-check", True, "fine"))


@pytest.mark.usefixtures("healthy")
def test_doctor_says_which_keys_are_set_and_never_their_values(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", SECRET)
    monkeypatch.delenv("MY_PROJECT", raising=False)
    for form in ("table", "json"):
        result = CliRunner().invoke(app, ["init", "--check", "--config-dir", str(own), "--format", form])
        assert result.exit_code == 0, result.exception
        assert "MY_KEY is set, MY_PROJECT is not set" in result.output
        assert SECRET not in result.output
    found = {f["subject"]: f for f in json.loads(result.output)["models"]}
    assert not found["keyed"]["ok"]
    assert found["local"]["ok"] is None
    assert found["local"]["detail"] == "needs no key; its server was not checked: --ping asks it"
    assert found["simulated"] == {"subject": "simulated", "ok": True, "detail": "needs no key"}
    assert found["litellm"] == {
        "subject": "litellm",
        "ok": None,
        "detail": "needs model.model_id=...; not checked",
    }
    assert "not valid YAML" in found["torn"]["detail"]


def test_missing_extra_gives_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_command, "_find_installed_version", lambda package: None)
    found = {finding.subject: finding for finding in doctor_command.check_extras()}
    assert found["litellm"].detail == "litellm missing: pip install 'agentsys-bench[litellm]'"
    assert "dev" not in found


def test_unwritable_logdir_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert not doctor_command.check_logdir(blocked / "runs").ok
    assert doctor_command.check_logdir(tmp_path / "new" / "runs").detail.endswith("can be made")
    assert doctor_command.check_logdir(tmp_path).detail.endswith("is writable")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_failing_self_check_exits_with_1_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[object]:
        raise RuntimeError("the model is \x1b[5mbroken")

    monkeypatch.setattr(doctor_command, "_run_one_case", broken)
    result = CliRunner().invoke(app, ["init", "--check"])
    assert result.exit_code == 1
    assert "RuntimeError: the model is \\x1b[5mbroken" in result.output


def test_self_check_runs_a_case_end_to_end() -> None:
    found = doctor_command.run_self_check()
    assert found.ok, found.detail


@pytest.mark.parametrize(
    ("vertexai", "wanted"),
    [
        ("false", "MY_KEY is set; its server was not checked: --ping asks it"),
        ("true", "MY_PROJECT is not set, MY_PLACE is not set"),
    ],
)
def test_of_two_ways_to_a_model_only_the_chosen_ones_variables_are_wanted(
    own: Path, monkeypatch: pytest.MonkeyPatch, vertexai: str, wanted: str
) -> None:
    (own / "model" / "either.yaml").write_text(
        f"api_key_env: MY_KEY\nvertexai: {vertexai}\nproject_env: MY_PROJECT\nlocation_env: MY_PLACE\n"
    )
    monkeypatch.setenv("MY_KEY", SECRET)
    for variable in ("MY_PROJECT", "MY_PLACE"):
        monkeypatch.delenv(variable, raising=False)
    found = doctor_command.check_model("either", [own])
    assert (found.ok, found.detail) == (None if vertexai == "false" else False, wanted)


def _asked(own: Path, url: str) -> CheckResult:
    (own / "model" / "asked.yaml").write_text(
        "_target_: agentsys.models.providers.openai.OpenAIModel\nname: asked\nprose_name: AI assistant\n"
        f"model_id: m\napi_key_env: null\ntemperature: null\nbase_url: {url}\n"
    )
    return doctor_command.check_model("asked", [own], ping=True)


@pytest.mark.parametrize(
    ("answer", "ok", "told"),
    [
        (calls("ready", '{"word": "yes"}'), True, "answered, with the tool call it was asked for"),
        (says("Hello."), False, "answered without the tool call"),
        (fails(401), False, "check the key"),
    ],
)
def test_a_ping_tells_what_the_server_answers(own: Path, answer: Answer, ok: bool, told: str) -> None:
    with paid_server(lambda number, body: answer) as server:
        found = _asked(own, server.url)
        assert server.asked
    assert found.ok is ok
    assert told in found.detail


def test_nothing_is_asked_without_a_ping(own: Path) -> None:
    with paid_server(lambda number, body: says()) as server:
        _asked(own, server.url)
        before = len(server.asked)
        assert doctor_command.check_model("asked", [own]).ok is None
        assert len(server.asked) == before


@pytest.mark.parametrize(("endless", "said"), [(False, "timeout"), (True, "")])
def test_a_list_of_models_that_drips_or_never_ends_is_given_up_in_time(
    monkeypatch: pytest.MonkeyPatch, endless: bool, said: str
) -> None:
    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b" " * (100_000 if endless else 1))
                    time.sleep(0 if endless else 0.05)

        def log_message(self, *_: Any) -> None:
            pass

    monkeypatch.setattr(init_command, "_LIST_S", 60.0 if endless else 1.0)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url, start = f"http://127.0.0.1:{server.server_port}", time.monotonic()
    if endless:
        assert init_command._list_models(url, None) == {}
    else:
        with pytest.raises(Unavailable, match=said):
            init_command._list_models(url, None)
    assert time.monotonic() - start < 30
    server.shutdown()
