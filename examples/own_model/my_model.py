"""A complete model outside the package: any server that takes OpenAI's chat format, without its SDK.

One request per call: retries, cache, budgets and accounting are wrapped around it.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

from agentdojo.functions_runtime import FunctionCall
from agentdojo.types import ChatMessage

from agentsys.plugins import (
    ChatReply,
    ChatRequest,
    ConfigError,
    ErrorKind,
    ModelError,
    Price,
    ToolSpec,
    Usage,
    assistant,
    cost_usd,
    text_of,
)


class MyModel:
    """A server's chat completions over HTTP. Many threads may use one object: it keeps no state.

    Args:
        name: The name in records and tables.
        model_id: What the server calls the model.
        base_url: The server's address, with `/v1`.
        api_key_env: The variable that holds the key; None: no key.
        timeout_s: Seconds to wait for an answer.
        price: The YAML's price; None: what a call costs is not known.

    Raises:
        ConfigError: If the key's variable is not set.
    """

    def __init__(
        self,
        name: str,
        model_id: str,
        base_url: str,
        api_key_env: str | None = None,
        timeout_s: float = 60.0,
        price: Price | None = None,
    ) -> None:
        self.name = name
        self._model_id = model_id
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._timeout_s = timeout_s
        self._price = price
        self._headers = {"Content-Type": "application/json"}
        if api_key_env is not None:
            if not os.environ.get(api_key_env):
                raise ConfigError(f"Model '{name}' needs a key: set {api_key_env}.")
            self._headers["Authorization"] = f"Bearer {os.environ[api_key_env]}"

    def complete(self, request: ChatRequest) -> ChatReply:
        """Answer one request."""
        body: dict[str, Any] = {
            "model": self._model_id,
            "messages": [_sent(message) for message in request.messages],
            "temperature": request.temperature or 0.0,
        }
        if request.tools:
            body |= {"tools": [_tool(tool) for tool in request.tools], "tool_choice": request.tool_choice}
        answer = self._post(body)
        try:
            return _reply(answer, self._price)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise ModelError(ErrorKind.MALFORMED_REPLY, f"{type(error).__name__}: {error}") from error

    def _post(self, body: dict[str, Any]) -> Any:
        asked = urllib.request.Request(self._url, json.dumps(body).encode(), self._headers)
        try:
            with urllib.request.urlopen(asked, timeout=self._timeout_s) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise ModelError(_KINDS.get(error.code, ErrorKind.SERVER_ERROR), f"HTTP {error.code}") from error
        except (OSError, ValueError) as error:
            raise ModelError(ErrorKind.CONNECTION, f"{type(error).__name__}: {error}") from error


_KINDS = {
    400: ErrorKind.BAD_REQUEST,
    401: ErrorKind.BAD_KEY,
    404: ErrorKind.UNKNOWN_MODEL,
    429: ErrorKind.RATE_LIMITED,
}
"""Status -> kind. The kind says whether a request is repeated, ends its case or ends the run."""


def _sent(message: ChatMessage) -> dict[str, Any]:
    sent: dict[str, Any] = {"role": message["role"], "content": text_of(message)}
    if message["role"] == "tool":
        sent |= {"tool_call_id": message["tool_call_id"], "content": message["error"] or text_of(message)}
    if message["role"] == "assistant" and message["tool_calls"]:
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function, "arguments": json.dumps(dict(call.args))},
            }
            for call in message["tool_calls"]
        ]
    return sent


def _tool(tool: ToolSpec) -> dict[str, Any]:
    told = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": told}


def _reply(answer: Any, price: Price | None) -> ChatReply:
    message, used = answer["choices"][0]["message"], answer.get("usage") or {}
    calls = [
        FunctionCall(
            function=call["function"]["name"], args=json.loads(call["function"]["arguments"]), id=call["id"]
        )
        for call in message.get("tool_calls") or ()
    ]
    usage = Usage(used.get("prompt_tokens", 0), used.get("completion_tokens", 0))
    return ChatReply(
        assistant(message.get("content"), calls or None),
        usage,
        cost_usd(usage, price),
        model_id=str(answer.get("model", "")),
    )
