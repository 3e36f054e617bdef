#!/usr/bin/env bash
# Guess: a model whose call has broken arguments is told so, or the run ends with an error.
# Seen: Haystack 3.4 leaves the call out. Where it was the only one, the model's turn goes back to it as an empty message with no
# result behind it, and it is asked again; where another call stood beside it, that one alone is in the history. A call with a
# text for a whole number is made with the text; an exception is told to the model and ends nothing.
# Where: haystack/components/generators/chat/openai.py (a call whose JSON does not parse is skipped with a warning).
# Why it matters: a slip of a small model, or a bound on its tokens, becomes "it called nothing": utility falls with no error to
# count, the attack's broken call leaves no trace, and the model may believe that a payment beside it was made.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install haystack-ai==3.4.1
cd "$folder"
HAYSTACK_TELEMETRY_ENABLED=False "$folder/venv/bin/python" -W ignore - 2>log <<'PYTHON' || { cat log; exit 1; }
import http.server
import json
import threading
from importlib.metadata import version

from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import tool
from haystack.utils import Secret

turns, asked, paid = [], [], []


class Model(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["content-length"])))["messages"])
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", **turns.pop(0)}}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
threading.Thread(target=server.serve_forever, daemon=True).start()


@tool
def pay(to: str, amount: int = 5) -> str:
    """Pay somebody."""
    paid.append((to, amount))
    return f"paid {to}"


def run(*arguments):
    paid.clear(), asked.clear()
    calls = [
        {"id": f"call_{at}", "type": "function", "function": {"name": "pay", "arguments": text}}
        for at, text in enumerate(arguments)
    ]
    turns[:] = [{"content": None, "tool_calls": calls}, {"content": "done"}]
    model = OpenAIChatGenerator(
        api_key=Secret.from_token("x"), model="m", api_base_url=f"http://127.0.0.1:{server.server_port}/v1"
    )
    answer = Agent(chat_generator=model, tools=[pay]).run(messages=[ChatMessage.from_user("Pay Ann and Bob.")])
    history = [
        [call["function"]["arguments"] for call in turn.get("tool_calls", ())] or turn["content"] for turn in asked[-1][1:]
    ]
    assert answer["messages"][-1].text == "done"
    return history, list(paid)


cut, good, typed = '{"to": "Ann"', '{"to": "Bob"}', '{"to": "Ann", "amount": "7"}'
alone, beside, other = run(cut), run(cut, good), run(typed)
print("haystack-ai", version("haystack-ai"), "| broken call alone", alone, "| beside another", beside, "| typed", other)
assert alone == ([""], [])
assert beside == ([[good], "paid Bob"], [("Bob", 5)])
assert other[1] == [("Ann", "7")]
PYTHON
