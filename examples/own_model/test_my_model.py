"""The model against a server of the test's own, without key or network: `pytest test_my_model.py`."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from my_model import MyModel

from agentsys.plugins import ChatRequest, ErrorKind, ModelError, text_of, user


class Replies(BaseHTTPRequestHandler):
    """Answers in OpenAI's format; a request whose text is `fail` gets status 429."""

    def do_POST(self) -> None:
        """Answer one request."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = body["messages"][-1]["content"]
        answer = {"model": "m-1", "choices": [{"message": {"content": f"You said: {said}"}}]}
        self.send_response(429 if said == "fail" else 200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def model() -> Iterator[MyModel]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Replies)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield MyModel("my_model", "m", f"http://127.0.0.1:{server.server_port}/v1")
    server.shutdown()
    server.server_close()


def test_a_question_is_answered(model: MyModel) -> None:
    reply = model.complete(ChatRequest([user("Hello.")]))
    assert (text_of(reply.message), reply.model_id) == ("You said: Hello.", "m-1")


def test_a_failing_server_is_an_error_of_its_kind(model: MyModel) -> None:
    with pytest.raises(ModelError) as caught:
        model.complete(ChatRequest([user("fail")]))
    assert caught.value.kind is ErrorKind.RATE_LIMITED
