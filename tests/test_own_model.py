"""The documented example of a user's own model: plays cases against a server, and its errors have kinds."""

from __future__ import annotations

from pathlib import Path

import pytest
from paid_server import calls, fails, paid_server, says
from typer.testing import CliRunner

from agentsys.cli import app
from agentsys.plugins import ChatRequest, ConfigError, ErrorKind, ModelError, ToolSpec, user
from agentsys.records.case_reader import load_runs

EXAMPLE = Path(__file__).parents[1] / "examples" / "own_model"
OWN = ["--config-dir", str(EXAMPLE / "conf"), "--plugin-path", str(EXAMPLE)]


def _model(monkeypatch: pytest.MonkeyPatch, url: str, key: str | None = None):  # type: ignore[no-untyped-def]
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from my_model import MyModel  # type: ignore[import-not-found]

    return MyModel("my_model", "m", url, key)


def test_the_example_runs_and_its_name_is_in_the_records(tmp_path: Path) -> None:
    with paid_server(lambda number, body: says("Done.")) as server:
        chosen = ["model=my_model", f"model.base_url={server.url}", "model.cache=false", "preflight=false"]
        tasks = ["defense=none", "attack=none", "benchmark.suites=banking", "user_tasks=3"]
        ran = CliRunner().invoke(
            app, ["run", *OWN, *chosen, *tasks, f"logdir={tmp_path}"], catch_exceptions=False
        )
    assert ran.exit_code == 0, ran.output
    (case,) = load_runs(tmp_path).to_dict("records")
    assert (case["model"], case["status"], case["prompt_tokens"]) == ("my_model", "ok", 1000)
    assert case["cost_usd"] == pytest.approx(1500 * 0.88e-6)


def test_a_tool_call_is_read_and_sent_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with paid_server(lambda number, body: calls("send_money", '{"amount": 3}')) as server:
        model = _model(monkeypatch, server.url)
        reply = model.complete(ChatRequest([user("Pay.")], [ToolSpec("send_money", "Send.", {})]))
        (call,) = reply.message["tool_calls"]
        assert (call.function, dict(call.args)) == ("send_money", {"amount": 3})
        model.complete(ChatRequest([user("Pay."), reply.message]))
    assert server.asked[0]["tools"][0]["function"]["name"] == "send_money"
    assert server.asked[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"amount": 3}'


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, ErrorKind.BAD_KEY), (429, ErrorKind.RATE_LIMITED), (503, ErrorKind.SERVER_ERROR)],
)
def test_a_failing_server_is_an_error_of_its_kind(
    status: int, kind: ErrorKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    with paid_server(lambda number, body: fails(status)) as server, pytest.raises(ModelError) as caught:
        _model(monkeypatch, server.url).complete(ChatRequest([user("Pay.")]))
    assert caught.value.kind is kind


def test_a_reply_of_another_form_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = paid_server(lambda number, body: (200, {"choices": []}))
    with empty as server, pytest.raises(ModelError) as caught:
        _model(monkeypatch, server.url).complete(ChatRequest([user("Pay.")]))
    assert caught.value.kind is ErrorKind.MALFORMED_REPLY


def test_a_key_that_is_not_set_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ConfigError, match="set NO_SUCH_KEY"):
        _model(monkeypatch, "http://127.0.0.1:9/v1", "NO_SUCH_KEY")
