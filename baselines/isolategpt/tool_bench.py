"""`ToolBench`: runs tools for spokes and keeps the log of what ran."""

from __future__ import annotations

from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.models.chat import assistant
from agentsys.models.pipeline_elements import LoopState, ToolsElement
from agentsys.models.providers.wire_parts import result_text


class ToolRunner:
    """The one place where the environment is touched."""

    def __init__(self, at: LoopState) -> None:
        self.log: list[ChatMessage] = []
        """Every executed call with its result, as an ordinary agent's conversation would have them."""
        self._at = at
        self._executor = ToolsElement()

    def run_tool(self, name: str, args: dict[str, Any]) -> str:
        """Run a tool: its value as text, or its error."""
        call = FunctionCall(function=name, args=args, id=f"call_{len(self.log)}")
        asked = [assistant(f"Calling {name}.", [call])]
        messages = self._executor.query(self._at.query, self._at.runtime, self._at.env, asked)[3]
        self.log += messages
        return result_text(messages[-1])
