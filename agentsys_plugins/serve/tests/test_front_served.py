"""`serve_agent` and `agentsys serve defense=...`: from settings to a base URL, records and a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from reported_cases import index_of
from typer.testing import CliRunner

import agentsys
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.models.providers.sdk_model import SdkModel
from agentsys.records.case_reader import load_runs
from agentsys.records.names_file import read_answering_agent
from agentsys_plugins.serve import serve_command
from agentsys_plugins.serve.agent_server import ServedAgent, build_defended_agent, serve_agent


def test_the_models_sdk_is_ready_before_the_first_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = list[str]()
    monkeypatch.setattr(SdkModel, "warm_up", lambda self: ready.append(self.name))
    build_defended_agent(["model=served", "defense=none", f"logdir={tmp_path}"])
    assert ready == ["served"]


def openai_of(served: ServedAgent, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(api_key=key, base_url=served.server.openai_base_url, max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedAgent]:
    folder = tmp_path_factory.mktemp("served")
    with serve_agent(["model=simulated", "defense=agentsys", f"logdir={folder}"]) as running:
        yield running


def test_conversations_are_records_in_the_report_and_in_no_rate(served: ServedAgent, tmp_path: Path) -> None:
    reply = openai_of(served).chat.completions.with_raw_response.create(
        model="m", messages=[{"role": "user", "content": "Hello, what can you do?"}]
    )
    trace = reply.headers["x-agentsys-trace"]
    assert reply.parse().model == "simulated"
    cases = load_runs(served.folder)
    [case] = cases[cases["user_task_id"] == trace].to_dict("records")
    assert (case["benchmark"], case["defense"], case["status"], case["simulated"]) == (
        *("served", "agentsys", "ok"),
        True,
    )
    page = agentsys.report(served.folder, tmp_path / "report.html").read_text()
    assert trace in {row["user_task"] for row in index_of(page)}
    shown = agentsys.results(served.folder)
    assert len(shown.frame) == 0
    assert "Without scores" in str(shown)


def test_a_token_is_asked_for_and_opens_the_server_to_others(tmp_path: Path) -> None:
    settings = ["model=simulated", "defense=none", f"logdir={tmp_path}"]
    with serve_agent(settings, host="0.0.0.0", tokens=["a", "b"]) as served:
        port = served.server.base_url.rpartition(":")[2]
        base = f"http://127.0.0.1:{port}/v1"
        for key in ("a", "b"):
            client = openai.OpenAI(api_key=key, base_url=base, max_retries=0)
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
        with pytest.raises(openai.AuthenticationError):
            openai.OpenAI(api_key="c", base_url=base, max_retries=0).models.list()


def test_settings_of_several_agents_or_of_one_that_cannot_be_are_refused(tmp_path: Path) -> None:
    for defense, told in (("none,agentsys", "one model and one defense"), ("agentsis", "Did you mean")):
        with pytest.raises(ConfigError, match=told):
            build_defended_agent(["model=simulated", f"defense={defense}", f"logdir={tmp_path}"])


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["serve", "--port", "0", *arguments])


def test_the_command_serves_an_agent_where_settings_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed: list[str] = []
    banner = serve_command.format_agent_banner
    monkeypatch.setattr(serve_command, "wait_for_interrupt", lambda: None)
    monkeypatch.setattr(
        serve_command, "format_agent_banner", lambda served: printed.append(banner(served)) or "up"
    )
    done = invoke("defense=none", f"logdir={tmp_path}", "--at-once", "3", "--idle-s", "5")
    assert done.exit_code == 0, done.output
    assert "simulated+none (a simulated model, not an LLM)" in printed[0]
    assert "Served 0 requests; conversations are in" in done.output
    assert serve_command.add_conversations_folder(["defense=none"]) == [
        "defense=none",
        "logdir=results/served",
    ]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["defense=none", "--host", "0.0.0.0"], "not loopback"),
        (["defense=none", "--token-env", "NO_SUCH_VARIABLE_HERE"], "NO_SUCH_VARIABLE_HERE"),
    ],
)
def test_options_that_do_not_fit_an_agent_are_refused(arguments: list[str], told: str) -> None:
    done = invoke(*arguments)
    assert isinstance(done.exception, ConfigError)
    assert told in str(done.exception)


def test_the_log_folder_says_who_answered_and_of_two_agents_neither(tmp_path: Path) -> None:
    def answering(defense: str, asked: str) -> tuple[str, str, list[str]]:
        with serve_agent(["model=simulated", f"defense={defense}", f"logdir={tmp_path}"]) as running:
            hi: Any = [{"role": "user", "content": "hi"}]
            openai_of(running).chat.completions.create(model=asked, messages=hi)
        agent = read_answering_agent(str(tmp_path))
        assert agent is not None and agent.simulated
        return agent.model, agent.defense, agent.asked

    assert answering("none", "gpt-4o") == ("simulated", "none", ["gpt-4o"])
    assert answering("none", "gpt-5.1") == ("simulated", "none", ["gpt-4o", "gpt-5.1"])
    for defense in ("prompt_sandwiching", "none"):  # which of the files are whose is not known any more
        assert answering(defense, "gpt-4o") == ("unrecorded", "unrecorded", ["gpt-4o", "gpt-5.1"])
