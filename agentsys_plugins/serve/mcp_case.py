"""`serve_case`: one case as an MCP server over stdio, for clients and proxies that are not ours.

The client is the agent. Its task stands in `task.json` of the log folder when the server is up; it writes its
answer to `answer.txt` there before it ends the session. `score.json` is written after the session, where no model
of the client's reads it: nothing of the task, the goal or the score goes through the server.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.base.atomic_file import write_atomically
from agentsys.base.json_values import bound_value
from agentsys.contracts import Defense, Suite
from agentsys.errors import ConfigError, Unavailable
from agentsys.models.chat import ChatModel, ChatRequest, assistant, tool_message, user
from agentsys.models.pipeline_elements import (
    LoopState,
    LoopStep,
    default_system_message,
    make_named_pipeline,
    tool_specs,
    write_tool_value,
)
from agentsys.models.trace import get_current_tracer
from agentsys.runs.build_record import build_record
from agentsys.runs.run_case import run_case
from agentsys.runs.run_session import prepare_session

TASK, ANSWER, SCORE = "task.json", "answer.txt", "score.json"
"""Files in a case's folder."""
_NO_ANSWER = "(The client left no answer.)"


def serve_case(overrides: Sequence[str], config_dirs: Sequence[Path] = ()) -> None:
    """Serve the one case that settings choose, until the client ends the session; then score it.

    Raises:
        ConfigError: If they choose none, or several.
    """
    session = prepare_session(overrides, config_dirs=config_dirs, again=True)
    jobs, folder = session.plan.jobs, session.settings[0].logdir
    if len(jobs) != 1:
        raise ConfigError(
            f"--mcp serves one case, and these settings choose {len(jobs)}; give one suite, attack, user task and"
            " injection task: benchmark.suites=[banking] user_tasks=[0] injection_tasks=[4]."
        )
    (job,) = jobs
    folder.mkdir(parents=True, exist_ok=True)
    for stale in (ANSWER, SCORE):
        (folder / stale).unlink(missing_ok=True)
    run = run_case(replace(job, cell=replace(job.cell, defense=McpClient(folder))))
    record = build_record(run)
    score = {
        "case": job.case.model_dump(mode="json"),
        **{name: getattr(record, name) for name in ("status", "utility", "security", "shown_tools")},
        "error": run.error and run.error.message,
        "exposure": record.exposure.model_dump(mode="json"),
        "calls": [
            {"tool": tool, "args": args, "error": error} for tool, args, error in run.tracer.executed_calls
        ],
    }
    write_atomically(folder / SCORE, json.dumps(score, indent=2, default=str).encode())


class McpClient(Defense):
    """Whoever speaks to the server, in a defense's place.

    Args:
        folder: The case's folder.
    """

    name = "mcp_client"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pipeline(self, model: ChatModel, suite: Suite) -> BasePipelineElement:
        """The session with the client; the model is never asked."""
        return make_named_pipeline(self.name, _ClientSession(self.folder, default_system_message(suite)))


class _ClientSession(LoopStep):
    def __init__(self, folder: Path, system_message: str) -> None:
        self.folder, self.system_message = folder, system_message

    def step(self, at: LoopState) -> LoopState:
        """Serve the tools until the session ends, then take the answer."""
        task = {"system": self.system_message, "task": at.query, "answer": str(self.folder / ANSWER)}
        write_atomically(self.folder / TASK, json.dumps(task, indent=2).encode())
        messages: list[ChatMessage] = [*at.messages, user(at.query)]
        anyio.run(_serve_tools, replace(at, messages=messages), messages)
        # Clients end a server that is slow to go; the score is written first.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        answer = self.folder / ANSWER
        said = answer.read_text(encoding="utf-8", errors="replace") if answer.is_file() else ""
        messages.append(assistant(said.strip() or _NO_ANSWER))
        get_current_tracer().note_request(ChatRequest(messages, tool_specs(at.runtime.functions.values())))
        return replace(at, messages=messages)


async def _serve_tools(at: LoopState, messages: list[ChatMessage]) -> None:
    """Answer a client's questions; each call and its result are added to the messages."""
    try:
        from mcp import types
        from mcp.server import Server
        from mcp.server.stdio import stdio_server
    except ImportError:
        raise Unavailable(
            "--mcp needs the package mcp: pip install 'agentsys-bench[mcp]'.", needs="mcp"
        ) from None

    async def list_tools(context: Any, params: Any) -> Any:
        offered = tool_specs(at.runtime.functions.values())
        get_current_tracer().note_request(ChatRequest(list(messages), offered))
        tools = [
            types.Tool(name=one.name, description=one.description, input_schema=dict(one.parameters))
            for one in offered
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, params: Any) -> Any:
        call = FunctionCall(
            function=params.name, args=dict(params.arguments or {}), id=f"call_{len(messages)}"
        )
        value, error = at.runtime.run_function(at.env, call.function, dict(call.args))
        text = write_tool_value(bound_value(value))
        messages.extend([assistant(None, [call]), tool_message(call, text, error)])
        shown = types.TextContent(type="text", text=text if error is None else error)
        return types.CallToolResult(content=[shown], is_error=error is not None)

    server = Server("agentsys", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
