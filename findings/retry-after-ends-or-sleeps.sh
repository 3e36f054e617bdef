#!/usr/bin/env bash
# Guess: two SDKs of one descent do the same with a server's Retry-After.
# Seen: up to two minutes both wait as told. Above, openai 3.57 gives up at once, and anthropic 2.14 sleeps as long as the
# server says, an hour, twice.
# Where: openai/_base_client.py and anthropic/_base_client.py (the bound on what a server may ask for).
# Why it matters: the same outage ends one provider's cases in an error and holds the other's worker for hours, with no word
# in a log; a bound on a case's time that is checked between calls does not see it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip -q --disable-pip-version-check install openai==3.57.0 anthropic==2.14.0
cd "$folder"
"$folder/venv/bin/python" - <<'PYTHON'
import http.server
import json
import threading
import time
from importlib.metadata import version

import anthropic
import openai

asked, slept = [], []
wait = {"seconds": "0"}


class Busy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        asked.append(self.path)
        body = json.dumps({"error": {"type": "rate_limit_error", "message": "slow down"}}).encode()
        self.send_response(429)
        for name, value in (("retry-after", wait["seconds"]), ("content-length", str(len(body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
time.sleep = lambda seconds: slept.append(round(seconds))  # told, not waited for
hello = [{"role": "user", "content": "Hello"}]
seen = {}
for seconds in ("100", "3600"):
    wait["seconds"] = seconds
    for name, ask in (
        ("openai", lambda: openai.OpenAI(api_key="x", base_url=url).chat.completions.create(model="m", messages=hello)),
        ("anthropic", lambda: anthropic.Anthropic(api_key="x", base_url=url).messages.create(model="m", max_tokens=9, messages=hello)),
    ):
        asked.clear(), slept.clear()
        try:
            ask()
        except (openai.RateLimitError, anthropic.RateLimitError):
            pass
        seen[name, seconds] = (len(asked), list(slept))
        print(name, version(name), "| Retry-After", seconds, "| requests", len(asked), "| sleeps", slept)
assert seen["openai", "100"] == seen["anthropic", "100"] == (3, [100, 100])
assert seen["openai", "3600"] == (1, []) and seen["anthropic", "3600"] == (3, [3600, 3600])
PYTHON
