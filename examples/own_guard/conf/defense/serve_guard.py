"""A guard that is a service: answers `{"tool", "text"}` with `{"injected"}`, on the port that is given."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Guard(BaseHTTPRequestHandler):
    """Judges one text a request."""

    def do_POST(self) -> None:
        """Answer a text."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"injected": "instead" in asked["text"].lower()}).encode())


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Guard).serve_forever()
