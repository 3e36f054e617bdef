"""A defense that is one plain AgentDojo element: it answers calls itself, elsewhere than our runtime would."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from agentdojo.agent_pipeline import AgentPipeline, InitQuery, SystemMessage, ToolsExecutionLoop
from agentdojo.agent_pipeline.base_pipeline_element import BasePipelineElement
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str
from agentdojo.functions_runtime import FunctionsRuntime
from agentdojo.types import ChatMessage, ChatToolResultMessage, text_content_block_from_string

from agentsys.contracts import Suite
from agentsys.models.chat import ChatModel
from agentsys.models.pipeline_elements import ModelElement


class GatewayElement(BasePipelineElement):  # type: ignore[misc]
    """Refuses calls that act (`refuse`), or runs all in a thread (`thread`), a runtime of its own (`own`) or `both`."""

    def __init__(self, way: str, suite: Suite) -> None:
        self.way, self.own = way, FunctionsRuntime(suite.tools)

    def query(
        self,
        query: str,
        runtime: FunctionsRuntime,
        env: Any = None,
        messages: Sequence[ChatMessage] = (),
        extra_args: dict[str, Any] | None = None,
    ) -> Any:
        last = messages[-1]
        calls = (last["tool_calls"] if last["role"] == "assistant" else None) or ()
        return (
            query,
            runtime,
            env,
            [*messages, *(self.answer(call, runtime, env) for call in calls)],
            extra_args,
        )

    def answer(self, call: Any, runtime: FunctionsRuntime, env: Any) -> ChatToolResultMessage:
        """Answer one call."""
        found: list[tuple[Any, str | None]] = []
        runs = self.own if self.way in ("own", "both") else runtime

        def run() -> None:
            refuses = self.way == "refuse" and not call.function.startswith(("get_", "read_"))
            refused = "", "Refused by the gateway."
            found.append(refused if refuses else runs.run_function(env, call.function, call.args))

        if self.way in ("thread", "both"):
            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
        else:
            run()
        said = [text_content_block_from_string(tool_result_to_str(found[0][0]))]
        return ChatToolResultMessage(
            role="tool", content=said, tool_call_id=call.id, tool_call=call, error=found[0][1]
        )


class Gateway:
    """The defense around it."""

    def __init__(self, way: str) -> None:
        self.name, self.way = f"gateway_{way}", way

    def pipeline(self, model: ChatModel, suite: Suite) -> BasePipelineElement:
        """Build an ordinary pipeline of AgentDojo's."""
        llm = ModelElement(model)
        loop = ToolsExecutionLoop([GatewayElement(self.way, suite), llm])
        built = AgentPipeline([SystemMessage("You are helpful."), InitQuery(), llm, loop])
        built.name = self.name
        return built
