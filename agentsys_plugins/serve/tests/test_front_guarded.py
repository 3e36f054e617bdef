"""`guard` over Python functions; `load_defense` and `load_model` in AgentDojo's own runner."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from agentdojo.attacks.attack_registry import load_attack
from agentdojo.benchmark import benchmark_suite_with_injections
from agentdojo.logging import OutputLogger
from agentdojo.task_suite.load_suites import get_suite
from pydantic import BaseModel, Field

import agentsys
from agentsys.errors import ConfigError, Unavailable, find_missing_packages
from agentsys.models.pipeline_elements import describe_tool
from agentsys_plugins.serve import GuardFailed, guard, guarded_tools, load_defense, load_model, mcp_tools
from agentsys_plugins.serve.client_tools import ClientRuntime, ToolFailed
from agentsys_plugins.serve.guarded_tools import build_python_tool

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


class Place(BaseModel):
    town: str
    code: int = Field(alias="zip")


@dataclass
class Sum:
    euros: int


class Note(typing.TypedDict):
    text: typing.Annotated[str, Field(max_length=5)]
    by: typing.NotRequired[str]


class Kind(Enum):
    BILL = "bill"


def test_arguments_arrive_as_their_annotated_types() -> None:
    got: list[Any] = []

    def pay(
        place: Place,
        total: Sum,
        note: Note,
        notes: list[Note] | None,
        kind: Kind,
        day: datetime.date,
        pair: tuple[int, str],
        count: int = Field(3, ge=1),
        others: list[Sum] = [],  # noqa: B006 - what a user writes
    ) -> str:
        """Pays."""
        got.extend([place, total, note, notes, kind, day, pair, count, others])
        return "paid"

    tool = build_python_tool(pay)
    args = {"place": {"town": "Rome", "zip": 5}, "total": {"euros": 3}, "note": {"text": "hi"}, "notes": None}
    args |= {"kind": "bill", "day": "2026-01-02", "pair": [1, "a"], "others": [{"euros": 1}]}
    assert ClientRuntime([tool]).run_function(None, "pay", args) == ("paid", None)
    place = Place(town="Rome", zip=5)
    dated = datetime.date(2026, 1, 2)
    assert got == [place, Sum(3), {"text": "hi"}, None, Kind.BILL, dated, (1, "a"), 3, [Sum(1)]]
    # What is judged, and stands in traces, is plain.
    read = tool.parameters.model_validate(args).model_dump(exclude_unset=True)
    assert read["place"] == {"town": "Rome", "code": 5}


def test_descriptions_and_bounds_of_annotated_arguments_reach_model_and_check() -> None:
    def count(
        most: typing.Annotated[int, Field(le=100, description="At most.")],
        word: typing.Annotated[str, "What to count."],
        least: int = Field(1, ge=1, description="At least."),
    ) -> str:
        """Counts.

        Args:
            most: Is said otherwise.
        """
        return "counted"

    tool = build_python_tool(count)
    told = describe_tool(tool).parameters["properties"]
    assert [told[name]["description"] for name in ("most", "word", "least")] == [
        *("At most.", "What to count.", "At least.")
    ]
    assert (told["most"]["maximum"], told["least"]["minimum"], told["least"]["default"]) == (100, 1, 1)
    runtime = ClientRuntime([tool])
    assert runtime.run_function(None, "count", {"most": 100, "word": "a"}) == ("counted", None)
    for wrong in ({"most": 5000}, {"most": 1, "least": 0}):
        assert "ValidationError" in str(runtime.run_function(None, "count", {"word": "a", **wrong})[1])


def hidden(_x: int) -> None:
    """Hides."""


def pydantics(model_config: int) -> None:
    """Is pydantic's."""


def absent(there: int, x: "NotThere") -> None:  # type: ignore[name-defined]  # noqa: F821, UP037
    """Names a type that is not there."""


def no_type(x: object()) -> None:  # type: ignore[valid-type]
    """Names what is no type."""


def no_json(there: int, x: type) -> None:
    """Takes what JSON has no form for."""


@pytest.mark.parametrize("tool", [hidden, pydantics, absent, no_type, no_json])
def test_a_parameter_that_cannot_be_offered_is_one_error_that_names_it(tool: Any) -> None:
    *_, name = inspect.signature(tool).parameters
    with pytest.raises(ConfigError, match=f"argument '{name}' cannot be offered") as found:
        build_python_tool(tool)
    assert "\n" not in str(found.value)


def test_a_type_of_the_result_alone_that_is_not_there_is_no_matter() -> None:
    def read(page: int) -> "NotThere":  # type: ignore[name-defined]  # noqa: F821, UP037
        return page

    assert describe_tool(build_python_tool(read)).parameters["required"] == ["page"]


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


SERVER = Path(__file__).parents[3] / "tests" / "support" / "mcp_mail_server.py"
PAGE = Path(__file__).parents[3] / "docs" / "interop.md"
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


@needs_mcp
@pytest.mark.parametrize("cursor", ["again", ""])
def test_a_list_of_tools_that_never_ends_is_told(cursor: str) -> None:
    from mcp import types

    class Session:
        async def list_tools(self, params: Any = None) -> types.ListToolsResult:
            await asyncio.sleep(0)
            return types.ListToolsResult(tools=[], next_cursor=cursor)

    with pytest.raises(ConfigError, match="does not end"):
        asyncio.run(asyncio.wait_for(mcp_tools(Session()), 60))  # type: ignore[arg-type]


@needs_mcp
def test_each_block_of_an_mcp_result_is_shown_to_its_reader() -> None:
    from mcp import types

    def text(said: str, *audience: Any) -> types.TextContent:
        about = types.Annotations(audience=list(audience)) if audience else None
        return types.TextContent(type="text", text=said, annotations=about)

    body = types.TextResourceContents(uri="repo://a.md", text="The body.")
    blob = types.BlobResourceContents(uri="repo://a.png", mime_type="image/png", blob="AAAA")
    content: list[types.ContentBlock] = [
        text("For both."),
        text("For the model.", "assistant"),
        text("For the user.", "user"),
        types.EmbeddedResource(type="resource", resource=body),
        types.EmbeddedResource(type="resource", resource=blob),
        types.ResourceLink(type="resource_link", name="b", uri="repo://b.md", description="More."),
        types.ImageContent(type="image", data="AAAA", mime_type="image/png"),
    ]

    class Session:
        def __init__(self, result: types.CallToolResult) -> None:
            self.result = result

        async def list_tools(self) -> types.ListToolsResult:
            return types.ListToolsResult(tools=[types.Tool(name="read", input_schema={"type": "object"})])

        async def call_tool(self, tool: str, args: Any) -> types.CallToolResult:
            return self.result

    def call(result: types.CallToolResult) -> tuple[Any, list[str]]:
        told: list[str] = []

        async def main() -> Any:
            tools = await mcp_tools(Session(result), tell_user=told.append)  # type: ignore[arg-type]
            return await asyncio.to_thread(ClientRuntime(tools).run_function, None, "read", {})

        return asyncio.run(main()), told

    shown = (
        "For both.\nFor the model.\n[resource repo://a.md]\nThe body.\n"
        "[resource repo://a.png, image/png, not read]\n[link repo://b.md] b More.\n[image image/png]"
    )
    assert call(types.CallToolResult(content=content)) == ((shown, None), ["For the user."])
    data = {"total": 3}
    both = types.CallToolResult(content=[text('{"total": 3}')], structured_content=data)
    assert call(both)[0] == ('{"total": 3}', None)
    other = types.CallToolResult(content=[text("Three.")], structured_content=data)
    assert call(other)[0] == ('Three.\n{"total":3}', None)
    failed = types.CallToolResult(content=content[3:4], structured_content=data, is_error=True)
    assert call(failed)[0] == ("", '[resource repo://a.md]\nThe body.\n{"total":3}')


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded_tools, "find_missing_packages", lambda packages: list(packages))
    with pytest.raises(Unavailable, match=r"agentsys-bench\[mcp\]"):
        asyncio.run(mcp_tools(None))  # type: ignore[arg-type]


@needs_mcp
@pytest.mark.slow
def test_the_pages_example_runs(tmp_path: Path) -> None:
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
    # In a process of its own: `mcp` keeps the `sys.stderr` that it is imported under, and pytest's has no `fileno`.
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.rstrip().endswith(")"), ran.stderr
