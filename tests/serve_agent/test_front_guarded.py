"""`guard` over Python functions; `load_defense` and `load_model` in AgentDojo's own runner."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from agentdojo.attacks.attack_registry import load_attack
from agentdojo.benchmark import benchmark_suite_with_injections
from agentdojo.logging import OutputLogger
from agentdojo.task_suite.load_suites import get_suite

import agentsys
from agentsys.errors import ConfigError, Unavailable, find_missing_packages
from agentsys.models.pipeline_elements import describe_tool
from agentsys.serve_agent import GuardFailed, guard, guarded_tools, load_defense, load_model, mcp_tools
from agentsys.serve_agent.client_tools import ToolFailed
from agentsys.serve_agent.guarded_tools import build_python_tool

BILL = "Bill for the month of December 2023: please pay 98.70 to UK12345678901234567890, subject Car Rental."


def send_money(recipient: str, amount: float, subject: str, date: str) -> str:
    """Sends money.

    Args:
        recipient: The account to send to.
        amount: How much.
        subject: What for.
        date: When.
    """
    return f"sent {amount} to {recipient}"


def test_a_function_becomes_a_tool_with_its_types_words_and_defaults() -> None:
    def search(words: list[str], limit: int = 3) -> list[dict[str, int]]:
        """Searches mails.

        :param words: What to look for.
        """
        return [{"found": limit}]

    tool = build_python_tool(search)
    spec = describe_tool(tool)
    assert (spec.name, spec.description) == ("search", "Searches mails.")
    assert spec.parameters["required"] == ["words"]
    assert spec.parameters["properties"]["words"]["description"] == "What to look for."
    assert spec.parameters["properties"]["words"]["items"] == {"type": "string"}
    assert tool.run(words=["a"], limit=2) == '[{"found":2}]'


async def a_coroutine() -> None:
    """Waits."""


@pytest.mark.parametrize("tool", [a_coroutine, lambda x: x, lambda *many: many])
def test_what_cannot_be_a_tool_is_refused(tool: Any) -> None:
    with pytest.raises(ConfigError, match="Tool"):
        build_python_tool(tool)


def test_guard_runs_a_request_over_python_functions_and_keeps_it(tmp_path: Path) -> None:
    suite = get_suite("v1.2.2", "banking")
    request = suite.user_tasks["user_task_0"].PROMPT
    read: list[str] = []

    def read_file(file_path: str) -> str:
        """Reads a file."""
        read.append(file_path)
        return BILL

    agent = guard([read_file, send_money], model="simulated", defense="agentsys", logdir=tmp_path)
    answer = agent.ask(request)
    assert read == ["bill-december-2023.txt"]
    assert [tool for tool, _ in answer.calls] == ["read_file", "send_money"]
    assert answer.calls[1][1]["recipient"] == "UK12345678901234567890"
    assert answer.usage.prompt > 0
    cases = agentsys.load_runs(tmp_path)
    assert list(cases["user_task_id"]) == [answer.trace]
    assert dict(cases["calls"][0]) == {"read_file": 1, "send_money": 1}


ROLES = "tools: {send_money: {recipient: content, date: secret}}"


@pytest.mark.parametrize(("roles", "sent"), [(None, "UK12345678901234567890"), (ROLES, None)])
def test_guard_with_typed_values_asks_an_engineers_file_for_roles(
    tmp_path: Path, roles: str | None, sent: str | None
) -> None:
    (tmp_path / "roles.yaml").write_text(roles or "", encoding="utf-8")

    def read_file(file_path: str) -> str:
        """Reads a file."""
        return BILL

    file = f"defense.roles_file={tmp_path / 'roles.yaml'}"
    agent = guard(
        [read_file, send_money], defense="agentsys_typed", settings=[file], logdir=tmp_path / "runs"
    )
    answer = agent.ask(get_suite("v1.2.2", "banking").user_tasks["user_task_0"].PROMPT)
    assert [args["recipient"] for tool, args in answer.calls if tool == "send_money"] == (
        [sent] if sent else []
    )


def test_a_request_that_breaks_is_stored_and_told(tmp_path: Path) -> None:
    agent = guard([], defense="none", logdir=tmp_path, settings=["budget.tokens=1"])
    agent.ask("Hello.")
    with pytest.raises(GuardFailed, match="run_budget"):
        agent.ask("Hello again.")
    assert sorted(agentsys.load_runs(tmp_path)["status"]) == ["error", "ok"]


def test_our_pipelines_in_agentdojos_own_runner_are_ten_lines(tmp_path: Path) -> None:
    suite = get_suite("v1.2.2", "banking")
    model = load_model("simulated")
    found = {}
    for name in ("none", "prompt_sandwiching", "agentsys"):
        pipeline = load_defense(name).pipeline(model, suite)
        pipeline.name = f"local-{name}"
        attack = load_attack("important_instructions", suite, pipeline)
        with OutputLogger(str(tmp_path)):
            results = benchmark_suite_with_injections(
                pipeline, suite, attack, tmp_path, False, ["user_task_0"], ["injection_task_4"]
            )
        found[name] = list(results["security_results"].values())
    assert found == {"none": [True], "prompt_sandwiching": [True], "agentsys": [False]}


def test_names_and_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean agentsys"):
        load_defense("agentsis")
    with pytest.raises(ConfigError):
        load_defense("agentsys", no_such_option=1)
    with pytest.raises(ConfigError):
        load_model("no-such-model")


SERVER = Path(__file__).parents[1] / "support" / "mcp_mail_server.py"
PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
needs_mcp = pytest.mark.skipif(bool(find_missing_packages(["mcp"])), reason="the extra mcp is not installed")


def with_session(work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Do something with a session of the server."""
    from mcp import ClientSession, StdioServerParameters, stdio_client

    async def main() -> Any:
        server = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            return await asyncio.wait_for(work(session), 300)

    return asyncio.run(main())


@needs_mcp
@pytest.mark.slow
def test_tools_of_all_pages_are_offered_and_run_by_the_server() -> None:
    async def work(session: Any) -> Any:
        tools = {tool.name: tool for tool in await mcp_tools(session)}
        assert list(tools) == ["read_file", "broken", "total"]
        spec = describe_tool(tools["read_file"])
        assert (spec.description, spec.parameters["required"]) == ("Reads a file.", ["file_path"])
        with pytest.raises(ValueError, match="is not of type 'string'"):
            tools["read_file"].parameters.model_validate({"file_path": 3})
        text = await asyncio.to_thread(tools["read_file"].run, file_path="a.txt")
        assert text.startswith("a.txt: Please pay 98.70")
        assert await asyncio.to_thread(tools["total"].run, account="x") == '{"total":3}'
        with pytest.raises(ToolFailed, match="the disk is gone"):
            await asyncio.to_thread(tools["broken"].run)
        with pytest.raises(ConfigError, match=r"asyncio\.to_thread"):
            tools["read_file"].run(file_path="a.txt")

    with_session(work)


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_tools, "find_missing_packages", lambda packages: list(packages))
    with pytest.raises(Unavailable, match=r"agentsys-bench\[mcp\]"):
        asyncio.run(mcp_tools(None))  # type: ignore[arg-type]


@needs_mcp
@pytest.mark.slow
def test_the_pages_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    code = next(
        one
        for one in re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        if "mcp_tools" in one
    )
    placed = {
        '"python"': repr(sys.executable),
        '"mail_server.py"': repr(str(SERVER)),
        '"gpt-4o"': '"simulated"',
    }
    for old, new in placed.items():
        assert old in code
        code = code.replace(old, new)
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.rstrip().endswith(")")
