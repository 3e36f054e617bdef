"""`serve_agent` and `agentsys serve defense=...`: from settings to a base URL, records and a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from agentdojo.agent_pipeline.agent_pipeline import AgentPipeline, load_system_message
from agentdojo.agent_pipeline.basic_elements import InitQuery, SystemMessage
from agentdojo.agent_pipeline.llms.openai_llm import OpenAILLM
from agentdojo.agent_pipeline.tool_execution import ToolsExecutionLoop, ToolsExecutor
from agentdojo.attacks.attack_registry import load_attack
from agentdojo.benchmark import benchmark_suite_with_injections
from agentdojo.logging import OutputLogger
from agentdojo.task_suite.load_suites import get_suite
from front_clients import wait_until
from small_runs import records_in
from typer.testing import CliRunner

import agentsys
from agentsys.cli import app
from agentsys.errors import ConfigError
from agentsys.models.providers.sdk_model import SdkModel
from agentsys.records.case_reader import load_runs
from agentsys.records.names_file import read_answering_agent
from agentsys.serve_agent import serve_command
from agentsys.serve_agent.agent_server import ServedAgent, build_defended_agent, serve_agent
from agentsys.serve_agent.conversation_router import ConversationLimits

Scores = dict[tuple[str, str], tuple[bool, bool]]
"""(user task, injection task) -> whether the one was solved, and the other carried out."""
TASKS = {"slack": (["user_task_0"], ["injection_task_1", "injection_task_3"])}
"""Suite -> user and injection tasks that are compared in the fast tests; the whole grid is run by hand."""


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


def by_agentdojo(served: ServedAgent, suite_name: str, folder: Path) -> Scores:
    """What AgentDojo's own runner finds, its own OpenAI element pointed at the server."""
    suite = get_suite("v1.2.2", suite_name)
    llm = OpenAILLM(openai_of(served), "gpt-4o-2024-05-13")
    loop = ToolsExecutionLoop([ToolsExecutor(), llm])
    pipeline = AgentPipeline([SystemMessage(load_system_message(None)), InitQuery(), llm, loop])
    pipeline.name = "gpt-4o-2024-05-13"
    attack = load_attack("important_instructions", suite, pipeline)
    users, injections = TASKS[suite_name]
    with OutputLogger(str(folder)):
        found = benchmark_suite_with_injections(pipeline, suite, attack, folder, False, users, injections)
    security = found["security_results"]
    return {pair: (bool(solved), bool(security[pair])) for pair, solved in found["utility_results"].items()}


def by_us(suite_name: str, defense: str, folder: Path) -> Scores:
    users, injections = TASKS[suite_name]
    agentsys.run(
        [
            *("model=simulated", "model.prose_name=GPT-4", f"defense={defense}", f"logdir={folder}"),
            *("attack=important_instructions", f"benchmark.suites=[{suite_name}]"),
            f"user_tasks=[{','.join(users)}]",
            f"injection_tasks=[{','.join(injections)}]",
        ]
    )
    return {
        (record["user_task_id"], record["injection_task_id"]): (record["utility"], record["security"])
        for record in records_in(folder).values()
    }


def test_agentdojos_own_runner_finds_behind_the_base_url_what_our_runner_finds(
    served: ServedAgent, tmp_path: Path
) -> None:
    found = by_agentdojo(served, "slack", tmp_path / "dojo")
    assert found == by_us("slack", "agentsys", tmp_path / "ours")
    assert set(found.values()) == {(True, False)}


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
    assert trace in page
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


def test_a_finished_conversation_is_on_disk_when_its_answer_arrives(tmp_path: Path) -> None:
    settings = ["model=simulated", "defense=none", f"logdir={tmp_path}"]
    with serve_agent(settings, limits=ConversationLimits(idle_s=60)) as served:
        reply = openai_of(served).chat.completions.with_raw_response.create(
            model="m", messages=[{"role": "user", "content": "Hi"}]
        )
        [path] = tmp_path.rglob(f"{reply.headers['x-agentsys-trace']}/none/none.json")
        assert json.loads(path.read_bytes())["agentsys"]["status"] == "ok"
        wait_until(lambda: served.router.running_count == 0, "a thread stays")


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


def test_a_served_agent_over_typed_values_asks_an_engineers_file_for_roles(tmp_path: Path) -> None:
    specs: list[Any] = [
        {"type": "function", "function": {"name": name, "description": words, "parameters": schema}}
        for name, words, schema in (
            ("read_file", "Reads a file.", _text_arguments("file_path")),
            ("send_money", "Sends money.", _text_arguments("recipient", "amount", "subject", "date")),
        )
    ]
    handed: dict[str, list[str]] = {}
    for roles in ("", "tools: {send_money: {recipient: secret}}"):
        folder = tmp_path / (roles[:5] or "empty")
        folder.mkdir()
        (folder / "roles.yaml").write_text(roles, encoding="utf-8")
        settings = [
            "defense=agentsys_typed",
            f"defense.roles_file={folder / 'roles.yaml'}",
            f"logdir={folder}",
        ]
        messages: list[Any] = [
            {"role": "user", "content": get_suite("v1.2.2", "banking").user_tasks["user_task_0"].PROMPT}
        ]
        with serve_agent(["model=simulated", *settings]) as running:
            while True:
                reply = openai_of(running).chat.completions.create(model="x", messages=messages, tools=specs)
                messages.append(reply.choices[0].message)
                if not messages[-1].tool_calls:
                    break
                for call in messages[-1].tool_calls:
                    handed.setdefault(roles, []).append(call.function.name)
                    bill = "Please pay 98.70 to UK12345678901234567890, subject Car Rental."
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": bill})
    assert [names.count("send_money") for names in handed.values()] == [1, 0]


def _text_arguments(*names: str) -> dict[str, Any]:
    kinds = {name: {"type": "number" if name == "amount" else "string"} for name in names}
    return {"type": "object", "properties": kinds, "required": [*names]}
