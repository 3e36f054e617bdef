#!/usr/bin/env bash
# Guess: a cache of replies keeps two servers apart that serve different models under one name.
# Seen: dspy 3.4, whose cache on disk is on by default, leaves the address out of its key: the second server is never asked, and
# the first one's reply is its. Inspect 0.3.285 keeps addresses apart that are given as `base_url`, and not those that stand in
# OPENAI_BASE_URL or VLLM_BASE_URL, which is how its own servers are mostly named.
# Where: dspy/clients/lm.py (arguments that the key ignores); inspect_ai/model/_model.py (the key gets `base_url` as the provider
# was given it, not the one it asks).
# Why it matters: a model and its fine-tuned or defended copy behind another port are compared on the same stored replies: no
# difference at all, from a table that looks finished.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in dspy inspect; do python3 -m venv "$folder/$name"; done
"$folder/dspy/bin/python" -m pip -q --disable-pip-version-check install dspy==3.4.1
"$folder/inspect/bin/python" -m pip -q --disable-pip-version-check install inspect-ai==0.3.285 openai==3.57.0
cd "$folder"
cat > two_servers.py <<'PYTHON'
import http.server
import json
import threading


class Server:
    def __init__(self, answer):
        asked = self.asked = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                asked.append(self.rfile.read(int(self.headers["content-length"])))
                choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": answer}}
                usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
                reply = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
                body = json.dumps(reply).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}/v1"


SERVERS = Server("base"), Server("fine-tuned")
PYTHON
DSPY_CACHEDIR="$folder/kept" LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/dspy/bin/python" -W ignore - <<'PYTHON'
from importlib.metadata import version

import dspy
from two_servers import SERVERS

said = [dspy.LM("openai/m", api_base=server.url, api_key="x", temperature=0.0)("Hello") for server in SERVERS]
print("dspy", version("dspy"), "| replies", said, "| requests", [len(server.asked) for server in SERVERS])
assert said == [["base"], ["base"]] and [len(server.asked) for server in SERVERS] == [1, 0]
PYTHON
INSPECT_CACHE_DIR="$folder/kept2" "$folder/inspect/bin/python" -W ignore - <<'PYTHON'
import asyncio
import os
from importlib.metadata import version

from inspect_ai.model import get_model
from two_servers import SERVERS


async def ask(name, text, **options):
    model = get_model(name, memoize=False, **options)
    return (await model.generate(text, cache=True)).completion


async def main():
    given, named = [], {"openai": [], "vllm": []}
    for server in SERVERS:
        given.append(await ask("openai/m", "Hello", base_url=server.url, api_key="x", responses_api=False))
    for server in SERVERS:
        os.environ |= {"OPENAI_BASE_URL": server.url, "VLLM_BASE_URL": server.url, "VLLM_API_KEY": "x"}
        named["openai"].append(await ask("openai/m", "Hello again", api_key="x", responses_api=False))
        named["vllm"].append(await ask("vllm/m", "Hello again"))
    print("inspect-ai", version("inspect-ai"), "| base_url", given, "| environment", named)
    assert given == ["base", "fine-tuned"] and named == {"openai": ["base"] * 2, "vllm": ["base"] * 2}


asyncio.run(main())
PYTHON
