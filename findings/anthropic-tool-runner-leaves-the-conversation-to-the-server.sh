#!/usr/bin/env bash
# Guess: the SDK's tool runner sends the whole conversation and the tools with each request, as the Messages API wants it.
# Seen: from anthropic 2 on it asks under another version of the API for a thread, and its second request holds nothing but
# the tool's result and the id of the reply before: no user task, no call, no tools. thread=False sends all, as 0.125 did.
# Where: anthropic/lib/tools/_beta_runner.py and anthropic/lib/threads, version 2.14.0.
# Why it matters: a proxy, a defense or a local server with Anthropic's older API before the model sees a result without its
# call; one that does not check that asks a model that knows neither the task nor the tools. What was logged on the way is no
# conversation any more, so what a model read cannot be counted from requests.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 0.125.0 2.14.0; do
  python3 -m venv "$folder/$version"
  "$folder/$version/bin/python" -m pip -q --disable-pip-version-check install "anthropic==$version"
done
cat > "$folder/run.py" <<'PYTHON'
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import anthropic

BODIES = []
ANSWER = {
    **{"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"},
    "content": [{"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}}],
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


class Server(BaseHTTPRequestHandler):
    def do_POST(self):
        BODIES.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        body = json.dumps(ANSWER).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@anthropic.beta_tool
def weather(city: str) -> str:
    """Tell the weather."""
    return "sunny"


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.server_port}", api_key="none", max_retries=0)
asked = [{"role": "user", "content": "How is Rome?"}]
more = json.loads(sys.argv[1])
client.beta.messages.tool_runner(
    model="m", max_tokens=9, tools=[weather], messages=asked, max_iterations=2, **more
).until_done()
second = BODIES[1]
print("anthropic", anthropic.__version__, more, "second request:", sorted(second), "roles:", [m["role"] for m in second["messages"]])
whole = [m["role"] for m in second["messages"]] == ["user", "assistant", "user"] and "tools" in second and "thread" not in second
assert whole is (sys.argv[2] == "whole"), second
PYTHON
"$folder/0.125.0/bin/python" "$folder/run.py" '{}' whole
"$folder/2.14.0/bin/python" "$folder/run.py" '{}' new
"$folder/2.14.0/bin/python" "$folder/run.py" '{"thread": false}' whole
