"""The pieces of code in docs/interop.md, and a model that uses the two tools of its agents."""

from __future__ import annotations

import json
import re
from pathlib import Path

from scripted_for_serving import calls, says

from agentsys.models.chat import ChatReply, ChatRequest, text_of
from agentsys_plugins.serve.served_model import Server

PAGE = Path(__file__).parents[2] / "docs" / "interop.md"
ANSWER = "weather: sunny in Rome; time: noon in Rome"
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_ROOT = "http://127.0.0.1:8321"


def block(mark: str) -> str:
    """The one piece of Python on the page that holds a text.

    Raises:
        AssertionError: If there are several, or none.
    """
    [found] = [one for one in _BLOCK.findall(PAGE.read_text(encoding="utf-8")) if mark in one]
    return str(found)


TOOLS = block("def weather")


def at(server: Server, code: str) -> str:
    """The code with a server's address in place of the page's.

    Raises:
        AssertionError: If the page's address is not in it.
    """
    assert _ROOT in code
    return code.replace(_ROOT, server.base_url)


class Clerk:
    """Asks both tools at once for each request, and then says what they told; plays AgentSys's roles, too."""

    name = "clerk"

    def complete(self, request: ChatRequest) -> ChatReply:
        match request.role:
            case "privileges":
                return says('{"weather": "query", "time": "query"}')
            case "worker":
                said = "sunny in Rome" if "sunny in Rome" in text_of(request.messages[-1]) else "noon in Rome"
                return says(json.dumps({"said": said}))
        last = max(number for number, one in enumerate(request.messages) if one["role"] == "user")
        results = [one for one in request.messages[last:] if one["role"] == "tool"]
        said = text_of(request.messages[last])
        if request.reply_schema is not None and said.startswith("SAY IT: "):
            return says(json.dumps({"told": said.removeprefix("SAY IT: ")}))
        if said.startswith("HAND OVER") and (
            hand := [t for t in request.tools if t.name.startswith("transfer")]
        ):
            return calls((hand[0].name, {"intent": {"said": "string"}} if request.role == "main" else {}))
        if not results:
            intent = {"intent": {"said": "string"}} if request.role == "main" else {}
            return calls(("weather", {"city": "Rome", **intent}), ("time", {"city": "Rome", **intent}))
        told = "; ".join(f"{one['tool_call'].function}: {_said(text_of(one))}" for one in results)
        fields = list((request.reply_schema or {}).get("properties") or ())
        return says(json.dumps({fields[0]: told}) if fields else told)


def _said(text: str) -> str:
    """The text of a result: as it is, in the field that a worker returns, or in that of Google's ADK."""
    fields = json.loads(text) if text.startswith("{") else {}
    return str(fields.get("said") or fields.get("result") or text)
