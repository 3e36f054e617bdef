"""The litellm adapter: the missing extra, and (slow: it takes 5 s to import) litellm itself."""

from __future__ import annotations

import builtins
import importlib.util
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hostile_server import hostile
from scripted_for_serving import WEATHER, Scripted, calls, says
from served_faults import Faults, serve
from served_faults import TestServer as Server

from agentsys.errors import ConfigError
from agentsys.models.chat import ChatRequest, ErrorKind, ModelError, ToolSpec, text_of, user
from agentsys.models.providers.litellm import LiteLLMModel

ASK = ChatRequest([user("Hi")], [ToolSpec("weather", "Tells.", WEATHER)], role="worker")


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name == "litellm":
            raise ModuleNotFoundError(name)
        return real(name, *more, **named)

    monkeypatch.delitem(sys.modules, "litellm", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install 'agentsys-bench\[litellm\]'"):
        LiteLLMModel("m", "openai/m")


def _model(server: Server, **more: Any) -> LiteLLMModel:
    if importlib.util.find_spec("litellm") is None:  # importing it here would make it look for its price list
        pytest.skip("needs the litellm extra")
    return LiteLLMModel("m", "openai/m-1", "A_KEY", base_url=server.openai_base_url, **more)


@pytest.fixture(autouse=True)
def _own_session() -> Iterator[None]:
    """litellm's client is the process's: each test has its model's own."""
    yield
    if "litellm" in sys.modules:
        sys.modules["litellm"].client_session = None  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("A_KEY", "sk-secret")
    yield


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_id", "variable"),
    [
        ("openai/m-1", "OPENAI_BASE_URL"),
        ("openai/m-1", "OPENAI_API_BASE"),
        ("anthropic/m-1", "ANTHROPIC_BASE_URL"),
        ("groq/m-1", "GROQ_API_BASE"),
        ("fireworks_ai/m-1", "FIREWORKS_API_BASE"),
    ],
)
def test_no_variable_chooses_who_answers(
    monkeypatch: pytest.MonkeyPatch, model_id: str, variable: str
) -> None:
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("needs the litellm extra")
    monkeypatch.setenv(variable, "http://127.0.0.1:1/v1")
    with pytest.raises(ConfigError, match=f"{variable} decides who answers"):
        LiteLLMModel("m", model_id, "A_KEY")
    LiteLLMModel("m", model_id, "A_KEY", base_url="http://127.0.0.1:2/v1")


@pytest.mark.slow
def test_a_variable_that_litellm_does_not_read_is_nobodys_address(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("needs the litellm extra")
    monkeypatch.setenv("OLLAMA_HOST", "http://localhost:11434")
    LiteLLMModel("m", "ollama/llama3", "A_KEY")


@pytest.mark.slow
def test_conversation_goes_through_litellm() -> None:
    scripted = Scripted(calls(("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})), says("Sun."))
    with serve(scripted) as server:
        model = _model(server, send_role=True)
        made = model.complete(ASK).message["tool_calls"] or []
        answer = model.complete(ASK)
    assert [call.args for call in made] == [{"city": "Rome"}, {"city": "Oslo"}]
    assert text_of(answer.message) == "Sun."
    assert answer.usage.prompt > 0
    assert (scripted.asked[0].temperature, scripted.asked[0].role) == (0.0, "worker")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("429", {ErrorKind.RATE_LIMITED}),
        ("500", {ErrorKind.SERVER_ERROR}),
        ("503", {ErrorKind.OVERLOADED}),
        ("reset", {ErrorKind.SERVER_ERROR, ErrorKind.CONNECTION}),
        ("invalid_json", {ErrorKind.SERVER_ERROR, ErrorKind.MALFORMED_REPLY}),
        ("context_length", {ErrorKind.CONTEXT_LENGTH}),
    ],
)
def test_fault_through_litellm_takes_one_request(fault: str, kinds: set[ErrorKind]) -> None:
    with serve(Scripted(calls(("weather", {}))), faults=Faults(rate=1.0, kinds=(fault,))) as server:
        with pytest.raises(ModelError) as caught:
            _model(server).complete(ASK)
        assert server.requests == 1
    assert caught.value.kind in kinds
    assert "sk-secret" not in str(caught.value)


@pytest.mark.slow
def test_a_redirect_and_a_trickle_end_as_they_do_elsewhere() -> None:
    moved = b"HTTP/1.1 307 Moved\r\nLocation: http://elsewhere/?k=sk-secret\r\nContent-Length: 0\r\n\r\n"

    def trickle(_: bytes) -> Iterator[bytes | float]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            yield 0.05
            yield b" "

    for answer, kind in ((lambda _: iter([moved]), ErrorKind.BAD_REQUEST), (trickle, ErrorKind.TIMEOUT)):
        with hostile(answer) as server:
            if importlib.util.find_spec("litellm") is None:
                pytest.skip("needs the litellm extra")
            model = LiteLLMModel("m", "openai/m-1", "A_KEY", base_url=f"{server.base_url}/v1", timeout_s=2.0)
            start = time.monotonic()
            with pytest.raises(ModelError) as caught:
                model.complete(ASK)
        assert caught.value.kind is kind
        assert time.monotonic() - start < 20
        assert "sk-secret" not in str(caught.value)
